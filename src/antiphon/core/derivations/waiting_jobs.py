"""Which waiting jobs the coordinator may offer next (spec §7.3).

An index over the jobs that wait for the coordinator. It is told what each job waits for and which
jobs end, and hands out jobs whose predecessors have all ended and whose time has come. A job that
follows a failed one is handed out at once, so that it can be cancelled.

- Of a label with a limit it hands out as many as there is room for, higher priority first, then in
  the order of the log.
- All others are handed out in turns, by the party that they are for: whoever has had the least in
  a round is next. A job counts for itself and each job that it waits for, since each of those is
  looked up. So a party that submits thousands of jobs waits for itself, and for no more.

Each edge costs a constant number of steps, however many predecessors a job has, and is kept as one
reference.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.jobs.priority import rank
from antiphon.core.families.jobs.state import State

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job

Key = tuple[str, str]
"""A job: its kind and its id."""
Place = tuple[int, int, Key]
"""Where a job stands among those of its party or label: priority, sequence, key."""
Room = Callable[[str], int | None]
"""How many more jobs with a label may be offered now; None: the label has no limit."""

_AT_ONCE: Final = -1
"""The priority of what is only to be cancelled."""
_DOOMED: Final = -1


class _Waiting(Struct):
    """What is kept of a job that waits."""

    seq: int
    party: str
    rank: int
    label: str
    not_before_ms: int
    takes_any_end: bool
    cost: int
    unmet: int
    """How many jobs it still waits for."""


class WaitingJobs:
    """The jobs that wait, by what they wait for."""

    def __init__(self) -> None:
        """Begin empty."""
        self._jobs: dict[Key, _Waiting] = {}
        self._dependants: dict[Key, list[Key]] = {}
        self._later: list[tuple[int, Key]] = []
        self._limited: dict[str, list[Place]] = {}
        """By label: jobs that wait for nothing but room."""
        self._turns: dict[str, list[Place]] = {}
        """By party: jobs that wait for nothing but their turn. Who was served longest ago is
        first."""
        self.served: dict[str, int] = {}
        """How many jobs each party had in the last round."""

    def __len__(self) -> int:
        """How many jobs wait."""
        return len(self._jobs)

    def add(self, job: Job, state_of: Callable[[Key], State | None], party: str = "") -> None:
        """A job that waits for the coordinator; `state_of` says what is known of others."""
        key = (job.kind, job.id)
        known = self._jobs.get(key)
        if known is not None and known.seq == job.waiting_seq:
            return
        one = self._jobs[key] = _Waiting(
            seq=job.waiting_seq,
            party=party or job.scheduler,
            rank=rank(job.priority),
            label=job.concurrency,
            not_before_ms=job.not_before_ms,
            takes_any_end=job.after_any_outcome or bool(job.continuations),
            cost=1 + len(job.awaited),
            unmet=0,
        )
        for before in job.awaited:
            state = state_of(before)
            if state is None or (state.is_terminal and not _lets_begin(one, state)):
                self._doom(key, one)
                return
            if not state.is_terminal:
                self._dependants.setdefault(before, []).append(key)
                one.unmet += 1
        if not one.unmet:
            self._met(key, one)

    def remove(self, key: Key) -> None:
        """The job waits no longer, for whatever reason."""
        self._jobs.pop(key, None)

    def ended(self, key: Key, state: State) -> None:
        """A job has ended: count it for those that wait for it."""
        for waiting in self._dependants.pop(key, ()):
            one = self._jobs.get(waiting)
            if one is None or one.unmet <= 0:
                continue
            if not _lets_begin(one, state):
                self._doom(waiting, one)
                continue
            one.unmet -= 1
            if not one.unmet:
                self._met(waiting, one)

    def limits_changed(self) -> None:
        """Another label may have a limit now: sort what waits for room or its turn again."""
        for places in (*self._limited.values(), *self._turns.values()):
            for _, _, key in places:
                one = self._jobs.get(key)
                if one is not None and one.unmet == 0:
                    self._met(key, one)
        doomed = [key for key, one in self._jobs.items() if one.unmet == _DOOMED]
        self._limited, self._turns = {}, {}
        for key in doomed:
            self._doom(key, self._jobs[key])

    def _met(self, key: Key, one: _Waiting) -> None:
        """Every predecessor has ended; only its time, its label and its turn hold it back."""
        heappush(self._later, (one.not_before_ms, key))

    def _doom(self, key: Key, one: _Waiting) -> None:
        one.unmet = _DOOMED
        heappush(self._turns.setdefault(one.party, []), (_AT_ONCE, one.seq, key))

    def take(
        self,
        now_ms: int,
        room: Room,
        *,
        most: int,
        most_cost: int,
        resting: Container[str] = (),
    ) -> list[Key]:
        """Jobs to offer or cancel now; they are handed out once, unless they are added again.

        `most_cost` is for those that are handed out in turns; the last one may exceed it. Parties
        that rest have no turn.
        """
        self._move(now_ms, room)
        taken: list[Key] = []
        for label in list(self._limited):
            left = min(room(label) or 0, most - len(taken))
            while left > 0 and (key := self._next(self._limited, label)) is not None:
                self.remove(key)
                taken.append(key)
                left -= 1
        return taken + self._in_turns(most - len(taken), most_cost, resting)

    def _in_turns(self, most: int, most_cost: int, resting: Container[str]) -> list[Key]:
        taken: list[Key] = []
        spent = 0
        # What each party has had in this round, and who was served longest ago.
        self.served = {}
        turns = [(0, at, one) for at, one in enumerate(self._turns) if one not in resting]
        heapify(turns)
        while turns and len(taken) < most and spent < most_cost:
            had, at, party = turns[0]
            key = self._next(self._turns, party)
            if key is None:
                heappop(turns)
                continue
            cost = self._jobs.pop(key).cost
            taken.append(key)
            self.served[party] = self.served.get(party, 0) + 1
            spent += cost
            heapreplace(turns, (had + cost, at, party))
        for had, _, party in sorted(turns):
            if had and party in self._turns:
                self._turns[party] = self._turns.pop(party)  # behind those that had nothing
        return taken

    def _next(self, queues: dict[str, list[Place]], name: str) -> Key | None:
        """Take the next job from a queue that still waits; None if there is none."""
        places = queues.get(name, [])
        while places:
            _, seq, key = heappop(places)
            one = self._jobs.get(key)
            if one is not None and one.seq == seq and one.unmet <= 0:
                return key
        queues.pop(name, None)
        return None

    def _move(self, now_ms: int, room: Room) -> None:
        while self._later and self._later[0][0] <= now_ms:
            _, key = heappop(self._later)
            one = self._jobs.get(key)
            if one is None or one.unmet:
                continue
            is_limited = one.label and room(one.label) is not None
            queues, name = (self._limited, one.label) if is_limited else (self._turns, one.party)
            heappush(queues.setdefault(name, []), (one.rank, one.seq, key))

    @property
    def next_ms(self) -> int | None:
        """The earliest time for which a job waits whose predecessors have ended."""
        return self._later[0][0] if self._later else None

    @property
    def labels(self) -> frozenset[str]:
        """The labels of jobs that wait for nothing but room."""
        return frozenset(self._limited)

    @property
    def parties(self) -> tuple[str, ...]:
        """Whose jobs wait for nothing but their turn."""
        return tuple(self._turns)


def _lets_begin(one: _Waiting, state: State) -> bool:
    return state is State.SUCCEEDED or one.takes_any_end
