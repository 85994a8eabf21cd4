"""Bugs in how an outbox is sent. They show only where somebody writes through one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from msgspec.structs import replace

from antiphon.errors import OutcomeUnknown, Unavailable
from antiphon.runtime.outbox.lane_writes import LaneWriter
from antiphon.runtime.outbox.outbox_sender import OutboxSender
from simulator.patch import patched


@contextmanager
def forms_unsearched() -> Iterator[None]:
    """Nobody looks whether a form that was sent before has arrived."""

    async def sent_anew(_self: LaneWriter, _lane: Any) -> None:
        return None

    with patched(LaneWriter, "_arrived", sent_anew):
        yield


@contextmanager
def forms_unnoted() -> Iterator[None]:
    """What was signed is not on disk before it is sent."""
    really = LaneWriter.__init__

    def forgetful(self: LaneWriter, session: Any, item: Any, what: Any, _note: Any) -> None:
        really(self, session, item, what, lambda _: None)

    with patched(LaneWriter, "__init__", forgetful):
        yield


@contextmanager
def unanswered_is_held() -> Iterator[None]:
    """What was sent counts as held, whether or not an answer came."""
    really = OutboxSender._settle  # noqa: SLF001 - a mutant replaces it

    async def hopeful(self: OutboxSender, item: Any) -> Any:
        try:
            return await really(self, item)
        except OutcomeUnknown:
            return replace(item, state="held")

    with patched(OutboxSender, "_settle", hopeful):
        yield


@contextmanager
def unsent_is_forgotten() -> Iterator[None]:
    """What could not be sent is removed."""
    really = OutboxSender._settle  # noqa: SLF001 - a mutant replaces it

    async def careless(self: OutboxSender, item: Any) -> Any:
        try:
            return await really(self, item)
        except Unavailable:
            self._store.remove(item)
            raise

    with patched(OutboxSender, "_settle", careless):
        yield


MUTANTS: Final[tuple[Callable[[], AbstractContextManager[None]], ...]] = (
    forms_unsearched,
    forms_unnoted,
    unanswered_is_held,
    unsent_is_forgotten,
)
