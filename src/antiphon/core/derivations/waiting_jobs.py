"""Which waiting jobs the coordinator may offer next (spec §7.3).

An index over the jobs that wait for the coordinator. It is told what each job waits for and which
jobs end, and hands out jobs whose predecessors have all ended and whose time has come: as many of
a label as there is room for, higher priority first, then in the order of the log. A job that
follows a failed one is handed out at once, so that it can be cancelled.

Each edge costs a constant number of steps, however many predecessors a job has.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from antiphon.core.families.jobs.priority import rank
from antiphon.core.families.jobs.state import State

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job

Key = tuple[str, str]
"""A job: its kind and its id."""
Place = tuple[int, int, Key]
"""Where a job stands among those of its label: priority, sequence, key."""


class WaitingJobs:
    """The jobs that wait, by what they wait for."""

    def __init__(self) -> None:
        """Begin empty."""
        self._jobs: dict[Key, Job] = {}
        self._unmet: dict[Key, int] = {}
        self._dependants: dict[Key, list[Key]] = {}
        self._later: list[tuple[int, Key]] = []
        self._ready: dict[str, list[Place]] = {}
        self._doomed: list[Key] = []

    def __len__(self) -> int:
        """How many jobs wait."""
        return len(self._jobs)

    def add(self, job: Job, state_of: Callable[[Key], State | None]) -> None:
        """A job that waits for the coordinator; `state_of` says what is known of others."""
        key = (job.kind, job.id)
        known = self._jobs.get(key)
        if known is not None and known.waiting_seq == job.waiting_seq:
            return
        self._jobs[key] = job
        unmet = 0
        for before in job.awaited:
            state = state_of(before)
            if state is None or (state.is_terminal and not _lets_begin(job, state)):
                self._doomed.append(key)
                return
            if not state.is_terminal:
                self._dependants.setdefault(before, []).append(key)
                unmet += 1
        self._unmet[key] = unmet
        if not unmet:
            self._met(key, job)

    def remove(self, key: Key) -> None:
        """The job waits no longer, for whatever reason."""
        self._jobs.pop(key, None)
        self._unmet.pop(key, None)

    def ended(self, key: Key, state: State) -> None:
        """A job has ended: count it for those that wait for it."""
        for waiting in self._dependants.pop(key, ()):
            job = self._jobs.get(waiting)
            if job is None or waiting not in self._unmet:
                continue
            if not _lets_begin(job, state):
                del self._unmet[waiting]
                self._doomed.append(waiting)
                continue
            self._unmet[waiting] -= 1
            if not self._unmet[waiting]:
                self._met(waiting, job)

    def _met(self, key: Key, job: Job) -> None:
        """Every predecessor has ended; only its time and its label may hold it back."""
        heappush(self._later, (job.not_before_ms, key))

    def take(self, now_ms: int, room: Callable[[str], int], *, most: int) -> list[Job]:
        """Jobs to offer or cancel now; they are handed out once, unless they are added again."""
        self._move(now_ms)
        taken = [job for key in self._doomed[:most] if (job := self._jobs.pop(key, None))]
        del self._doomed[:most]
        for label in list(self._ready):
            places = self._ready[label]
            left = min(room(label) if label else most, most - len(taken))
            while places and left > 0:
                _, _, key = heappop(places)
                job = self._jobs.get(key)
                if job is not None and self._unmet.get(key) == 0:
                    self.remove(key)
                    taken.append(job)
                    left -= 1
            if not places:
                del self._ready[label]
        return taken

    def _move(self, now_ms: int) -> None:
        while self._later and self._later[0][0] <= now_ms:
            _, key = heappop(self._later)
            job = self._jobs.get(key)
            if job is not None and self._unmet.get(key) == 0:
                place = (rank(job.priority), job.waiting_seq, key)
                heappush(self._ready.setdefault(job.concurrency, []), place)

    @property
    def next_ms(self) -> int | None:
        """The earliest time for which a job waits whose predecessors have ended."""
        return self._later[0][0] if self._later else None

    @property
    def labels(self) -> frozenset[str]:
        """The labels of jobs that wait for nothing but room."""
        return frozenset(label for label in self._ready if label)


def _lets_begin(job: Job, state: State) -> bool:
    return state is State.SUCCEEDED or job.after_any_outcome or bool(job.continuations)
