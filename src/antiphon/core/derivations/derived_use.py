"""How many jobs were derived from each party's plans lately (spec §7.4).

The coordinator writes what follows from a plan on behalf of the plan's author. A few plans can ask
for any number of jobs: a tick every second, or reactions that answer each other. So the rule
`derived_per_minute` bounds what is derived for one party. What counts is on the log: the commit
time of each derived job. A new coordinator counts them again and needs no other memory.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from antiphon.core.authority import parties

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.jobs.state import Job

WINDOW_MS: Final = 60_000


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


def cost_of(replicas: int | None) -> int:
    """What a derived job counts for: itself, and the replicas that are run in its place."""
    return 1 + (replicas or 0)


def party_of_derived(control: Control, job: Job) -> str:
    """For whom a job was derived: its plan's party, or its author where that cannot be told."""
    party = parties.party_of(control, job.scheduler, job.call_auth, before=job.scheduled_seq)
    return party or job.scheduler
