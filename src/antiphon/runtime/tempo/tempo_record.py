"""Keeps what a node heard of the tempo beside its replica, so that old beats stay what they were.

Each frame of a leader says how its bar is counted; a change is stored. What happened while the
node was not listening is taken from the state that leaders store at the engine, which names the
changes before it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from antiphon.core.tempo.tempo_history import span_of
from antiphon.errors import AntiphonError
from antiphon.runtime.tempo.pulse_lease import stored_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antiphon.core.bus.signed_message import Message
    from antiphon.core.tempo.messages import BeatFrame
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica_tempo import ReplicaTempo
    from antiphon.runtime.tempo.beat_clock import BeatClock


class TempoRecord:
    """The history of the tempo, as one node writes it down."""

    def __init__(self, session: Session, kept: ReplicaTempo) -> None:
        """Goes on from what is stored."""
        self._session = session
        self._kept = kept
        self._last = kept.newest()
        self._term = 0
        self._is_behind = False
        """Whether a leader may have changed something that was not heard here."""

    @contextmanager
    def watching(self, clock: BeatClock) -> Iterator[None]:
        """Note every frame that the clock follows while the block runs."""
        clock.watchers.append(self._note)
        try:
            yield
        finally:
            clock.watchers.remove(self._note)

    def _note(self, message: Message[BeatFrame]) -> None:
        frame = message.body
        if not frame.revision:
            return  # without a leader the tempo is frozen
        if frame.revision != self._term:
            self._term, self._is_behind = frame.revision, True
        span = span_of(frame)
        if not span.continues(self._last):
            self._last = span
            self._kept.put([span])

    async def complete(self) -> None:
        """Add what was missed, if a new leader was heard; tried again later if it cannot be read.

        Which beat it was is of interest afterwards: nothing that runs waits for it.
        """
        if not self._is_behind:
            return
        try:
            state = await stored_state(self._session)
        except AntiphonError:
            return
        self._is_behind = False
        if state is not None:
            self._kept.put([*state.past, state.span])
