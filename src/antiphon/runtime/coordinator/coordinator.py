"""The coordinator's offers: what waits for other jobs or for room begins when it may (spec §7.3).

Runs beside every full node and writes only where the node's own key is the coordinator. It keeps
no file: what waits, what was offered and what has ended is in the replica, so another node that is
named coordinator goes on from there. What it writes is derived by
`antiphon.core.derivations.offer_derivation`, and `offer_audit` on every full node derives it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Final

from antiphon.core.derivations.derived_use import party_of_derived
from antiphon.core.derivations.limit_use import LimitUse, limit_of
from antiphon.core.derivations.offer_derivation import cannot_be_offered
from antiphon.core.derivations.waiting_jobs import Room, WaitingJobs
from antiphon.core.families.jobs.ops import CancelBody, JobCancel, JobOffer
from antiphon.core.families.jobs.state import Job
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import ABOUT_TIME, LACKS_AUTHORITY, Verdict
from antiphon.errors import Unavailable
from antiphon.runtime.coordinator.predecessors import Predecessors, limit_use_in
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.node.woken_service import WokenService
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.runtime.replica.replica_waits import ReplicaWaits
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.derivations.offer_derivation import Derived
    from antiphon.core.record.op import Op
    from antiphon.ports import Blobs
    from antiphon.runtime.log.writer import Written
    from antiphon.runtime.node.full_node import Applied, FullNode

JOBS_PER_ROUND: Final = 64
"""Short rounds: what comes meanwhile waits for the end of one."""
TRIED_AGAIN: Final = JOBS_PER_ROUND // 4
"""How many of those were tried before: jobs that cannot be offered leave room for others."""
LINKS_PER_ROUND: Final = 1_024
"""How many jobs are looked up for them: whoever waits for many waits longer, and nobody else."""
LOADED_AT_ONCE: Final = 1_000
RESTS: Final = 3
OTHERS_WITHIN_S: Final = 10.0
"""While others have jobs that wait, or had some just now, whoever has more than fits into a round
rests for so many times as long as a round took: each record waits for those before it."""
SHARED: Final = 4
"""And rounds are shorter by so many times."""
RETRY_S: Final = 0.5
"""How long to wait after the engine could not be reached."""
LONGEST_SLEEP_S: Final = 1.0
"""While a time is waited for: clocks may be set, or the machine suspended."""
PASSING: Final = ABOUT_TIME | {
    Verdict.OK,
    Verdict.PREV,
    Verdict.EARLY,
    Verdict.STALE,
    Verdict.NOT_COORDINATOR,
}
"""Verdicts that say nothing about the job: another record came first, or a clock is behind."""

log = LazyLogger(__name__)


class Coordinator(WokenService):
    """Offers and cancels waiting jobs, if its full node is the coordinator."""

    SERVICE = "offers"
    WAITS = "coordinator_waits"
    AFTER_PROBLEM_S = RETRY_S

    def __init__(self, node: FullNode, *, blobs: Blobs | None = None) -> None:
        """`blobs` is where artifacts are stored; None: with the engine."""
        super().__init__(node)
        self.blobs = blobs or node.session.engine.blobs
        self._predecessors = Predecessors(node)
        self._waiting: WaitingJobs | None = None
        """None while this node is not the coordinator."""
        self._use = LimitUse()
        self._rules: object = None
        self._served: dict[str, float] = {}
        """By party: when a job of it was last handed out (seconds since boot)."""
        self._rests: dict[str, float] = {}
        """By party: until when it has no turn."""
        self._to_offer: dict[tuple[str, str], str] = {}
        """The labels of jobs that were handed out and are offered again soon, or may have been
        offered: the engine did not say. They keep their room."""

    def _applied(self, applied: Applied) -> None:
        if applied.opened.is_control:
            self._woken.set()
            return
        waiting, job = self._waiting, applied.after
        if waiting is None or not isinstance(job, Job) or not applied.verdict.is_accepted:
            return
        key = (job.kind, job.id)
        self._use.see(job)
        if job.waits_for_coordinator:
            self._add(job, applied.opened.op)
        else:
            waiting.remove(key)
            self._settle(key)
        if job.concurrency and job.offered_seq == applied.opened.seq:
            self._use.offered(job.concurrency, [job.offered_ms])
        if job.is_terminal:
            waiting.ended(key, job.state)
        self._woken.set()

    async def look(self) -> float | None:
        """One round; seconds until the next one, None: until something happens."""
        control = self._office()
        if control is None:
            self._waiting = None
            return None
        if self._waiting is None:
            # Control ops are known ahead of others: what the coordinator before offered counts.
            await self.node.reached(control.since)
        waiting = await self._load() if self._waiting is None else self._waiting
        if self._rules is not control.rules:
            self._rules = control.rules
            self._use = limit_use_in(self.node, control.rules)
            waiting.limits_changed()
        now_ms = self.node.session.now_by_both_clocks_ms()
        room = partial(self._room, control, now_ms)
        jobs = self._again(room)
        again = len(jobs)
        begun_s = self.node.session.wall.boot_s()
        share = SHARED if len(self._served) > 1 else 1
        most, most_cost = JOBS_PER_ROUND // share, LINKS_PER_ROUND // share
        self._rests = {one: end_s for one, end_s in self._rests.items() if end_s > begun_s}
        jobs += waiting.take(
            now_ms, room, most=max(most - again, 1), most_cost=most_cost, resting=self._rests
        )
        await self._write(jobs)
        self._let_rest(waiting, begun_s)
        has_turn = not self._rests.keys() >= set(waiting.parties)
        if again == TRIED_AGAIN or len(jobs) >= most or has_turn:
            return 0.0
        return self._pause_s(control, waiting, now_ms)

    def _again(self, room: Room) -> list[tuple[str, str]]:
        """Jobs that were set aside and are tried again, if their labels have room by now."""
        found: list[tuple[str, str]] = []
        for key in self.guard.aside.due(self.node.session.wall.now_ms(), most=TRIED_AGAIN):
            job = job_lane(self.node.replica, *key).job
            label = job.concurrency if job is not None else ""
            if label and key not in self._to_offer:
                left = room(label)
                if left is not None and left <= 0:
                    self.guard.rest(key)
                    continue
                self._to_offer[key] = label
            found.append(key)
        return found

    def _let_rest(self, waiting: WaitingJobs, begun_s: float) -> None:
        """Whoever has more jobs than its turn had room for lets others come first."""
        now_s = self.node.session.wall.boot_s()
        served = {**self._served, **dict.fromkeys(waiting.served, now_s)}
        self._served = {one: at_s for one, at_s in served.items() if at_s > now_s - OTHERS_WITHIN_S}
        for party in waiting.parties:
            if party in waiting.served and len(self._served) > 1:
                self._rests[party] = now_s + RESTS * (now_s - begun_s)

    def _office(self) -> Control | None:
        """The present control state, if it names this node as the coordinator."""
        session = self.node.session
        control = session.history.newest(session.wall.now_ms())
        if control is None or control.coordinator != session.author.did:
            return None
        return control

    async def _load(self) -> WaitingJobs:
        """Begin from the replica, which knows everything that a coordinator before this did."""
        node, since = self.node, 0
        waiting = self._waiting = WaitingJobs()
        self._to_offer.clear()
        self.guard.begin()
        node.replica.flush()  # what is applied later comes through `_applied`
        while jobs := node.replica.ask(ReplicaWaits).waiting(since, limit=LOADED_AT_ONCE):
            for job in jobs:
                self._add(job)
                await asyncio.sleep(0)
            since = jobs[-1].waiting_seq
        if len(waiting):
            log.info("coordinating", waiting=len(waiting))
        return waiting

    def _add(self, job: Job, op: Op | None = None) -> None:
        """A job that waits, since `op` if that is at hand."""
        if self._waiting is not None:
            acted_for = self.node.guard.written_for(job.id)
            party = acted_for or party_of_derived(self.node.session.control, job)
            self._waiting.add(job, self._predecessors.states_for(job, op), party)

    def _room(self, control: Control, now_ms: int, label: str) -> int | None:
        limit = limit_of(control.rules, label)
        if limit is None:
            return None
        coming = sum(one == label for one in self._to_offer.values())
        return self._use.room(limit, now_ms) - coming

    def _pause_s(self, control: Control, waiting: WaitingJobs, now_ms: int) -> float | None:
        times = [waiting.next_ms, self.guard.aside.next_ms]
        for label in waiting.labels:
            limit = limit_of(control.rules, label)
            times.append(self._use.next_ms(limit, now_ms) if limit is not None else None)
        known = [max((time - now_ms) / 1000, 0.0) for time in times if time is not None]
        now_s = self.node.session.wall.boot_s()
        known += [max(self._rests.get(one, now_s) - now_s, 0.0) for one in waiting.parties]
        return min((*known, LONGEST_SLEEP_S)) if known else None

    # --- writing ----------------------------------------------------------------------------------

    async def _write(self, jobs: list[tuple[str, str]]) -> None:
        """Write what follows for each job; what does not take effect is tried again later."""
        for key in jobs:
            self.guard.rest(key)  # until its record is applied
        intents: dict[tuple[str, str], Intent] = {}
        for key in jobs:
            job = job_lane(self.node.replica, *key).job
            if job is None or not job.waits_for_coordinator:
                self._settle(key)
                continue
            with self.guard.about(key, whose=job.scheduler):
                derived = await self._predecessors.derive_in_turns(job)
                if derived is None:  # permitted since it was looked at first, and not ended yet
                    self._settle(key)
                    self._add(job)
                    continue
                await self._store(derived)
                intents[key] = self._intent(job, derived)
        for key, one in (await self.write_each(intents)).items():
            await self._see(key, one)

    async def _see(self, key: tuple[str, str], written: Written) -> None:
        """Note how a write ended; a job whose offer the log does not take is cancelled."""
        self._to_offer.pop(key, None)
        job = job_lane(self.node.replica, *key).job
        if job is None or not job.waits_for_coordinator:
            return
        problem, verdict = written.problem, written.verdict
        if isinstance(problem, Unavailable):
            log.warning(self.WAITS, job=job.id, problem=problem.message)
        is_passing = problem is None and (verdict is None or verdict in PASSING)
        if is_passing or isinstance(problem, Unavailable):
            self._to_offer[key] = job.concurrency
            self.guard.drop(key)
            self.guard.rest(key)  # not longer than the first time: it is not the job's fault
            return
        why = problem.message if problem is not None else verdict.in_words if verdict else ""
        if verdict in LACKS_AUTHORITY:  # it is the coordinator that lacks it, not the job
            self.guard.put(key, f"the coordinator may not write it: {why}", whose=self.node.did)
            return
        if isinstance(written.intent.body, CancelBody):
            self.guard.put(key, why, whose=job.scheduler)
            return
        with self.guard.about(key, whose=job.scheduler):
            await self.node.write(self._intent(job, cannot_be_offered(job, why)))

    def _settle(self, key: tuple[str, str]) -> None:
        """Nothing is left to write about a job."""
        self._to_offer.pop(key, None)
        self.guard.drop(key)

    def _intent(self, job: Job, derived: Derived) -> Intent:
        lane = job_lane(self.node.replica, job.kind, job.id)
        op = JobCancel if isinstance(derived.body, CancelBody) else JobOffer
        return Intent(op, derived.body, lane)

    async def _store(self, derived: Derived) -> None:
        """Results that were texts in a completion and are too long for the offer."""
        for of, name in derived.to_store:
            text = self._predecessors.text(of, name)
            if text is not None:
                content = text.encode()
                await self.blobs.put(_once(content), digest=digest(content))


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
