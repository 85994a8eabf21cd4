"""The hybrid logical clock (SPEC §4.2).

A timestamp is `(wall_ms, logical)`; the node's id breaks ties where two nodes are compared. Both
parts pack into 64 bits, written as 16 hex digits: that is a fence.

`Clock` is a plain state machine: the physical time is an argument. It refuses to be pulled ahead
by a timestamp that lies beyond the drift of its own physical time, so that one future-dated node
cannot move anybody (the reducer rejects such ops anyway; the clock must not remember them).

The high-water mark keeps timestamps unique across restarts, restores and clock steps: `reserve`
says up to which wall time the clock may go without a further promise on disk, and `tick` raises
if the promise is missing. The runtime persists the mark first, then calls `reserve`.
"""

from __future__ import annotations

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


def unpack(fence: str) -> Hlc:
    """The timestamp that a fence is."""
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


class MarkExceeded(Rejected):
    """The clock stands at its high-water mark: persist a higher one and `reserve` it first."""


class Clock:
    """One node's clock. Not shared between processes: one process per key."""

    __slots__ = ("_last", "_limit_ms", "max_drift_ms")

    def __init__(self, *, start: Hlc = ZERO, limit_ms: int = MAX_WALL, max_drift_ms: int) -> None:
        """Continue behind `start`.

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

    def receive(self, now_ms: int, remote: tuple[int, int]) -> bool:
        """Merge a verified remote timestamp; False if it lies beyond the drift and was ignored.

        The remote timestamp itself is never reissued: the next tick lies after it.
        """
        if remote[0] > now_ms + self.max_drift_ms:
            return False
        if remote > self._last:
            self._last = Hlc(*remote)
        return True
