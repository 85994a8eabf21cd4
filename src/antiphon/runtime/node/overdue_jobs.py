"""Overdue jobs: expires what outlasted its deadline, offers again what no worker answered.

Announcements can be lost for good (an acknowledgement is not fenced, spec §8), and holders can
die. Any full node repairs both from its replica. Several of them take turns, by a draw for each
job, so that not all of them write at once. If they disagree about who is online, no harm is done:
every write is a compare-and-set. Jobs are offered again with doubling pauses, a few per round at
most, and not while the job's queue is moving towards it, so that a long backlog does not become a
flood of announcements.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.ops import ExpireBody, JobExpire, JobOffer, OfferBody
from antiphon.core.families.jobs.state import HELD, Job, State
from antiphon.core.families.jobs.table import standing
from antiphon.core.policy import selection
from antiphon.core.record.verdict import LACKS_AUTHORITY, Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.attention.item_guard import ItemGuard
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.node.delayed_jobs import DelayedJobs
from antiphon.runtime.node.roster import Roster
from antiphon.runtime.presence.worker_presence import Traits, WorkerPresence
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_lane
from antiphon.runtime.services import beside
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.runtime.log.writer import Written
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.runtime.presence.heartbeat_watch import HeartbeatWatch
    from antiphon.runtime.replica.replica_jobs import Moment

EXPIRIES_PER_ROUND: Final = 100
CALLS_PER_ROUND: Final = 32
HELD_PER_ROUND: Final = 10_000
ROUND_S: Final = 1.0
TURN_S: Final = 2.5
"""How long each turn waits for the one before: longer than it takes to read, write and see it."""
MAX_VOICES: Final = 256

log = LazyLogger(__name__)


class OverdueJobs:
    """Runs beside a full node and writes what is due."""

    def __init__(self, node: FullNode, watch: HeartbeatWatch, *, round_s: float = ROUND_S) -> None:
        """`watch` says whose turn it is; `round_s` is the average wait between two rounds."""
        self.node = node
        self.roster = Roster(node.session, node.replica)
        self.round_s = round_s
        self.watch = watch
        self._looked_at = (0, 0)
        self._voices: dict[str, WorkerPresence] = {}
        self.guard = ItemGuard[tuple[str, str]]("leases", node.session, node.replica.attention)
        self._after: dict[Moment, str] = {}
        """Up to where members had their turn."""
        self._noticed: dict[tuple[str, str, str], float] = {}
        """What is due, and since when we know."""

    async def run(self) -> None:
        """Look for overdue and unanswered jobs until cancelled."""
        await self.node.ready.wait()
        self.guard.begin()
        async with beside(DelayedJobs(self.node, self.watch).run()):
            while True:
                chance = self.node.session.entropy.random()
                await asyncio.sleep(self.round_s * (0.5 + chance))
                await self.node.ready.wait()
                try:
                    await self.look()
                except AntiphonError as problem:
                    log.warning("overdue_jobs_wait", problem=problem.message)

    async def look(self) -> None:
        """One round: first what is overdue, then what is unanswered."""
        session = self.node.session
        now_ms = session.wall.now_ms()
        noticed, self._noticed = self._noticed, {}
        for job in self._revoked():
            with self.guard.about((job.kind, job.id)):
                await self._call_again(job)
        aside = len(self.guard.aside)
        overdue = self.roster.overdue(limit=EXPIRIES_PER_ROUND + aside)
        hybrid_ms = session.author.now().wall_ms
        for job in self._with_others(overdue, "due", hybrid_ms, EXPIRIES_PER_ROUND + aside):
            if not self._is_tried(job, job.fence, noticed):
                continue
            with self.guard.about((job.kind, job.id)):
                # A tenure whose authority was revoked has nothing left to expire but its job.
                if (await self._expire(job) and job.state in HELD) or self._is_open(job):
                    await self._call_again(job)
        unanswered = self.node.replica.ask(ReplicaJobs).unanswered(
            now_ms, limit=CALLS_PER_ROUND + aside
        )
        for job in self._with_others(unanswered, "recall", now_ms - 1, CALLS_PER_ROUND + aside):
            if self._is_still_queued(job, now_ms) or not self._is_tried(job, "", noticed):
                continue
            with self.guard.about((job.kind, job.id)):
                await self._call_again(job)
                await self._point_to(job)

    def _with_others(
        self, jobs: list[Job], moment: Moment, now_ms: int, most: int
    ) -> Iterable[Job]:
        """If these are all that a round holds, one of each member before them.

        Whoever has thousands of jobs that nobody answers holds up its own.
        """
        if len(jobs) < most:
            return jobs
        found, self._after[moment] = self.node.replica.ask(ReplicaJobs).first_of_each(
            moment, now_ms, after=self._after.get(moment, "")
        )
        return {(job.kind, job.id): job for job in (*found, *jobs)}.values()

    def _is_tried(self, job: Job, fence: str, noticed: dict[tuple[str, str, str], float]) -> bool:
        """Whether this node does something about a job now."""
        key = (job.kind, job.id)
        return not self.guard.rests(key) and self._is_our_turn(job, fence, noticed)

    def _is_our_turn(
        self, job: Job, fence: str, noticed: dict[tuple[str, str, str], float]
    ) -> bool:
        """Whether this node writes what is due now, or leaves it to another for a while longer."""
        now_s = self.node.session.wall.boot_s()
        key = (job.kind, job.id, fence)
        since_s = self._noticed[key] = noticed.get(key, now_s)
        turn = self.watch.turn(job.kind, job.id, fence)
        return now_s - since_s >= turn * TURN_S

    def _revoked(self) -> list[Job]:
        """Held jobs whose holder lost its authority since the last round."""
        session = self.node.session
        state = (session.control.since, session.history.grants.revocations)
        if state == self._looked_at:
            return []
        self._looked_at = state
        held = self.node.replica.ask(ReplicaJobs).jobs(states=HELD, limit=HELD_PER_ROUND)
        return [job for job in held if self._is_open(job)]

    def _is_open(self, job: Job) -> bool:
        """Whether any worker may claim it, revocations included."""
        return self._standing(job).state is State.PENDING

    def _standing(self, job: Job) -> Job:
        """The job as it counts now: a holder that lost its authority holds it no longer."""
        node = self.node
        lane = job_lane(node.replica, job.kind, job.id)
        return standing(node.session.control, lane.job, node.applied + 1) or job

    def _is_still_queued(self, job: Job, now_ms: int) -> bool:
        """Whether the job's turn has not come yet: its queue is moving, and has not reached it."""
        lane = job_lane(self.node.replica, job.kind, job.id)
        reached, at_ms = self.node.passed.get((job.kind, job.priority), (0, 0))
        is_moving = now_ms - at_ms < self.node.session.control.rules.offer_after_ms
        return is_moving and lane.call_tail > reached

    async def _expire(self, job: Job) -> bool:
        """Write the expiry; True if the log accepted ours."""
        # Who took a question may have lost its authority: nothing makes it pending on the log, as
        # an offer does for other jobs, and it still has to end at its time.
        now = self._standing(job)
        body = ExpireBody(kind=job.kind, job=job.id, fence=now.fence if now.state in HELD else None)
        lane = job_lane(self.node.replica, job.kind, job.id)
        return self._settled(job, await self.node.write(Intent(JobExpire, body, lane)))

    async def _call_again(self, job: Job) -> None:
        lane = job_lane(self.node.replica, job.kind, job.id)
        if lane.job is None or not self._is_open(job):
            return
        if lane.job.question is not None:
            # It is open without that. What left it so is looked at again until its time, and must
            # not take the place of others in each round.
            self.guard.rest((job.kind, job.id))
            return
        body = OfferBody(kind=job.kind, job=job.id, priority=lane.job.priority)
        self._settled(job, await self.node.write(Intent(JobOffer, body, lane)))

    def _settled(self, job: Job, written: Written) -> bool:
        """Whether a write took effect; a job of a kind that is not ours to end rests."""
        key = (job.kind, job.id)
        if written.verdict in LACKS_AUTHORITY:
            self.guard.rest(key)
        else:
            self.guard.drop(key)
        return written.verdict is Verdict.OK

    async def _point_to(self, job: Job) -> None:
        """Tell a kind's workers about a job that the engine's queue may give to no honest worker.

        A worker that takes announcements without answering them can take any number, repeats
        included.
        """
        session = self.node.session
        if selection.method(session.control, job.kind) == "queue":
            lane = job_lane(self.node.replica, job.kind, job.id)
            await self._voice(job.kind).point_to(job.id, lane.call_tail)

    def _voice(self, kind: str) -> WorkerPresence:
        """One sender per kind: the timestamps of its messages must increase."""
        if kind not in self._voices:
            if len(self._voices) >= MAX_VOICES:
                self._voices.clear()
            self._voices[kind] = WorkerPresence(self.node.session, kind, Traits())
        return self._voices[kind]
