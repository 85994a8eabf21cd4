"""The coordinator's replicas: submits them, and resolves a job when enough of them agree (spec §9).

Runs beside every full node and writes only where the node's own key is the coordinator. Like
`coordinator` it keeps no file: which children there are and what became of them is in the replica.
What it writes is derived by `antiphon.core.derivations.quorum_derivation`, and checked by
everyone who reads it; what a reader of one lane cannot check, full nodes do (`offer_audit`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.derivations.derived_use import DerivedUse, party_of_derived
from antiphon.core.derivations.offer_derivation import MAX_REASON
from antiphon.core.derivations.quorum_turns import QuorumTurns
from antiphon.core.families.jobs.ops import CancelBody, JobCancel, JobResolve, JobSchedule
from antiphon.core.families.jobs.state import Job
from antiphon.core.manifest import job_id
from antiphon.core.record.verdict import ABOUT_TIME, Verdict
from antiphon.errors import Rejected
from antiphon.runtime.coordinator.quorum_children import CANNOT_SUBMIT, Parent, QuorumChildren
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.node.woken_service import WokenService
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.runtime.replica.replica_waits import ReplicaWaits

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.derivations.quorum_derivation import NextStep
    from antiphon.runtime.log.writer import Written
    from antiphon.runtime.node.full_node import Applied, FullNode

LOADED_AT_ONCE: Final = 1_000
JOBS_PER_ROUND: Final = 64
RETRY_S: Final = 0.5
"""How long to wait after something that was written did not take effect."""
RATE_LOOK_S: Final = 0.25
"""How often to look whether there is room for another replica."""
AT_ONCE: Final = 60
RESTS: Final = 3
"""Replicas of one party within a minute after which each job's have to rest for so many times as
long as they took: a burst of the whole rate would keep everybody's records waiting."""
WAITING: Final = "replicas for"
MOST_TOLD: Final = 1_000
DROPPED: Final = "its result is no longer needed"


def delay_in_words(control: Control) -> str:
    """Why replicas wait."""
    rate = control.rules.derived_per_minute
    return (
        f"{rate:,} replicas were submitted for this member within a minute, which is what the rule"
        " derived_per_minute allows; the others wait"
    )


