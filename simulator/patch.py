"""Applies a deliberate bug and removes it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(owner: Any, name: Any, value: object) -> Iterator[None]:
    """Replace an attribute (or a dictionary's entry) for a while."""
    is_table = isinstance(owner, dict)
    before = owner[name] if is_table else getattr(owner, name)
    put = owner.__setitem__ if is_table else lambda key, new: setattr(owner, key, new)
    put(name, value)
    try:
        yield
    finally:
        put(name, before)
