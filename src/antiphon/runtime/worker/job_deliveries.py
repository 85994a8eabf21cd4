"""What a worker does with a delivery, from pull to acknowledgement; to be read from top to bottom.

    pull      a queue hands over an announcement, and there is room for its job
    open      it is a schedule or an offer, of a job that is not in hand already
    claim     by compare-and-set on the job's own subject, and the lane is read back (`job_claims`)
    run       in a slot, under the lease that the tenure renews
    prove     what became of it: a completion with its proof, or a yield
    complete  written under the fence, and read back
    settle    acknowledged if the log shows that the job has ended, else handed back

Unless the job has certainly ended, the announcement is handed back and not acknowledged (spec §8):
an acknowledgement proves nothing and cannot be undone.

Plain short jobs go the same way many at a time (`plain_jobs`), and come back here with whatever is
not as hoped. What stands apart: when the lease is renewed or lost (`tenure`), what a handler tells
and asks (`runs.job_run`), and what follows when its work does not end by itself (`runs.run_work`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from antiphon.core.derivations.given_results import with_results
from antiphon.core.families.jobs.ops import (
    JobComplete,
    JobOffer,
    JobOp,
    JobSchedule,
    JobYield,
    YieldBody,
)
from antiphon.core.policy import attempt_end
from antiphon.core.policy.claim_delay import (
    JITTER_S,
    LONGEST_S,
)
from antiphon.core.record.verdict import Verdict
from antiphon.errors import (
    AntiphonError,
    EngineDenied,
    LogReplaced,
    StaleFence,
    Unavailable,
)
from antiphon.runtime.executors import proof_writer
from antiphon.runtime.executors.children import key_of, open_until_ms
from antiphon.runtime.executors.executor import GivenBack, Ran
from antiphon.runtime.outbox.outbox_item import Complete, Yield
from antiphon.runtime.worker.job_claims import JobClaims
from antiphon.runtime.worker.plain_jobs import Leaving, PlainJob, PlainJobs
from antiphon.runtime.worker.runs import run_work
from antiphon.runtime.worker.runs.job_run import JobRun
from antiphon.runtime.worker.runs.kept_output import with_output
from antiphon.runtime.worker.runs.run_figures import RunFigures
from antiphon.runtime.worker.tenure import Leases, Tenure, TenureLost
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antiphon.ports import Delivery, WorkQueue
    from antiphon.runtime.executors.executor import Executor, Executors
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.log.writer import Begun
    from antiphon.runtime.outbox.outbox_item import OutboxItem
    from antiphon.runtime.outbox.worker_outbox import WorkerOutbox
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.worker.queue_credits import Credits
    from antiphon.runtime.worker.run_slots import RunSlots
    from antiphon.runtime.worker.runs.status_sender import StatusSender

UNAVAILABLE_NAK_S: Final = 2.0
SOON_S: Final = 0.05
"""When an announcement of a job that is in hand is looked at again; doubled each time."""
SOON_DOUBLINGS: Final = 8
TURN_LOOK_S: Final = 0.02
"""How often a worker that stops looks whether a turn has ended that writes for plain jobs."""
LATER_S: Final = 3600.0
"""How long to try to write the end of a job that kept running through a disconnect."""
LONGEST_PAUSE: Final = 6
"""Doublings of the pause between two tries."""

log = LazyLogger(__name__)


class JobDeliveries:
    """The deliveries of one worker."""

    def __init__(
        self,
        executors: Executors,
        leases: Leases,
        slots: RunSlots,
        credits_: Credits,
        clock: BeatClock,
        status: StatusSender,
    ) -> None:
        """Nothing is delivered yet."""
        self.session: Session = leases.session
        self._leases = leases
        self._slots = slots
        self._credits = credits_
        self._clock = clock
        self._status = status
        self.outbox: WorkerOutbox | None = None
        """Keeps what jobs make that go on without the engine."""
        self.figures = RunFigures()
        self.done = 0
        """Jobs whose accepted end was read."""
        self.running: dict[asyncio.Task[None], None] = {}
        """One for each delivery in hand; in order: the same seed must give the same run."""
        self.reason: attempt_end.GivingBack = "drain"
        """Why work is given back that its worker cancels."""
        self.is_stopping = False
        self._in_hand: set[tuple[str, str]] = set()
        self._claims = JobClaims(executors, leases, clock)
        self._taken_away: set[str] = set()
        self._plain = PlainJobs(executors, leases, slots, self.figures)
        self._plain.go_on = self._go_on
        self._plain.settled = self._plain_settled

    # --- pull -------------------------------------------------------------------------------------

    async def pull(self, queue: WorkQueue, kind: str) -> None:
        """Take what a queue hands over, as much as there is room for, until that is cancelled."""
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
            self._take(delivery, kind, queue.loan_s)
            while self._credits.admits_now(kind) and (more := queue.next_now()) is not None:
                self._take(more, kind, queue.loan_s)
            self._leases.turns.flush()  # claims go out before the next request for jobs
            self._credits.top_up_soon()  # there may be more in the queue, and room for it

    def _take(self, delivery: Delivery, kind: str, loan_s: float) -> None:
        """Begin with an announcement: with others if it is of a plain job, else alone."""
        plain = self._plain.plain(delivery, kind, loan_s)
        if plain is None or plain.key in self._in_hand:
            self._begin(partial(self._answer, delivery, kind, loan_s), delivery, kind)
        else:
            self._in_hand.add(plain.key)
            self._plain.begin(plain)

    def _begin(self, work: Callable[[], Awaitable[None]], delivery: Delivery, kind: str) -> None:
        attending = self._attend(work, delivery, kind)
        try:
            task = self._leases.spawn(attending)
        except RuntimeError:  # the worker has failed: others get its jobs when their leases end
            attending.close()
            return
        self.running[task] = None
        task.add_done_callback(self._freed)

    def _freed(self, task: asyncio.Task[None]) -> None:
        self.running.pop(task, None)
        self._credits.top_up_soon()

    async def _attend(
        self, work: Callable[[], Awaitable[None]], delivery: Delivery, kind: str
    ) -> None:
        """Handle one announcement; settle it in every case."""
        try:
            await work()
        except Unavailable as away:
            log.warning("engine_unavailable", problem=away.message, kind=kind)
            delivery.nak(UNAVAILABLE_NAK_S + self._claims.jitter_s(UNAVAILABLE_NAK_S))
        except asyncio.CancelledError:
            delivery.nak(self._claims.jitter_s(JITTER_S))
            if not self.is_stopping:
                raise
        except LogReplaced:
            raise  # it is not about this announcement
        except AntiphonError as problem:
            log.exception("announcement_failed", problem=problem.message, kind=kind)
            delivery.nak(LONGEST_S / 2 + self._claims.jitter_s(LONGEST_S / 2))

    # --- open, and the order of the rest ----------------------------------------------------------

    async def _answer(self, delivery: Delivery, kind: str, loan_s: float) -> None:
        """The steps of a delivery. The one that is its last settles it."""
        opened = self.session.open(delivery.record)
        if not isinstance(opened.op, JobSchedule | JobOffer):
            # Not an op, or not on its own subject: it announces nothing.
            delivery.ack()
            return
        job = (kind, opened.subject[-64:])
        if job in self._in_hand:
            # A second claim would count as a renewal: two runs at once under one fence.
            # It may be the offer after a wait whose beginning is just being written here.
            soon_s = SOON_S * 2 ** min(delivery.deliveries, SOON_DOUBLINGS)
            delivery.nak(min(soon_s, loan_s) + self._claims.jitter_s(JITTER_S))
            return
        self._in_hand.add(job)
        try:
            claimed = await self._claims.of_announcement(delivery, opened, job, loan_s)
            if claimed is None:
                return
            tenure, executor = claimed
            await self._work(JobRun(tenure, self._clock, self._status), executor)
        finally:
            self._in_hand.discard(job)

    async def _work(self, run: JobRun, executor: Executor) -> None:
        """The steps that follow the claim."""
        if not await self._has_slot(run):
            return
        ran = await self._run(run, executor)
        if ran is None:
            return
        # The result is worth a few tries: as long as the lease lasts, and longer if the handler
        # keeps running without one.
        patience_s = max(run.tenure.lease_left_s, LATER_S if executor.goes_on else 0.0)
        until_s = self.session.wall.boot_s() + patience_s
        try:
            op_type, end = await self._prove(run, ran)
        except StaleFence:
            self._claims.stay_away(run.tenure.delivery, run.tenure.job, Verdict.HELD)
            return
        is_accepted = await self._complete(run, op_type, end, until_s=until_s)
        self.figures.over(run, ran, is_accepted=is_accepted)

    # --- plain jobs -------------------------------------------------------------------------------

    def _go_on(self, leaving: Leaving) -> None:
        """A plain job is one no more: carry on with it, from where it stands."""
        one = leaving.one
        self._begin(partial(self._rest_of, leaving), one.delivery, one.key[0])

    async def _rest_of(self, leaving: Leaving) -> None:
        one, end = leaving.one, leaving.one.end
        try:
            if leaving.claim is not None:
                tenure = await self._claims.claim(
                    one.delivery, one.lane, one.body, one.loan_s, leaving
                )
            else:
                tenure = Tenure(
                    self._leases,
                    one.delivery,
                    one.lane,
                    one.body,
                    boot_s=one.boot_s,
                    loan_s=one.loan_s,
                )
            if tenure is None:
                return
            run = JobRun(tenure, self._clock, self._status)
            one.goes_on_as(run)
            if end is None:
                task, executor = one.task, one.executor
                await self._work(run, executor if task is None else executor.goes_on_with(task))
                return
            until_s = self.session.wall.boot_s() + tenure.lease_left_s
            is_accepted = await self._complete(
                run, JobComplete, end, until_s=until_s, begun=leaving.end
            )
            ran = Ran(runner=proof_writer.python_runner(), outputs=end.outputs)
            self.figures.over(run, ran, is_accepted=is_accepted)
        finally:
            self._slots.leave(one)
            self._in_hand.discard(one.key)

    def _plain_settled(self, one: PlainJob) -> None:
        self.done += 1
        self._in_hand.discard(one.key)
        self._credits.top_up_soon()

    @property
    def held(self) -> int:
        """Jobs in hand."""
        return len(self.running) + len(self._plain.jobs)

    async def finish(
        self, within_s: float, reason: attempt_end.GivingBack, *, for_good: bool = False
    ) -> None:
        """Let what is in hand end within a time, and give back the rest."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        self._plain.close()
        await asyncio.sleep(0)  # a task that is cancelled before it begins settles nothing
        while self.held and (left_s := until_s - loop.time()) > 0:
            await self._some_end(left_s)
        self.reason, self.is_stopping = reason, for_good
        told: set[asyncio.Task[None]] = set()
        while self.held:
            # What a turn is writing for plain jobs comes out of it as tasks.
            for task in [one for one in self.running if one not in told]:
                told.add(task)
                task.cancel()
            await self._some_end(TURN_LOOK_S if self._plain.jobs else None)

    def take_plain_jobs(self) -> None:
        """After `finish`: take them again."""
        self._plain.open()

    async def _some_end(self, timeout_s: float | None) -> None:
        if self.running:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait(self.running, timeout=timeout_s, return_when=first)
        else:
            await asyncio.sleep(min(timeout_s or 0.0, TURN_LOOK_S))

    # --- run --------------------------------------------------------------------------------------

    async def _has_slot(self, run: JobRun) -> bool:
        """Wait for the slot of a job that was claimed ahead; without one it is given back."""
        try:
            await self._slots.take(run.slot)
        except TimeoutError:
            await self._give_back(run, "other")
        except asyncio.CancelledError:
            await self._give_back(run, self.reason)
        else:
            return True
        return False

    async def _run(self, run: JobRun, executor: Executor) -> Ran | None:
        """Run the job under its lease; None if that left no result, and the delivery is settled."""
        tenure, job = run.tenure, run.job
        ran: Ran | None = None
        task = asyncio.current_task()
        try:
            if run.call is None:
                run.began_s = self.session.wall.boot_s()
                self.figures.begun(job)
            assignment = run_work.assignment_of(run)
            work = asyncio.ensure_future(run_work.work_of(run, executor, assignment))
            if run.call is not None:  # also if the work is cancelled before it has begun
                work.add_done_callback(run.end_call)
            limit_s: float = run.body.manifest.timeout
            limit_s += executor.grace_s if limit_s else 0
            tenure.keep(work, limit_s=limit_s, goes_on=executor.goes_on)
            if executor.goes_on and self.outbox is not None:
                tenure.keep_in(self.outbox)
            run.keep(work, task.cancel if task is not None else work.cancel)
            ran = await run_work.result_of(run, work, executor, assignment)
            if ran is None:
                await self._give_up(run)
        except GivenBack as why:
            log.info("job_given_back", kind=job.kind, job=job.id, why=str(why))
            await self._give_back(run, "other")
        finally:
            self._slots.leave(run.slot)
            run.ended_s = self.session.wall.boot_s()
            if run.gave_up and task is not None:
                task.uncancel()
            tenure.release()
            run.release()
        if ran is None:
            self.figures.unfinished(run)
            if run.model_calls is not None:
                run.model_calls.close()
        return ran

    async def _give_up(self, run: JobRun) -> None:
        """A run without a result: its worker stops, or the job is not this worker's any more."""
        tenure = run.tenure
        if tenure.lost is None:
            run.ask_for_checkpoint()
            await self._give_back(run, self.reason)
            return
        # A cancelled job is not a problem of the worker.
        tell = log.debug if tenure.job.outcome == "cancelled" else log.warning
        verdict = tenure.lost.verdict.value
        tell("tenure_lost", job=tenure.job.id, verdict=verdict, **tenure.standstill)
        self._claims.stay_away(tenure.delivery, tenure.job, Verdict.HELD)

    async def _give_back(self, run: JobRun, reason: attempt_end.GivingBack) -> None:
        await run.escalated()
        checkpoint = await run.last_checkpoint()
        held = run.tenure.held
        if run.model_calls is not None:
            with suppress(AntiphonError):  # what is stored helps nobody but readers
                await run_work.accounted(run.model_calls, run.tenure)
        end = attempt_end.giving_back(held, reason, checkpoint)
        await self._complete(run, JobYield, end, leaves=True)

    # --- prove ------------------------------------------------------------------------------------

    async def _prove(self, run: JobRun, ran: Ran) -> tuple[type[JobOp], attempt_end.Ending]:
        """What to write of the run's end: with the proof where that is the end of the job."""
        tenure, body = run.tenure, run.body
        await run.escalated()
        fault, calls = ran.fault, None
        if run.model_calls is not None:
            calls = await run_work.accounted(run.model_calls, tenure)
        if isinstance(calls, attempt_end.Fault):
            # No completion would be accepted without them.
            chance = self.session.entropy.random()
            return JobYield, attempt_end.failed(tenure.held, body.retry, calls, chance=chance)
        run.speak("done" if fault is None else "failed")
        goes_on = fault is not None or bool(ran.after)
        checkpoint = await run.last_checkpoint() if goes_on else None
        if ran.after:
            keys = tuple(map(key_of, ran.after))
            until_ms = open_until_ms(ran.after)
            return JobYield, attempt_end.waiting(tenure.held, keys, checkpoint, until_ms)
        if fault is not None and not self.session.control.rules.tracebacks:
            failure = structs.replace(fault.failure, traceback="")
            fault = structs.replace(fault, failure=failure)
        end = attempt_end.after(
            tenure.held,
            body.retry,
            outputs=ran.outputs,
            fault=fault,
            exit_code=ran.exit,
            checkpoint=checkpoint,
            chance=self.session.entropy.random(),
        )
        if run.kept is not None:
            end = await with_output(end, run.kept, run.artifacts)
        if isinstance(end, YieldBody):
            return JobYield, end
        if calls is not None:
            end = calls.on(end)
        usage = run.usage(end.outputs)
        proven = proof_writer.Run(
            manifest=body.manifest,
            inputs=with_results(body.manifest, tenure.results)[0].inputs,
            usage=usage,
            cost=run.cost(usage),
            runner=ran.runner,
            isolation=ran.isolation,
            environment=ran.environment,
        )
        return JobComplete, proof_writer.prove(self.session, end, proven)

    # --- complete, and settle ---------------------------------------------------------------------

    async def _complete(
        self,
        run: JobRun,
        op_type: type[JobOp],
        end: attempt_end.Ending,
        *,
        until_s: float = 0.0,
        begun: Begun | None = None,
        leaves: bool = False,
    ) -> bool:
        """Commit the end; whether it was accepted. Acknowledge only a job that the log shows ended.

        While the engine does not answer it tries again, until `until_s` on the clock that runs in
        suspend; a run that has an outbox does that on disk, and is not waited for if its worker
        `leaves` it. `begun` is how far a turn has written it already.
        """
        sent: list[Draft] = []
        tenure, attempt = run.tenure, 0
        if isinstance(end, YieldBody) and (cost := run.cost(run.usage(()))) is not None:
            end = structs.replace(end, cost=cost)
        verdict: Verdict | None = None
        while verdict is None:
            try:
                verdict, begun = await _write(tenure, op_type, end, begun, sent), None
            except TenureLost as lost:
                _tell_refusal(tenure, op_type, lost.verdict)
                self._claims.stay_away(tenure.delivery, tenure.job, Verdict.HELD)
                return False
            except EngineDenied:
                raise
            except Unavailable:
                kept = _keep(tenure, end, sent)
                if kept is not None:
                    return await self._settle_kept(tenure, kept, leaves=leaves)
                if self.session.wall.boot_s() >= until_s:
                    raise
                await self.session.pause(attempt)
                attempt = min(attempt + 1, LONGEST_PAUSE)
        if not verdict.is_accepted:
            _tell_refusal(tenure, op_type, verdict)
        if tenure.job.is_terminal:
            self.done += 1
            tenure.delivery.ack()
        else:
            self._claims.stay_away(tenure.delivery, tenure.job, Verdict.NOT_YET)
        return verdict.is_accepted

    async def _settle_kept(
        self, tenure: Tenure, kept: asyncio.Future[OutboxItem], *, leaves: bool
    ) -> bool:
        """Leave an end to the outbox until it is settled. The job stays in hand meanwhile."""
        job = tenure.job
        log.info("end_waits", job=job.id, kind=job.kind, hint="antiphon outbox")
        settled = None if leaves else await kept
        is_accepted = settled is not None and settled.state == "held"
        if settled is not None and not is_accepted:
            op = type(settled.what).__name__.lower()
            log.warning("end_rejected", job=job.id, op=f"job.{op}", why=settled.why)
        if settled is not None and is_accepted and isinstance(settled.what, Complete):
            self.done += 1
            tenure.delivery.ack()
        else:
            self._claims.stay_away(tenure.delivery, job, Verdict.HELD)
        return is_accepted


async def _write(
    tenure: Tenure,
    op_type: type[JobOp],
    end: attempt_end.Ending,
    begun: Begun | None,
    sent: list[Draft],
) -> Verdict:
    """Write an end; what may have been sent of it is noted where it can be kept."""
    if tenure.outbox is None:
        return await tenure.write(op_type, end, begun)
    if tenure.outbox.must_wait(end):
        raise Unavailable("what the run made before waits in the outbox")
    return await tenure.write(op_type, end, begun, sent.append)


def _keep(
    tenure: Tenure, end: attempt_end.Ending, sent: list[Draft]
) -> asyncio.Future[OutboxItem] | None:
    """Keep an end in the outbox of its run, if that has one with room."""
    if tenure.outbox is None:
        return None
    what = Yield(end) if isinstance(end, YieldBody) else Complete(end)
    try:
        return tenure.outbox.keep_end(what, sent)
    except Unavailable as full:
        log.warning("end_not_kept", job=tenure.job.id, problem=full.message)
        return None


def _tell_refusal(tenure: Tenure, op_type: type[JobOp], verdict: Verdict) -> None:
    op, fields = op_type.type_name(), tenure.standstill
    log.warning("end_rejected", job=tenure.job.id, op=op, verdict=verdict.value, **fields)