class Quorums(WokenService):
    """Looks after jobs with replicas, if its full node is the coordinator."""

    SERVICE = "quorums"
    WAITS = "quorums_wait"
    AFTER_PROBLEM_S = RETRY_S

    def __init__(self, node: FullNode) -> None:
        """Nothing is known before `run`."""
        super().__init__(node)
        self._children = QuorumChildren(node.replica, node.session)
        self._turns: QuorumTurns | None = None
        """Parents to look at; None while this node is not the coordinator."""
        self._use = DerivedUse()
        """How many replicas were submitted for each party within a minute."""
        self._rests: dict[str, float] = {}
        """By party: until when no more of its replicas are submitted (seconds since boot)."""
        self._told: set[str] = set()
        """Parties whose replicas wait, as people were told."""

    def _applied(self, applied: Applied) -> None:
        if applied.opened.is_control:
            self._woken.set()
            return
        job = applied.after
        if self._turns is None or not isinstance(job, Job) or not applied.verdict.is_accepted:
            return
        is_replica = bool(job.replica_of)
        if is_replica and job.scheduled_seq == applied.record.seq and self._children.counts(job):
            self._use.note(self._party(job), job.scheduled_ms, 1)
        if job.replicas or (is_replica and job.is_terminal):
            self._turns.touch((job.kind, job.replica_of or job.id), self._party(job))
            self._woken.set()

    def _party(self, job: Job) -> str:
        return party_of_derived(self.node.session.control, job)

    async def look(self) -> float | None:
        """One round; seconds until the next one, None: until something happens."""
        session = self.node.session
        control = session.history.newest(session.wall.now_ms())
        if control is None or control.coordinator != session.author.did:
            self._turns = None
            return None
        turns = self._load(control) if self._turns is None else self._turns
        for key in self.guard.aside.due(session.wall.now_ms(), most=JOBS_PER_ROUND // 4):
            job = job_lane(self.node.replica, *key).job
            if job is not None:
                turns.touch(key, self._party(job))
        for key in turns.take(JOBS_PER_ROUND, lambda party: self._room(control, party) > 0):
            self.guard.rest(key)
            is_settled = False
            with self.guard.about(key):
                is_settled = await self._look_at(control, turns, key)
            if is_settled:
                self.guard.drop(key)
            await asyncio.sleep(0)
        self._tell_delays(control, turns.delayed)
        if turns.is_touched or any(self._room(control, party) for party in turns.delayed):
            return 0.0
        next_ms, now_s = self.guard.aside.next_ms, session.wall.boot_s()
        pauses = [] if next_ms is None else [max(0.0, (next_ms - session.wall.now_ms()) / 1000)]
        self._rests = {one: end_s for one, end_s in self._rests.items() if end_s > now_s}
        if turns.delayed:
            pauses.append(min([*self._rests.values(), now_s + RATE_LOOK_S]) - now_s)
        return min(pauses, default=None)

    def _load(self, control: Control) -> QuorumTurns:
        """Begin from the replica, which knows everything that a coordinator before this did."""
        turns = self._turns = QuorumTurns()
        self.guard.begin()
        self._told.clear()
        replica, since = self.node.replica, 0
        replica.flush()  # what is applied later comes through `_applied`
        self._use = self._children.lately(control, self.node.session.now_by_both_clocks_ms())
        while jobs := replica.ask(ReplicaWaits).replicated(since, limit=LOADED_AT_ONCE):
            for job in jobs:
                turns.touch((job.kind, job.id), self._party(job))
            since = jobs[-1].scheduled_seq
        return turns

    # --- how many -----------------------------------------------------------------------------

    def _room(self, control: Control, party: str) -> int:
        """How many replicas may be submitted for a party now."""
        if self._rests.get(party, 0.0) > self.node.session.wall.boot_s():
            return 0
        self._rests.pop(party, None)
        return self._room_in_rate(control, party)

    def _rest(self, party: str, since_s: float) -> None:
        """Whoever had many replicas lately has no more for some times as long as these took."""
        wall, now_ms = self.node.session.wall, self.node.session.now_by_both_clocks_ms()
        if self._use.used(party, now_ms) > AT_ONCE:
            now_s = wall.boot_s()
            self._rests[party] = now_s + RESTS * (now_s - since_s)

    def _room_in_rate(self, control: Control, party: str) -> int:
        rate, now_ms = control.rules.derived_per_minute, self.node.session.now_by_both_clocks_ms()
        return self._use.room(party, 1, rate=rate, now_ms=now_ms)

    def _within_rate(
        self, control: Control, turns: QuorumTurns, parent: Parent, step: NextStep
    ) -> NextStep:
        """The step with as many replicas as the rate lets be submitted; the others wait."""
        job = parent.job
        if not step.submit or job.plan:
            return step
        party = self._party(job)
        is_behind = turns.is_behind(party, job.scheduled_seq)
        room = 0 if is_behind else self._room(control, party)
        if room >= len(step.submit):
            return step
        turns.delay((job.kind, job.id), party, job.scheduled_seq)
        return replace(step, submit=step.submit[:room])

    def _tell_delays(self, control: Control, delayed: Collection[str]) -> None:
        """Say once of each party that its replicas wait, and for what."""
        delayed = [party for party in delayed if not self._room_in_rate(control, party)]
        for party in self._told.difference(delayed):
            self._told.discard(party)
            self.guard.drop((WAITING, party))
        for party in delayed:
            if party not in self._told and len(self._told) < MOST_TOLD:
                self._told.add(party)
                self.guard.note((WAITING, party), delay_in_words(control), whose=party)

    # --- writing ------------------------------------------------------------------------------

    async def _look_at(self, control: Control, turns: QuorumTurns, key: tuple[str, str]) -> bool:
        """Write what follows for one parent; whether it took effect."""
        parent = self._children.parent(*key)
        if parent is None:
            return True
        step = self._within_rate(control, turns, parent, self._children.derive(control, parent))
        begun_s = self.node.session.wall.boot_s()
        written = await self.node.write_all(self._intents(parent, step))
        if step.submit:
            self._rest(self._party(parent.job), begun_s)
        problem = next((one.problem for one in written if one.problem is not None), None)
        if isinstance(problem, Rejected) and step.submit:
            return await self._give_up(parent, problem.message)
        if problem is not None:
            raise problem
        if step.submit:
            return await self._see_refusals(parent, written)
        return all(one.verdict is None or one.verdict.is_accepted for one in written)

    def _intents(self, parent: Parent, step: NextStep) -> list[Intent]:
        job, replica = parent.job, self.node.replica
        lane = job_lane(replica, job.kind, job.id)
        intents = []
        for index in step.submit:
            body = parent.child(index)
            child = job_lane(replica, job.kind, job_id(body.manifest))
            intents.append(Intent(JobSchedule, body, child, deps=parent.named))
        if step.resolve:
            resolved = self._children.resolve_body(parent, step.resolve)
            if resolved is not None:
                intents.append(Intent(JobResolve, resolved, lane))
        if step.give_up:
            reason = CancelBody(kind=job.kind, job=job.id, reason=step.give_up)
            intents.append(Intent(JobCancel, reason, lane))
        for one in step.drop:
            dropped = CancelBody(kind=one.kind, job=one.id, reason=DROPPED)
            intents.append(Intent(JobCancel, dropped, job_lane(replica, one.kind, one.id)))
        return intents

    async def _see_refusals(self, parent: Parent, written: list[Written]) -> bool:
        """Cancel a job whose replicas the log does not take, such as a revoked submitter's."""
        verdicts = [one.verdict for one in written if one.verdict is not None]
        refused = next((one for one in verdicts if not one.is_accepted), None)
        if refused is None:
            # One that existed before wakes nobody: it may have ended already.
            return Verdict.EXISTS not in verdicts
        if refused in ABOUT_TIME or refused is Verdict.PREV:
            return False
        return await self._give_up(parent, refused.in_words)

    async def _give_up(self, parent: Parent, why: str) -> bool:
        """Cancel a job whose replicas cannot be submitted; whether that took effect."""
        job = parent.job
        body = CancelBody(kind=job.kind, job=job.id, reason=f"{CANNOT_SUBMIT}{why}"[:MAX_REASON])
        lane = job_lane(self.node.replica, job.kind, job.id)
        end = await self.node.write(Intent(JobCancel, body, lane))
        return end.verdict is None or end.verdict.is_accepted
