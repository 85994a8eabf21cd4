"""The light worker: follows control ops, the announcements it receives and its own lanes only.

One announcement at a time per free slot: open it, claim the job with compare-and-set, read the
lane back, confirm every control op up to the claim, run the handler, complete, read the accepted
end, acknowledge. Unless the job has certainly ended, the announcement is handed back and not
acknowledged (spec §8): an acknowledgement proves nothing and cannot be undone.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import Struct

from antiphon.core.families.jobs.ops import (
    ClaimBody,
    JobClaim,
    JobOffer,
    JobSchedule,
    JobYield,
    ScheduleBody,
)
from antiphon.core.families.jobs.state import EMPTY, HELD, JobLane
from antiphon.core.families.jobs.subjects import queue_name as queue_name  # noqa: PLC0414 - also found here
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.policy import attempt_end
from antiphon.core.policy.claim_delay import (
    JITTER_S,
    LONGEST_S,
    SIBLING_LEAST_S,
    sibling_delay_s,
)
from antiphon.core.policy.rate_limit import Rate
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, EngineDenied, LogReplaced, LostRace, Unavailable
from antiphon.runtime.log.lane_reader import JobView
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.write_turns import WriteTurns
from antiphon.runtime.log.writer import Intent, Policy
from antiphon.runtime.presence.worker_presence import Traits
from antiphon.runtime.worker.lease_timer import LeaseTimer
from antiphon.runtime.worker.queue_credits import Credits
from antiphon.runtime.worker.queue_selection import selecting
from antiphon.runtime.worker.run_slots import RunSlots
from antiphon.runtime.worker.runs.run_beats import phrase_of
from antiphon.runtime.worker.runs.run_clock import LocalClock, RunClock
from antiphon.runtime.worker.runs.run_figures import RunFigures
from antiphon.runtime.worker.runs.status_sender import StatusSender
from antiphon.runtime.worker.tenure import Claimed, Tenure
from antiphon.runtime.worker.tenure_runner import TenureRunner
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antiphon.core.policy.attempt_end import GivingBack
    from antiphon.core.policy.phrase_run import PhraseRun
    from antiphon.ports import Delivery, WorkQueue
    from antiphon.runtime.executors.executor import Executors

REPLICAS_KEPT: Final = 1_024
"""Replicas that a worker remembers: the newest."""
UNAVAILABLE_NAK_S: Final = 2.0
SOON_S: Final = 0.05
"""When an announcement of a job that is in hand is looked at again; doubled each time."""
LONGEST_PAUSE: Final = 8
"""Doublings of the pause while the engine does not return what an op depends on."""

_K = TypeVar("_K")
_V = TypeVar("_V")

log = LazyLogger(__name__)


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How a worker behaves; all its waits and queues are bounded here."""

    slots: int = 8
    """Handlers that run at the same time."""
    drain_s: float = 20.0
    """Seconds that running jobs get to finish when the worker is asked to stop."""
    rates: dict[str, Rate] = {}
    """How many jobs of a kind may begin here in a period of time; kinds that are not named have no
    limit."""
    battery_low: int = 0
    """Percent of its battery at which the worker pauses; 0: never."""
    traits: Traits = Traits()
    """Labels and weight: which jobs with `requires` it can run, and its share under rendezvous."""


