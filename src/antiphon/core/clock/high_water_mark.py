"""A key's clock with its high-water mark on disk: where it may continue (spec §4.2).

A timestamp is issued at most once, across restarts and whatever the machine's clock does. So wall
times up to a mark are reserved on disk before they are used, and what was reserved counts as spent,
used or not. `MarkedClock` takes the time as an argument. It returns a timestamp, or what must be
reserved first, or why no timestamp may be issued now. The caller writes the mark to disk.

A clock that was an hour ahead must not block its key for an hour: it goes back to before the time
that it spent too early, and skips that stretch later. It does not go back if the log shows that the
machine's clock is the one that is behind.

A promise that could not be written to disk, and so was never reserved, changes nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from antiphon.core.clock.hlc import MAX_LOGICAL, ZERO, Clock, Hlc, Stretch, first_free, gathered
from antiphon.core.clock.mesh_time import Now

AHEAD_MS: Final = 1_000
"""How far ahead a mark is set: below the default drift, so that no restart is refused for it."""


class Promise(NamedTuple):
    """A mark, and the stretches of time that count as spent once it is on disk."""

    wall_ms: int
    from_ms: int
    aside: tuple[Stretch, ...]

    @property
    def spent(self) -> tuple[Stretch, ...]:
        """Everything that may have been used, including the stretch up to the mark."""
        return gathered((*self.aside, Stretch(self.from_ms, self.wall_ms)))


class TooEarly(NamedTuple):
    """Why no timestamp may be issued now: every node would refuse it as too far ahead."""

    by_ms: float
    is_spent: bool
    """The machine's clock is right, but a wrong one used up the time until `by_ms` from now."""


class MarkedClock:
    """One key's clock, and what it has spent."""

    __slots__ = ("_aside", "_clock", "_from_ms")

    def __init__(self, mark_ms: int, spent: tuple[Stretch, ...] = (), *, max_drift_ms: int) -> None:
        """Continue after a mark, 0 if there is none; without stretches, all before it is spent."""
        start = Hlc(mark_ms, MAX_LOGICAL) if mark_ms else ZERO
        self._clock = Clock(start=start, limit_ms=mark_ms, max_drift_ms=max_drift_ms)
        whole = (Stretch(0, mark_ms),) if mark_ms else ()
        self._aside = gathered(spent) or whole
        self._from_ms: int | None = None
        """Where the current stretch begins; None before its first timestamp."""

    @property
    def max_drift_ms(self) -> int:
        """How far ahead of its commit time an op's timestamp may be."""
        return self._clock.max_drift_ms

    @max_drift_ms.setter
    def max_drift_ms(self, drift_ms: int) -> None:
        self._clock.max_drift_ms = drift_ms

    @property
    def spent(self) -> tuple[Stretch, ...]:
        """The stretches in which timestamps may have been issued."""
        if self._from_ms is None:
            return self._aside
        return gathered((*self._aside, Stretch(self._from_ms, self._clock.limit_ms)))

    def next(self, now: Now) -> Hlc:
        """The next timestamp, if it may be issued."""
        self._place(now)
        return self._clock.next(now.wall_ms)

    def stamp(self, now: Now) -> Hlc | Promise | TooEarly:
        """Issue a timestamp; or return what to reserve on disk first, or why none may be issued."""
        drift_ms = self._clock.max_drift_ms
        if now.ahead_ms > drift_ms:
            return TooEarly(now.ahead_ms, is_spent=False)
        next_ms, limit_ms = self.next(now).wall_ms, self._clock.limit_ms
        if next_ms > now.most_ms + drift_ms:
            return TooEarly(next_ms - now.wall_ms, is_spent=True)
        if next_ms <= limit_ms:
            return self._clock.tick(now.wall_ms)
        if self._from_ms is None or next_ms > limit_ms + drift_ms:
            return Promise(next_ms + AHEAD_MS, next_ms, self.spent)
        return Promise(next_ms + AHEAD_MS, self._from_ms, self._aside)

    def stamp_more(self, count: int) -> list[Hlc]:
        """Issue timestamps right behind the one that `stamp` has just issued; as many, or fewer."""
        return self._clock.tick_more(count)

    def reserve(self, promise: Promise) -> None:
        """Allow timestamps up to a mark, now that it is on disk."""
        self._from_ms, self._aside = promise.from_ms, promise.aside
        self._clock.reserve(promise.wall_ms)

    def receive(self, wall_ms: int, remote: tuple[int, int]) -> bool:
        """Merge a verified remote timestamp; False if it is beyond the drift and was ignored."""
        return self._clock.receive(wall_ms, remote)

    def unused(self) -> Promise | None:
        """The lower mark that is enough if no more timestamps are issued; None if there is none.

        Without it every short process would push the next one a second further ahead of the
        wall clock, until a shell loop is rejected for drift.
        """
        used_ms = min(self._clock.last.wall_ms, self._clock.limit_ms)
        if self._from_ms is None or used_ms == self._clock.limit_ms:
            return None
        return Promise(used_ms, self._from_ms, self._aside)

    def _place(self, now: Now) -> None:
        """Set the clock to where it may continue."""
        wall_ms, drift_ms = self._clock.next(now.wall_ms).wall_ms, self._clock.max_drift_ms
        is_behind = now.behind_ms > drift_ms
        free_ms = wall_ms
        if not is_behind and wall_ms > now.latest_ms + drift_ms:
            free_ms = min(first_free(now.wall_ms, self.spent), wall_ms)
        if free_ms == wall_ms:
            free_ms = first_free(wall_ms, self._aside)
        if free_ms != wall_ms:
            self._aside, self._from_ms = self.spent, None
            self._clock.resume(free_ms)
