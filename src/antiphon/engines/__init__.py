"""Implementations of `antiphon.ports`: memory, NATS, HTTP, object stores. None knows runtime."""
