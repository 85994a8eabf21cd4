"""Implementations of `antiphon.ports`: memory, NATS, object stores. None knows the runtime."""
