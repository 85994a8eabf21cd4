"""Delayed jobs: offers each one as soon as its time has come (spec §7.3).

The replica knows when the next one begins, so a node sleeps until then and is woken by an earlier
one. Any full node may offer; several take turns by the draw that `overdue_jobs` uses. Turns are
short here: if two nodes offer at once, the log takes one offer and the other costs a try.

The earliest are offered first. Where there are more than a round holds, it also has one job of each
member: whoever delayed thousands to the same time holds up its own.

A node whose clock is ahead of the engine's offers too early once. The rejected record shows it the
engine's time, and it waits for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.ops import JobOffer, OfferBody
from antiphon.core.families.jobs.state import Job
from antiphon.core.record.verdict import LACKS_AUTHORITY, Verdict
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.node.woken_service import WokenService
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_lane
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import Applied, FullNode
    from antiphon.runtime.presence.heartbeat_watch import HeartbeatWatch

OFFERS_PER_ROUND: Final = 128
MOST_SKIPPED: Final = 16_384
"""Jobs, the earliest, that are passed over because this node may not offer them."""
TURN_S: Final = 0.3
"""How long each turn waits for the one before: so late is a job whose first node just died."""
RETRY_S: Final = 0.25
"""How long a job is left alone after an offer of it did not take effect."""
EARLY_S: Final = 0.01
"""How long after an offer that was too early: by then the engine's time is known."""
SHORTEST_SLEEP_S: Final = 0.001
"""A difference of two times may be too small to be slept: then the turn would never come."""
LONGEST_SLEEP_S: Final = 1.0
"""The clocks may be set, or the machine suspended, while a node sleeps."""

log = LazyLogger(__name__)


class DelayedJobs(WokenService):
    """Runs beside a full node and offers delayed jobs on time."""

    SERVICE = "delayed jobs"
    WAITS = "delayed_jobs_wait"
    AFTER_PROBLEM_S = LONGEST_SLEEP_S

    def __init__(self, node: FullNode, watch: HeartbeatWatch) -> None:
        """`watch` says whose turn it is."""
        super().__init__(node)
        self.watch = watch
        self._since: dict[tuple[str, str], float] = {}
        """Which jobs are due, and since when this node counts its turns."""
        self._skipped = 0
        self._after = ""
        """Up to where members had their turn."""

    def _applied(self, applied: Applied) -> None:
        job = applied.after
        if isinstance(job, Job) and job.waits_for_time_alone:
            self._woken.set()

    async def look(self) -> float:
        """One round; how many seconds until the next one."""
        replica, boot_s = self.node.replica, self.node.session.wall.boot_s
        now_ms, now_s = self.node.session.now_by_both_clocks_ms(), boot_s()
        jobs = replica.ask(ReplicaJobs)
        due = jobs.beginning(now_ms, limit=OFFERS_PER_ROUND, skip=self._skipped)
        is_full, others = len(due) == OFFERS_PER_ROUND, list[Job]()
        if is_full:
            others, self._after = jobs.first_of_each("begins", now_ms, after=self._after)
        before, self._since = self._since, {}
        for job in (*due, *others):
            self._since[job.kind, job.id] = before.get((job.kind, job.id), now_s)
        known = {(job.kind, job.id): job for job in (*others, *due)}
        ours = [job for key, job in known.items() if self._turn_s(key) <= now_s]
        refused = await self._offer(ours)
        if is_full:
            self._skipped = (self._skipped + refused) % MOST_SKIPPED
            return 0.0 if refused < len(ours) else RETRY_S
        self._skipped = 0
        pauses_s = [self._turn_s(key) - boot_s() for key in self._since]
        next_ms = replica.ask(ReplicaJobs).next_beginning(now_ms)
        if next_ms is not None:
            pauses_s.append((next_ms - now_ms) / 1000)
        return max(SHORTEST_SLEEP_S, min((*pauses_s, LONGEST_SLEEP_S)))

    def _turn_s(self, key: tuple[str, str]) -> float:
        """When this node should offer a job, on the clock that is never set."""
        return self._since[key] + self.watch.turn(*key, "") * TURN_S

    async def _offer(self, jobs: list[Job]) -> int:
        """Offer jobs; how many of the offers did not take effect."""
        results = await self.write_each({(job.kind, job.id): self._intent(job) for job in jobs})
        now_s = self.node.session.wall.boot_s()
        refused = 0
        for job in jobs:
            key = job.kind, job.id
            verdict = results[key].verdict if key in results else None
            if verdict is Verdict.OK:
                del self._since[key]
                continue
            refused += 1
            self._since[key] = now_s + _pause_s(verdict)
        problems = (one.problem for one in results.values())
        problem = next((one for one in problems if one is not None), None)
        if problem is not None:
            log.warning("delayed_jobs_wait", jobs=refused, problem=problem.message)
        return refused

    def _intent(self, job: Job) -> Intent:
        lane = job_lane(self.node.replica, job.kind, job.id)
        return Intent(JobOffer, OfferBody(kind=job.kind, job=job.id, priority=job.priority), lane)


def _pause_s(verdict: Verdict | None) -> float:
    """How long a job is left alone after an offer of it with this verdict."""
    if verdict is Verdict.EARLY:
        return EARLY_S
    return LONGEST_SLEEP_S if verdict in LACKS_AUTHORITY else RETRY_S
