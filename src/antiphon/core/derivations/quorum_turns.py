"""Which jobs with replicas the coordinator looks at next: in turns, by the party they are for.

Whatever happens to such a job or to one of its replicas is a reason to look at it. Where the party
has used up its rate of replicas (`derived_use`), a job that lacks some is delayed: among those of
its party the oldest is next, and nobody else's waits for it. What else follows for a job, such as
its result, is never delayed.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Key = tuple[str, str]
"""A job: its kind and its id."""


class QuorumTurns:
    """Jobs to look at, and jobs whose replicas are delayed."""

    def __init__(self) -> None:
        """Begin empty."""
        self._touched: dict[str, dict[Key, None]] = {}
        self._delayed: dict[str, list[tuple[int, Key]]] = {}
        """By party: where each job was submitted, and the job; a heap."""
        self._are_delayed: set[Key] = set()

    def touch(self, key: Key, party: str) -> None:
        """Something happened to a job or to one of its replicas."""
        self._touched.setdefault(party, {})[key] = None

    def delay(self, key: Key, party: str, seq: int) -> None:
        """Replicas of a job that was submitted there wait for the rate of its party."""
        if key not in self._are_delayed:
            self._are_delayed.add(key)
            heappush(self._delayed.setdefault(party, []), (seq, key))

    def is_behind(self, party: str, seq: int) -> bool:
        """Whether replicas of an older job of the party are delayed."""
        return party in self._delayed and self._delayed[party][0][0] < seq

    def take(self, most: int, has_room: Callable[[str], bool]) -> list[Key]:
        """The next jobs: of every party one, then another of each; then one that was delayed.

        `has_room` says whether a party's rate lets another replica be submitted.
        """
        taken: list[Key] = []
        while self._touched and len(taken) < most:
            for party in [*self._touched][: most - len(taken)]:
                queue = self._touched.pop(party)
                taken.append(next(iter(queue)))
                del queue[taken[-1]]
                if queue:
                    self._touched[party] = queue  # behind everybody else's
        for party in [one for one in self._delayed if has_room(one)][: most - len(taken)]:
            heap = self._delayed.pop(party)
            _, key = heappop(heap)
            self._are_delayed.discard(key)
            taken.append(key)
            if heap:
                self._delayed[party] = heap
        return taken

    @property
    def is_touched(self) -> bool:
        """Whether there is a job to look at that is not delayed."""
        return bool(self._touched)

    @property
    def delayed(self) -> tuple[str, ...]:
        """The parties whose replicas wait for their rate."""
        return tuple(self._delayed)
