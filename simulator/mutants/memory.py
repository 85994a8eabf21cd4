"""Bugs in the rules of documents. They show only where somebody writes documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from antiphon.core.families.memory import table
from simulator.patch import patched


@contextmanager
def base_ignored() -> Iterator[None]:
    """A put counts whatever revision its value was made from: only `prev` is compared."""
    with patched(table, "_fits", lambda _body, _revision: True):
        yield


MUTANTS: Final[tuple[Callable[[], AbstractContextManager[None]], ...]] = (base_ignored,)
