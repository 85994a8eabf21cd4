"""How many jobs the coordinator wrote for each party lately (spec §7.4, §9).

The coordinator writes what follows from a plan on behalf of the plan's author. A few plans can ask
for any number of jobs: a tick every second, or reactions that answer each other. And it writes up
to 32 replicas of a job that somebody submitted. So the rule `derived_per_minute` bounds each of the
two for one party. What counts is on the log: the commit time of each job. A new coordinator counts
them again and needs no other memory.

Replicas of a job that follows from a plan count with that job, and not a second time.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from antiphon.core.authority import parties

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.jobs.state import Job

WINDOW_MS: Final = 60_000
TOLD_KEPT: Final = 1024
"""Parties of which is remembered when an excess was last told."""


class DerivedUse:
    """What was derived for each party within a window before some moment."""

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        """Nothing was derived yet."""
        self.window_ms = window_ms
        self._recent: deque[tuple[int, str, int]] = deque()
        self._used: Counter[str] = Counter()

    def note(self, party: str, at_ms: int, cost: int) -> None:
        """Count a job that was committed at this time; in the order of the log."""
        self._recent.append((at_ms, party, cost))
        self._used[party] += cost

    def used(self, party: str, now_ms: int) -> int:
        """How much was derived for a party in the window that ends now."""
        while self._recent and self._recent[0][0] <= now_ms - self.window_ms:
            _, gone, cost = self._recent.popleft()
            self._used[gone] -= cost
            if not self._used[gone]:
                del self._used[gone]
        return self._used[party]

    def room(self, party: str, cost: int, *, rate: int, now_ms: int, taken: int = 0) -> int:
        """How many more jobs that cost so much may be derived for a party now.

        `taken` is what is about to be written. A job that costs more than the whole rate may be
        derived when nothing else was.
        """
        used = self.used(party, now_ms) + taken
        return max((rate - used) // cost, 0 if used else 1)


class RateAudit:
    """Counts again what a coordinator wrote for each party, by commit times alone."""

    def __init__(self) -> None:
        """Nothing was written yet."""
        self._use = DerivedUse()
        self._rate, self._rate_before, self._rate_since_ms = 0, 0, 0
        self._told_ms: dict[str, int] = {}

    def excess(self, control: Control, party: str, at_ms: int, cost: int) -> str:
        """Count a job; how its party's rate is exceeded, once a minute, or empty.

        What was written before is not counted, nor what the reader may not read: it can only find
        too little.
        """
        self._use.note(party, at_ms, cost)
        # The coordinator's clock may be ahead by the drift, and it may not know a new rule yet.
        used = self._use.used(party, at_ms + control.rules.max_drift_ms)
        allowed = max(self._allowed(control.rules.derived_per_minute, at_ms), cost)
        if used <= allowed or at_ms - self._told_ms.get(party, -WINDOW_MS) < WINDOW_MS:
            return ""
        if len(self._told_ms) >= TOLD_KEPT:
            self._told_ms.clear()
        self._told_ms[party] = at_ms
        return f"{used} jobs were derived for {party} within a minute, and {allowed} are allowed"

    def _allowed(self, rate: int, at_ms: int) -> int:
        """The rate in force, or the one before if that was still in force a minute ago."""
        if rate != self._rate:
            self._rate, self._rate_before, self._rate_since_ms = rate, self._rate, at_ms
        is_new = at_ms - self._rate_since_ms < WINDOW_MS
        return max(rate, self._rate_before if is_new else 0)


def cost_of(replicas: int | None) -> int:
    """What a derived job counts for: itself, and the replicas that are run in its place."""
    return 1 + (replicas or 0)


def party_of_derived(control: Control, job: Job) -> str:
    """For whom a job is on the log: its submitter's or plan's party, or who wrote that."""
    party = parties.party_of(control, job.scheduler, job.call_auth, before=job.scheduled_seq)
    return party or job.scheduler
