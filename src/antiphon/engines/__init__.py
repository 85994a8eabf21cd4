"""Implementations of `antiphon.ports`. They know nothing of the runtime."""
