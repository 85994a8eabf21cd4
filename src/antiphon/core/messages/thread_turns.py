"""The threads of an inbox: what waits in each, and which is offered next.

Places that no longer count stay in a heap until they come up, or until they are more than those
that count. So no list grows with what is done to a message, only with the number of messages.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SERVED: Final = 4_096
"""Parties of which it is remembered when they had their turn."""
SPARE: Final = 16
"""Places that no longer count and are not worth dropping yet."""

ThreadName = tuple[str, str]
"""A thread, or the id of a message without one."""


class Waiting:
    """The messages of one thread, oldest first."""

    __slots__ = ("count", "heap", "is_taken", "offered")

    def __init__(self) -> None:
        self.heap: list[tuple[int, str]] = []
        self.count = 0
        """Messages that have not ended."""
        self.is_taken = False
        """Whether the first one is being handed out."""
        self.offered = 0
        """The order of the message with which the thread is offered; 0 if it is not."""

    def add(self, order: int, id_: str) -> None:
        """One more message."""
        self.count += 1
        heappush(self.heap, (order, id_))

    def move(self, order: int, id_: str) -> None:
        """A message has another place."""
        heappush(self.heap, (order, id_))

    def ended(self, is_at: Callable[[int, str], bool]) -> None:
        """A message of the thread has ended, wherever it stood."""
        self.count -= 1
        if len(self.heap) > 2 * self.count + SPARE:
            self.heap = [place for place in self.heap if is_at(*place)]
            heapify(self.heap)

    def first(self, is_at: Callable[[int, str], bool]) -> str | None:
        """The message that comes first; None if there is none."""
        while self.heap:
            if is_at(*self.heap[0]):
                return self.heap[0][1]
            heappop(self.heap)
        return None


class ThreadTurns:
    """The threads of one priority that can be handed out now, by party, parties in turn."""

    __slots__ = ("_by_party", "_count", "_served", "places")

    def __init__(self) -> None:
        self._by_party: OrderedDict[str, list[tuple[int, ThreadName]]] = OrderedDict()
        self._served: dict[str, int] = {}
        """The turn at which a party was served last."""
        self._count = 0
        self.places = 0

    def add(self, party: str, order: int, thread: ThreadName) -> None:
        """Offer a thread by the order of its first message."""
        heap = self._by_party.get(party)
        if heap is None:
            heap = self._by_party[party] = []
            first, served = next(iter(self._by_party)), self._served.get
            if served(party, 0) < served(first, 0):
                self._by_party.move_to_end(party, last=False)  # the others had their turn
        heappush(heap, (order, thread))
        self.places += 1

    def pop(self) -> tuple[int, ThreadName]:
        """The oldest thread of the party whose turn it is; there must be a place."""
        party = next(iter(self._by_party))
        heap = self._by_party.pop(party)
        place = heappop(heap)
        self.places -= 1
        self._count += 1
        self._served.pop(party, None)
        self._served[party] = self._count
        if len(self._served) > MAX_SERVED:
            del self._served[next(iter(self._served))]
        if heap:
            self._by_party[party] = heap  # at the end: the others are first
        return place

    def tidy(self, threads: int, is_offered: Callable[[int, ThreadName], bool]) -> None:
        """Drop the places that no longer count, once they are many."""
        if self.places <= 2 * threads + SPARE:
            return
        self.places = 0
        for party, heap in list(self._by_party.items()):
            live = {place for place in heap if is_offered(*place)}
            if live:
                self._by_party[party] = sorted(live)
                self.places += len(live)
            else:
                del self._by_party[party]
