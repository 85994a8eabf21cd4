"""Which of the plans that are run may have something to derive: of each party in turn.

A plan has something when its next tick has come, or when a job has ended as it waits for. Nothing
here looks through all plans: the times of ticks are in a heap, and reactions are found by what they
wait for. Reactions of one author to the same jobs may read the same of them, so one of them looks
first: where it may read none, the others need not look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

if TYPE_CHECKING:
    from antiphon.runtime.plans.running_plan import RunningPlan

SPARE_TIMES: Final = 1_024
"""Times of plans that are gone: beyond so many the heap is made anew."""

Ends = tuple[str, str]
"""The kinds and the ending that a reaction waits for."""


class Crowd(Struct):
    """The reactions of one author to the same jobs."""

    members: int = 0
    idle: dict[int, None] = field(default_factory=dict)
    """Those that have looked at everything, or that wait for the one that looks first."""
    untold: dict[int, None] = field(default_factory=dict)
    """Those of which nobody was told that their author may not read what they wait for."""
    first: int = 0
    """The one that looks first, if there is something new."""
    newest: int = 0
    """Where the newest such job ended."""
    passed: int = 0
    """Up to here there is nothing that any of them answers."""


class DuePlans:
    """The plans that are run, by where each was put, and a queue of them for each party."""

    def __init__(self) -> None:
        """No plan is run."""
        self.clear()

    def clear(self) -> None:
        """Run no plan."""
        self.running: dict[int, RunningPlan] = {}
        self.of_party: Counter[str] = Counter()
        """How many are run for each party."""
        self._queues: dict[str, dict[int, None]] = {}
        self._times: list[tuple[int, int]] = []
        self._crowds: dict[Ends, dict[str, Crowd]] = {}
        """By what they wait for, and by author."""
        self._aside: dict[int, None] = {}

    def add(self, one: RunningPlan) -> None:
        """Run a plan: it has a turn, unless nothing can have happened since it was put."""
        self.running[one.plan.put_seq] = one
        self.of_party[one.party] += 1
        if one.waits_for is not None:
            authors = self._crowds.setdefault(one.waits_for, {})
            crowd = authors.setdefault(one.plan.author, Crowd())
            crowd.members += 1
            crowd.untold[one.plan.put_seq] = None
        if one.is_begun:
            self.settle(one)
        else:
            self._enqueue(one)

    def remove(self, one: RunningPlan) -> None:
        """Run a plan no longer."""
        put_seq = one.plan.put_seq
        del self.running[put_seq]
        self.of_party[one.party] -= 1
        if not self.of_party[one.party]:
            del self.of_party[one.party]
        self._aside.pop(put_seq, None)
        queue = self._queues.get(one.party, {})
        queue.pop(put_seq, None)
        if not queue:
            self._queues.pop(one.party, None)
        if one.waits_for is None:
            return
        authors = self._crowds[one.waits_for]
        crowd = authors[one.plan.author]
        self._wake(crowd, one)
        crowd.idle.pop(put_seq, None)
        crowd.untold.pop(put_seq, None)
        crowd.members -= 1
        if not crowd.members:
            del authors[one.plan.author]
            if not authors:
                del self._crowds[one.waits_for]

    # --- what happens -------------------------------------------------------------------------

    def ended(self, ends: Ends, seq: int) -> bool:
        """A job ended so; whether somebody waits for such jobs."""
        for crowd in self._crowds.get(ends, {}).values():
            crowd.newest = seq
            if not crowd.first and crowd.idle:
                crowd.first = next(iter(crowd.idle))
                del crowd.idle[crowd.first]
                self._enqueue(self.running[crowd.first])
        return ends in self._crowds

    def see_times(self, now_ms: int) -> None:
        """Queue the plans whose next tick has come."""
        while self._times and self._times[0][0] <= now_ms:
            next_ms, put_seq = heappop(self._times)
            one = self.running.get(put_seq)
            if one is not None and one.next_ms == next_ms and put_seq not in self._aside:
                self._enqueue(one)

    def try_again(self, is_ready: Callable[[RunningPlan], bool]) -> None:
        """Queue those plans again that were put aside and are ready."""
        for put_seq in [*self._aside]:
            if is_ready(self.running[put_seq]):
                del self._aside[put_seq]
                self._enqueue(self.running[put_seq])

    @property
    def next_ms(self) -> int | None:
        """When the next tick comes."""
        return self._times[0][0] if self._times else None

    # --- whose turn it is ---------------------------------------------------------------------

    def first(self, without: Collection[str]) -> RunningPlan | None:
        """The plan that is next, of those of other parties: the party's that waited longest."""
        for party, queue in self._queues.items():
            if party not in without:
                return self.running[next(iter(queue))]
        return None

    def take(self, one: RunningPlan) -> None:
        """It has its turn now: it is no longer queued, and its party comes after all others."""
        queue = self._queues.pop(one.party)
        del queue[one.plan.put_seq]
        if queue:
            self._queues[one.party] = queue
        crowd = self._crowd(one)
        if crowd is not None:
            one.cursor = max(one.cursor, crowd.passed)

    def settle(self, one: RunningPlan) -> None:
        """After its turn: queue it again if there is more, or wait until something happens."""
        put_seq, crowd = one.plan.put_seq, self._crowd(one)
        if put_seq not in self.running:
            return
        if crowd is not None:
            if one.cursor < max(crowd.newest, one.upto):
                self._enqueue(one)
            else:
                crowd.idle[put_seq] = None
                crowd.first = 0 if crowd.first == put_seq else crowd.first
        elif one.due:
            self._enqueue(one)
        elif one.next_ms is not None:
            heappush(self._times, (one.next_ms, put_seq))
            if len(self._times) > 2 * len(self.running) + SPARE_TIMES:
                self._times = [
                    (each.next_ms, seq)
                    for seq, each in self.running.items()
                    if each.next_ms is not None
                ]
                heapify(self._times)

    def put_aside(self, one: RunningPlan) -> None:
        """It is not run until `try_again` finds it ready."""
        if one.plan.put_seq not in self.running:
            return
        self._aside[one.plan.put_seq] = None
        crowd = self._crowd(one)
        if crowd is not None:
            self._wake(crowd, one)

    def answers(self, one: RunningPlan) -> None:
        """A reaction found something to answer: all others of its author look, too."""
        crowd = self._crowd(one)
        if crowd is not None:
            self._wake(crowd, one)

    def passes(self, one: RunningPlan) -> None:
        """A reaction found nothing up to its cursor, and no other of its author would."""
        crowd = self._crowd(one)
        if crowd is not None:
            crowd.passed = max(crowd.passed, one.cursor)

    def untold(self, one: RunningPlan) -> list[RunningPlan]:
        """All reactions of its author of which nobody was told yet that it may not read."""
        crowd = self._crowd(one)
        if crowd is None:
            return []
        untold, crowd.untold = crowd.untold, {}
        return [self.running[put_seq] for put_seq in untold]

    def _wake(self, crowd: Crowd, one: RunningPlan) -> None:
        """If the others waited for this one, they look for themselves."""
        if crowd.first != one.plan.put_seq:
            return
        crowd.first = 0
        for put_seq in crowd.idle:
            self._enqueue(self.running[put_seq])
            crowd.untold[put_seq] = None
        crowd.idle.clear()

    def _crowd(self, one: RunningPlan) -> Crowd | None:
        if one.waits_for is None:
            return None
        return self._crowds.get(one.waits_for, {}).get(one.plan.author)

    def _enqueue(self, one: RunningPlan) -> None:
        self._queues.setdefault(one.party, {})[one.plan.put_seq] = None
