"""Addresses with a time, for interfaces."""

from antiphon.core.tempo.addresses import Address, parse_address

__all__ = ["Address", "parse_address"]
