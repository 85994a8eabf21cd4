"""Times by key, the soonest first.

A time that is set again leaves its old place in the heap, where it no longer counts. Such places
are dropped once they are more than those that count, so the heap is no larger than what is in it,
however often a time changes.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARE: Final = 16
"""Places that no longer count and are not worth dropping yet."""

K = TypeVar("K", str, tuple[str, str])


class Deadlines(Generic[K]):
    """At most one time for each key."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        """Start empty."""
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def __iter__(self) -> Iterator[K]:
        return iter(self._at)

    def set(self, key: K, at_ms: int) -> None:
        """This is the time of a key now."""
        if self._at.get(key) == at_ms:
            return
        self._at[key] = at_ms
        heappush(self._heap, (at_ms, key))
        if len(self._heap) > 2 * len(self._at) + SPARE:
            self._heap = [(ms, one) for one, ms in self._at.items()]
            heapify(self._heap)

    def discard(self, key: K) -> None:
        """This key has no time."""
        self._at.pop(key, None)

    def first_ms(self) -> int | None:
        """The soonest time; None if there is none."""
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """A key whose time has come, which it has no more; None if there is none."""
        first = self.first_ms()
        if first is None or first > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._at[key]
        return key
