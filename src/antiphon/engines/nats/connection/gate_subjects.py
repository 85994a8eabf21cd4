"""The subjects on which members ask their mesh's gate."""

from __future__ import annotations


def gate_subject(mesh: str, user: str, verb: str) -> str:
    """Where a user asks the gate for something, and nobody else may ask in its name."""
    return f"apg.{mesh}.{user}.{verb}"
