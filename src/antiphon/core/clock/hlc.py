"""The hybrid logical clock (spec §4.2).

A timestamp is `(wall_ms, logical)`; node ids break ties between two nodes. Both parts pack into 64
bits, written as 16 hex digits: that is a fence.

`Clock` is a plain state machine: the physical time is an argument. It ignores remote timestamps
that are further ahead of its physical time than the drift, so that one node with a wrong clock
cannot move the others (the reducer rejects such ops anyway; the clock must not merge them).

The high-water mark keeps timestamps unique across restarts, restores and clock steps: `reserve`
sets the wall time up to which the clock may issue timestamps, and `tick` raises beyond it. The
runtime persists the mark first, then calls `reserve`.

A clock that was set far ahead by mistake has only used up a stretch of the future: it may `resume`
before that stretch, and later skips it (`first_free`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from antiphon.errors import Malformed, Rejected

WALL_BITS = 48
LOGICAL_BITS = 16
MAX_WALL = 2**WALL_BITS - 1
MAX_LOGICAL = 2**LOGICAL_BITS - 1
FENCE_DIGITS = 16


class Hlc(NamedTuple):
    """A point in hybrid time."""

    wall_ms: int
    logical: int


ZERO = Hlc(0, 0)


def pack(at: tuple[int, int]) -> str:
    """The 16 hex digits of a timestamp; text order is time order."""
    return f"{at[0]:012x}{at[1]:04x}"


@lru_cache(maxsize=1024)
def unpack(fence: str) -> Hlc:
    """The timestamp in a fence; a run's own is asked for more than once."""
    try:
        number = int(fence, 16)
    except ValueError as problem:
        raise Malformed(f"{fence!r} is not a fence") from problem
    at = Hlc(number >> LOGICAL_BITS, number & MAX_LOGICAL)
    if number < 0 or len(fence) != FENCE_DIGITS or pack(at) != fence:
        raise Malformed(f"{fence!r} is not a fence")
    return at


def successor(at: tuple[int, int]) -> Hlc:
    """The smallest timestamp after `at`; a full logical part carries into wall time."""
    if at[1] >= MAX_LOGICAL:
        return Hlc(at[0] + 1, 0)
    return Hlc(at[0], at[1] + 1)


def rising(last_ms: int, now_ms: int, *, bearable_ms: int) -> int:
    """The next time to date a message with: now, or just after the last one.

    If the last one is beyond what receivers accept, it was dated by a clock that was far ahead,
    and no receiver with a right clock accepted it: it is ignored.
    """
    return now_ms if last_ms > now_ms + bearable_ms else max(now_ms, last_ms + 1)


class Stretch(NamedTuple):
    """A range of wall times, both ends included, in which timestamps may have been issued."""

    from_ms: int
    to_ms: int


STRETCHES_KEPT = 256


def first_free(wall_ms: int, spent: Sequence[Stretch]) -> int:
    """The first wall time from `wall_ms` on that is in none of the stretches (sorted)."""
    if not spent or wall_ms > spent[-1].to_ms:
        return wall_ms
    for stretch in spent:
        if stretch.from_ms <= wall_ms <= stretch.to_ms:
            wall_ms = stretch.to_ms + 1
    return wall_ms


def gathered(spent: Iterable[Stretch], *, most: int = STRETCHES_KEPT) -> tuple[Stretch, ...]:
    """The same stretches, sorted, at most `most` of them: the closest ones are joined.

    Joining also spends the time between them. It never frees any.
    """
    found: list[Stretch] = []
    for stretch in sorted(spent):
        if found and stretch.from_ms <= found[-1].to_ms + 1:
            found[-1] = Stretch(found[-1].from_ms, max(found[-1].to_ms, stretch.to_ms))
        else:
            found.append(stretch)
    while len(found) > most:
        gaps = [after.from_ms - before.to_ms for before, after in pairwise(found)]
        at = gaps.index(min(gaps))
        found[at : at + 2] = [Stretch(found[at].from_ms, found[at + 1].to_ms)]
    return tuple(found)


class MarkExceeded(Rejected):
    """The clock is at its high-water mark: persist a higher one and `reserve` it first."""


class Clock:
    """One node's clock. Not shared between processes: one process per key."""

    __slots__ = ("_last", "_limit_ms", "max_drift_ms")

    def __init__(self, *, start: Hlc = ZERO, limit_ms: int = MAX_WALL, max_drift_ms: int) -> None:
        """Continue after `start`.

        After a restart that is the last timestamp that the mark allowed: `(mark, MAX_LOGICAL)`.
        """
        self._last = start
        self._limit_ms = limit_ms
        self.max_drift_ms = max_drift_ms

    @property
    def last(self) -> Hlc:
        """The newest timestamp this clock has issued or merged."""
        return self._last

    @property
    def limit_ms(self) -> int:
        """The wall time up to which timestamps may be issued."""
        return self._limit_ms

    def reserve(self, limit_ms: int) -> None:
        """Allow timestamps up to and including `limit_ms`, now that this is on disk."""
        self._limit_ms = max(self._limit_ms, limit_ms)

    def resume(self, wall_ms: int) -> None:
        """Continue from `wall_ms`, wherever the clock was; nothing is reserved there yet.

        The caller knows that no timestamp was ever issued there: see `first_free`.
        """
        self._last = Hlc(wall_ms - 1, MAX_LOGICAL)
        self._limit_ms = wall_ms - 1

    def next(self, now_ms: int) -> Hlc:
        """What `tick` would issue, without issuing it."""
        if now_ms > self._last.wall_ms:
            return Hlc(now_ms, 0)
        return successor(self._last)

    def tick(self, now_ms: int) -> Hlc:
        """Issue a timestamp for a local event."""
        at = self.next(now_ms)
        if at.wall_ms > self._limit_ms:
            raise MarkExceeded(f"{at.wall_ms} is past the mark {self._limit_ms}", reason="mark")
        self._last = at
        return at

    def tick_more(self, count: int) -> list[Hlc]:
        """As many timestamps as wanted that follow the last one within its millisecond, or fewer.

        They need no look at the time, and no mark: the last one had both.
        """
        wall_ms, logical = self._last
        last = min(logical + count, MAX_LOGICAL)
        given = [Hlc(wall_ms, one) for one in range(logical + 1, last + 1)]
        if given:
            self._last = given[-1]
        return given

    def receive(self, now_ms: int, remote: tuple[int, int]) -> bool:
        """Merge a verified remote timestamp; False if it is beyond the drift and was ignored.

        The remote timestamp itself is never reissued: the next tick is after it.
        """
        if remote[0] > now_ms + self.max_drift_ms:
            return False
        if remote > self._last:
            self._last = Hlc(*remote)
        return True