class Worker:
    """Runs announced jobs until it is told to stop."""

    def __init__(
        self,
        session: Session,
        executors: Executors,
        settings: WorkerSettings,
        clock: RunClock | None = None,
    ) -> None:
        """Nothing happens before `run`. Without a clock, beats are counted by this machine's."""
        self.session = session
        self.executors = executors
        self.settings = settings
        self.ready = asyncio.Event()
        self._draining = asyncio.Event()
        self._slots = RunSlots(settings.slots)
        self._credits = Credits(self._free, settings.rates, lambda: session.author.is_ahead)
        self._running: set[asyncio.Task[None]] = set()
        self._in_hand: set[tuple[str, str]] = set()
        self._taken_away: set[str] = set()
        self._replicas: dict[tuple[str, str], str] = {}
        """By parent: the replica that this worker took last."""
        self._left: dict[str, float] = {}
        """Replicas that it leaves to others, and since when."""
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = False
        self.paused: set[GivingBack] = set()
        """Why it takes no jobs now; empty: it does."""
        self._lease_timer = LeaseTimer()
        self._turns = WriteTurns(session, self._spawn)
        self.clock = clock or LocalClock(session)
        self.status_sender = StatusSender(session, self._spawn)
        self._runner = TenureRunner(session, self.clock, self.status_sender, self._slots)

    @property
    def done(self) -> int:
        """Jobs whose accepted end this worker has read."""
        return self._runner.done

    @property
    def is_draining(self) -> bool:
        """Whether it was told to stop."""
        return self._draining.is_set()

    @property
    def figures(self) -> RunFigures:
        """What it counts about its runs."""
        return self._runner.figures

    @property
    def did(self) -> str:
        """The key that it claims with."""
        return self.session.author.did

    @property
    def kinds(self) -> list[str]:
        """The kinds that it runs."""
        return self.executors.kinds

    @property
    def busy(self) -> int:
        """Slots in use."""
        return min(self.held, self.settings.slots)

    @property
    def held(self) -> int:
        """Jobs in its hands: those that run, and short ones that it claimed ahead."""
        return len(self._running)

    async def run(self) -> None:
        """Work until `drain` is called and everything in hand is settled."""
        await self.session.sync_control()
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            pullers = []
            traits, free = self.settings.traits, self._free_slots
            opened = await stack.enter_async_context(
                selecting(self.session, self.executors.kinds, traits, free)
            )
            for kind, priority, queue in opened:
                self._credits.add(queue, kind, priority)
                pullers.append(tasks.create_task(self._pull(queue, kind)))
            follower = tasks.create_task(self._follow_control())
            self._credits.top_up()
            self.ready.set()
            await self._draining.wait()
            await self._wind_down(pullers)
            follower.cancel()

    def _free(self) -> int:
        """How many jobs it would take now.

        0 while its clock is ahead: its claims would only be rejected.
        """
        if self._draining.is_set() or self.paused or self.session.author.is_ahead:
            return 0
        return self._slots.room - self.held

    def _free_slots(self) -> int:
        """What it tells others: without what it would claim ahead."""
        return min(self._free(), self.settings.slots - self.busy)

    async def pause(self, reason: GivingBack, *, within_s: float | None = None) -> None:
        """Take no more jobs, and give back those that do not end within a time (M22).

        `within_s` None is the time that a worker which stops has. `resume` ends it.
        """
        self.paused.add(reason)
        running = set(self._running)
        if running:
            drain_s = self.settings.drain_s if within_s is None else within_s
            _, running = await asyncio.wait(running, timeout=drain_s)
        self._runner.reason = reason
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def resume(self, reason: GivingBack) -> None:
        """Take jobs again, unless there is another reason not to."""
        self.paused.discard(reason)
        self._credits.top_up()

    def drain(self) -> None:
        """Take no more work; finish or give back what is running; then `run` returns."""
        self._draining.set()

    async def _wind_down(self, pullers: list[asyncio.Task[None]]) -> None:
        self._credits.stop()
        for puller in pullers:
            puller.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=self.settings.drain_s)
        self._stopping = True
        self._runner.reason = "drain"
        for task in list(self._running):
            task.cancel()
        while self._running:
            await asyncio.wait(self._running)

    async def _follow_control(self) -> None:
        control = subjects.all_control(self.session.mesh)
        for attempt in count():
            try:
                async with self.session.log.follow(
                    self.session.confirmed, subject=control
                ) as batches:
                    async for batch in batches:
                        await self.session.feed_control(batch, batch[-1].seq)
            except Unavailable:
                # What an op depends on could not be read. Anyone can write such an op: continue.
                await self.session.pause(min(attempt, LONGEST_PAUSE))

    # --- slots --------------------------------------------------------------------------------

    async def _pull(self, queue: WorkQueue, kind: str) -> None:
        while True:
            try:
                delivery = await queue.next()
            except EngineDenied as denied:
                self._credits.remove(queue)
                if self._credits.is_empty:
                    raise
                if kind not in self._taken_away:  # a kind has a queue for each priority
                    self._taken_away.add(kind)
                    log.warning("queue_access_revoked", problem=denied.message, kind=kind)
                return
            try:
                is_welcome = await self._credits.admit(queue, kind)
            except asyncio.CancelledError:
                delivery.nak()
                raise
            if not is_welcome:
                # Granted while there was room, which another delivery has taken since. Hand it
                # back at once: a worker with a free slot gets it; this one asks later.
                delivery.nak()
                self._credits.top_up()
                continue
            self._admit(delivery, kind, queue.loan_s)

    def _admit(self, delivery: Delivery, kind: str, loan_s: float) -> None:
        task = self._spawn(self._attend(delivery, kind, loan_s))
        self._running.add(task)
        task.add_done_callback(self._freed)
        self._credits.top_up_soon()  # there may be more in the queue, and room for it

    def _freed(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._credits.top_up_soon()

    def _jitter_s(self, most_s: float) -> float:
        return self.session.entropy.random() * most_s

    # --- one announcement ---------------------------------------------------------------------

    async def _attend(self, delivery: Delivery, kind: str, loan_s: float) -> None:
        """Handle one announcement; settle it in every case."""
        try:
            await self._answer(delivery, kind, loan_s)
        except Unavailable as away:
            log.warning("engine_unavailable", problem=away.message, kind=kind)
            delivery.nak(UNAVAILABLE_NAK_S + self._jitter_s(UNAVAILABLE_NAK_S))
        except asyncio.CancelledError:
            delivery.nak(self._jitter_s(JITTER_S))
            if not self._stopping:
                raise
        except LogReplaced:
            raise  # it is not about this announcement
        except AntiphonError as problem:
            log.exception("announcement_failed", problem=problem.message, kind=kind)
            delivery.nak(LONGEST_S / 2 + self._jitter_s(LONGEST_S / 2))

    async def _answer(self, delivery: Delivery, kind: str, loan_s: float) -> None:
        opened = self.session.open(delivery.record)
        if not isinstance(opened.op, JobSchedule | JobOffer):
            # Not an op, or not on its own subject: it announces nothing.
            delivery.ack()
            return
        job_id = opened.subject[-64:]
        if (kind, job_id) in self._in_hand:
            # A second claim would count as a renewal: two runs at once under one fence.
            # It may be the offer after a wait whose beginning is just being written here.
            soon_s = SOON_S * 2 ** min(delivery.deliveries, LONGEST_PAUSE)
            delivery.nak(min(soon_s, loan_s) + self._jitter_s(JITTER_S))
            return
        self._in_hand.add((kind, job_id))
        try:
            await self._take(delivery, opened, kind, job_id, loan_s)
        finally:
            self._in_hand.discard((kind, job_id))

    async def _take(
        self, delivery: Delivery, opened: OpenedRecord, kind: str, job_id: str, loan_s: float
    ) -> None:
        """Claim the job and run it, or settle the announcement."""
        lane = self._assumed_lane(delivery, opened)
        body = opened.op.body if isinstance(opened.op, JobSchedule) else None
        if lane is None:
            view = await self.session.read_lane(kind, job_id, at_least=delivery.record.seq)
            lane, body = view.lane, view.submitted_with
            if lane.job is None:
                verdict = view.verdict_of(opened.op_id)
                log.debug("announcement_dropped", kind=kind, job=job_id, verdict=verdict)
                delivery.ack()
                return
        executor = self.executors.find(kind, body.manifest) if body is not None else None
        if executor is None and body is not None:
            # Another worker of this kind may be able to run it.
            delivery.nak(self._jitter_s(LONGEST_S))
            return
        if body is not None and self._leaves_to_others(delivery, body, job_id):
            return
        held = await self._claim(delivery, lane, body)
        if held is None:
            return
        view, boot_s, phrase = held
        job, body = view.lane.job, view.submitted_with
        if job is None or body is None or executor is None:
            raise AntiphonError(f"the schedule of job {job_id} is not on its lane")
        claimed = Claimed(
            delivery=delivery,
            loan_s=loan_s,
            lane=view.lane,
            job=job,
            boot_s=boot_s,
            phrase=phrase or phrase_of(self.clock, job, body),
        )
        tenure = Tenure(
            self.session,
            claimed,
            turns=self._turns,
            lease_timer=self._lease_timer,
            spawn=self._spawn,
        )
        await self._runner.run(tenure, body, executor)

    def _leaves_to_others(self, delivery: Delivery, body: ScheduleBody, job_id: str) -> bool:
        """Whether it is a second replica of one job, and others have the first turns."""
        if body.replica is None:
            return False
        parent, now_s = (body.kind, body.replica.of), self.session.wall.boot_s()
        if self._replicas.get(parent, job_id) != job_id:
            since_s = self._left.get(job_id, now_s)
            _keep_newest(self._left, job_id, since_s)
            delay_s = sibling_delay_s(now_s - since_s)
            if delay_s is not None:
                delivery.nak(delay_s + self._jitter_s(SIBLING_LEAST_S))
                return True
        self._left.pop(job_id, None)
        _keep_newest(self._replicas, parent, job_id)
        return False

    def _assumed_lane(self, delivery: Delivery, opened: OpenedRecord) -> JobLane | None:
        """The lane of a job that was just submitted for the first time: only its schedule.

        It only saves a read. The claim's compare-and-set against nothing shows whether the job's
        own subject was empty, and the whole lane is read back before anything runs.
        """
        if delivery.deliveries != 1 or not isinstance(opened.op, JobSchedule):
            return None
        outcome = self.session.judge_first(opened, EMPTY)
        if outcome is None or not outcome.changed:
            return None
        return cast("JobLane", outcome.lane)

    async def _claim(
        self, delivery: Delivery, lane: JobLane, submitted: ScheduleBody | None
    ) -> tuple[JobView, float, PhraseRun | None] | None:
        """Try to claim the job: the lane as read back, when the claim was drafted, its phrase.

        None means that the claim failed, and that the delivery is settled.
        """
        claimed_boot_s = 0.0
        phrase: PhraseRun | None = None

        def wanted(lane: JobLane) -> Intent | None:
            nonlocal claimed_boot_s, phrase
            claimed_boot_s = self.session.wall.boot_s()
            job = lane.job
            if job is None:
                return None
            if job.state in HELD and job.claimer == self.session.author.did:
                # A tenure that is not running here: its process died, or lost its end. A claim
                # would renew it, and two runs would share one fence. It counts as an expiry.
                return Intent(JobYield, attempt_end.lost(job), lane)
            phrase = phrase_of(self.clock, job, submitted)
            lease_ms = job.lease_ms
            if phrase is not None:
                lease_ms = phrase.lease_ms(
                    self.clock.now_ms(),
                    wanted_ms=lease_ms,
                    least_ms=self.session.control.rules.lease_min_ms,
                    most_ms=job.lease_ms_max,
                )
            body = ClaimBody(kind=job.kind, job=job.id, lease_ms=lease_ms, begin=True)
            return Intent(JobClaim, body, lane)

        intent = wanted(lane)
        if intent is None:
            delivery.ack()
            return None
        policy = Policy(again=lambda now: wanted(now.lane), foresees=True, insists=False)
        try:
            written = await self._turns.write_one(intent, policy)
        except LostRace:
            delivery.nak(self._jitter_s(LONGEST_S))
            return None
        job, verdict = written.lane.job, written.verdict
        if verdict is Verdict.OK and written.intent.op is JobYield:
            return await self._claim(delivery, written.lane, submitted)
        is_held = verdict is Verdict.OK and job and job.claimer == self.session.author.did
        if is_held and written.view is not None:
            return written.view, claimed_boot_s, phrase
        self._runner.stay_away(delivery, job, verdict or Verdict.HELD)
        return None

    # --- one tenure ---------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self._tasks is None:
            raise RuntimeError("spawned outside run()")
        return self._tasks.create_task(work)


def _keep_newest(kept: dict[_K, _V], key: _K, value: _V) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > REPLICAS_KEPT:
        del kept[next(iter(kept))]
