"""A key's clock under its high-water mark: where it may go on from (spec §4.2).

A timestamp is issued at most once, over restarts and whatever the machine's clock does. So the
wall times up to a mark are promised on disk before they are used, and what was promised counts as
spent, used or not. `MarkedClock` is given the time. It gives a timestamp, or says what to promise
first, or why nothing may be stamped now; writing a promise down is the caller's.

A clock that was wrong by an hour must not cost its key an hour: it goes back before what it spent
too early, and steps over that when its time has come. It does not go back where the log shows that
the machine's clock is the one that is behind.

A promise that is never reserved, since it could not be written down, changes nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from antiphon.core.clock.hlc import MAX_LOGICAL, ZERO, Clock, Hlc, Stretch, first_free, gathered
from antiphon.core.clock.mesh_time import Now

AHEAD_MS: Final = 1_000
"""How far a mark is set ahead: below the default drift, so a restart is never refused for it."""


class Promise(NamedTuple):
    """A mark, and the stretches of time that count as spent once it is on disk."""

    wall_ms: int
    from_ms: int
    aside: tuple[Stretch, ...]

    @property
    def spent(self) -> tuple[Stretch, ...]:
        """Everything that may have been used, the stretch up to the mark included."""
        return gathered((*self.aside, Stretch(self.from_ms, self.wall_ms)))


class TooEarly(NamedTuple):
    """Why nothing may be stamped now: everybody would refuse it as too far ahead."""

    by_ms: float
    is_spent: bool
    """The machine's clock is right, but a wrong one used up the time until `by_ms` from now."""


class MarkedClock:
    """One key's clock, and what it has spent."""

    __slots__ = ("_aside", "_clock", "_from_ms")

    def __init__(self, mark_ms: int, spent: tuple[Stretch, ...] = (), *, max_drift_ms: int) -> None:
        """Continue behind a mark, 0 if there is none; without stretches, all before it is spent."""
        start = Hlc(mark_ms, MAX_LOGICAL) if mark_ms else ZERO
        self._clock = Clock(start=start, limit_ms=mark_ms, max_drift_ms=max_drift_ms)
        whole = (Stretch(0, mark_ms),) if mark_ms else ()
        self._aside = gathered(spent) or whole
        self._from_ms: int | None = None
        """Where the stretch that is being used begins; None before its first timestamp."""

    @property
    def max_drift_ms(self) -> int:
        """How far ahead of its commit an op may be stamped."""
        return self._clock.max_drift_ms

    @max_drift_ms.setter
    def max_drift_ms(self, drift_ms: int) -> None:
        self._clock.max_drift_ms = drift_ms

    @property
    def spent(self) -> tuple[Stretch, ...]:
        """The stretches under which timestamps may have been issued."""
        if self._from_ms is None:
            return self._aside
        return gathered((*self._aside, Stretch(self._from_ms, self._clock.limit_ms)))

    def next(self, now: Now) -> Hlc:
        """The timestamp that comes next, if nothing stands in its way."""
        self._place(now)
        return self._clock.next(now.wall_ms)

    def stamp(self, now: Now) -> Hlc | Promise | TooEarly:
        """Issue a timestamp; or what must be on disk and reserved first, or why none may be."""
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

    def reserve(self, promise: Promise) -> None:
        """Allow timestamps up to a mark, now that it is on disk."""
        self._from_ms, self._aside = promise.from_ms, promise.aside
        self._clock.reserve(promise.wall_ms)

    def receive(self, wall_ms: int, remote: tuple[int, int]) -> bool:
        """Merge a verified remote timestamp; False if it lies beyond the drift and was ignored."""
        return self._clock.receive(wall_ms, remote)

    def unused(self) -> Promise | None:
        """The lower mark that is enough if nothing is stamped any more; None if there is none.

        Without it every short process would push the next one a second further ahead of the
        wall clock, until a shell loop is refused for drift.
        """
        used_ms = min(self._clock.last.wall_ms, self._clock.limit_ms)
        if self._from_ms is None or used_ms == self._clock.limit_ms:
            return None
        return Promise(used_ms, self._from_ms, self._aside)

    def _place(self, now: Now) -> None:
        """Put the clock where it may go on from."""
        wall_ms, drift_ms = self._clock.next(now.wall_ms).wall_ms, self._clock.max_drift_ms
        is_behind = now.behind_ms > drift_ms
        if not is_behind and wall_ms > now.latest_ms + drift_ms:
            free_ms = min(first_free(now.wall_ms, self.spent), wall_ms)
        else:
            free_ms = first_free(wall_ms, self._aside)
        if free_ms != wall_ms:
            self._aside, self._from_ms = self.spent, None
            self._clock.resume(free_ms)
