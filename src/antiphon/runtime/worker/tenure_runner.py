"""Runs one tenure: executes the job under its lease, and writes its end to the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import structs

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.given_results import with_results
from antiphon.core.families.jobs.ops import JobComplete, JobOp, JobYield, ScheduleBody, YieldBody
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.policy import attempt_end
from antiphon.core.policy.claim_delay import claim_delay_s
from antiphon.core.record.verdict import Verdict
from antiphon.errors import (
    EngineDenied,
    Overrun,
    PartlySubmitted,
    Rejected,
    Unavailable,
    WaitExhausted,
)
from antiphon.runtime import tracing
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.executors import proof_writer
from antiphon.runtime.executors.children import key_of
from antiphon.runtime.executors.executor import Assignment, GivenBack
from antiphon.runtime.executors.failure import failed_with, failure_of
from antiphon.runtime.worker.runs import run_end
from antiphon.runtime.worker.runs.budget_timer import STUBBORN_S
from antiphon.runtime.worker.runs.job_run import JobRun
from antiphon.runtime.worker.runs.kept_output import with_output
from antiphon.runtime.worker.runs.run_figures import RunFigures
from antiphon.runtime.worker.runs.run_report import RunReport
from antiphon.runtime.worker.tenure import Tenure, TenureLost
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.ports import Delivery
    from antiphon.runtime.executors.executor import Executor, Ran
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.worker.run_slots import RunSlots
    from antiphon.runtime.worker.runs.run_clock import RunClock
    from antiphon.runtime.worker.runs.status_sender import StatusSender

LATER_S: Final = 3600.0
"""How long to try to write the end of a job that kept running through a disconnect."""
LONGEST_PAUSE: Final = 6
"""Doublings of the pause between two tries."""

log = LazyLogger(__name__)


class TenureRunner:
    """Runs the tenures of one worker."""

    def __init__(
        self, session: Session, clock: RunClock, status: StatusSender, slots: RunSlots
    ) -> None:
        """No tenure yet."""
        self.session = session
        self._slots = slots
        self.clock = clock
        self._status = status
        self.figures = RunFigures()
        self.done = 0
        """Jobs whose accepted end was read."""
        self.reason: attempt_end.GivingBack = "drain"
        """Why work is given back that its worker cancels."""

    async def run(self, tenure: Tenure, body: ScheduleBody, executor: Executor) -> None:
        """Run the job and write its end; settle its announcement in every case."""
        run = JobRun(tenure, body, self.clock, self._status)
        if await self._has_slot(run):
            try:
                await self._run(run, body, executor)
            finally:
                self._slots.leave(run)

    async def _run(self, run: JobRun, body: ScheduleBody, executor: Executor) -> None:
        tenure, job = run.tenure, run.tenure.job
        report = RunReport(job, self.session.wall, self.figures)
        manifest, texts = with_results(body.manifest, job.results)
        assignment = Assignment(
            kind=job.kind,
            job_id=job.id,
            fence=job.fence,
            attempt=job.attempts + 1,
            manifest=manifest,
            texts=texts,
            continuations=job.continuations,
            children=job.children if job.child_results else (),
            child_results=job.child_results,
            trace=body.trace,
            auth=job.auth,
            checkpoint=job.checkpoint,
            run=run,
        )
        work = asyncio.ensure_future(self._ran(executor, assignment))
        limit_s = body.manifest.timeout
        tenure.keep(
            work,
            limit_s=limit_s + executor.grace_s if limit_s else 0,
            goes_on=executor.goes_on,
        )
        task = asyncio.current_task()
        give_up = task.cancel if task is not None else work.cancel
        run.keep(work, give_up)
        try:
            ran = await self._result(run, work, executor, assignment)
        except GivenBack as why:
            log.info("job_given_back", kind=job.kind, job=job.id, why=str(why))
            await self._give_back(run, "other")
            report.unfinished("given_back")
            return
        finally:
            self._slots.leave(run)
            report.stop_clock()
            if run.gave_up and task is not None:
                task.uncancel()
            tenure.release()
            run.release()
        if ran is None:
            report.unfinished(_without_result(tenure))
            return
        # The result is worth a few tries: as long as the lease lasts, and longer if the handler
        # keeps running without one.
        patience_s = max(tenure.lease_left_s, LATER_S if executor.goes_on else 0.0)
        until_s = self.session.wall.boot_s() + patience_s
        is_accepted = await self._end(run, body, ran, until_s=until_s)
        report.ended(ran, tenure.job, is_accepted=is_accepted)

    async def _has_slot(self, run: JobRun) -> bool:
        """Wait for the slot of a job that was claimed ahead; without one it is given back."""
        try:
            await self._slots.take(run)
        except TimeoutError:
            await self._give_back(run, "other")
        except asyncio.CancelledError:
            await self._give_back(run, self.reason)
        else:
            return True
        return False

    async def _result(
        self, run: JobRun, work: asyncio.Future[Ran], executor: Executor, assignment: Assignment
    ) -> Ran | None:
        """What became of the run; None if its tenure is over already."""
        job, tenure = assignment, run.tenure
        try:
            ran = await _end_of(work, run)
            return ran if run.beats is None else run_end.marked(ran, run.beats)
        except asyncio.CancelledError:
            work.cancel()
            if run.budget is not None and run.budget.over is not None:
                return run.budget.failure()
            if run.is_cut and tenure.lost is None:
                return await run_end.after_cut(run, executor, assignment)
            if tenure.is_out_of_time:
                limit_s = assignment.manifest.timeout
                return failed_with(TimeoutError(f"took longer than {limit_s} s"))
            if tenure.lost is None:
                run.ask_for_checkpoint()
                await self._give_back(run, self.reason)
                return None
            # A cancelled job is not a problem of the worker.
            tell = log.debug if tenure.job.outcome == "cancelled" else log.warning
            verdict = tenure.lost.verdict.value
            tell("tenure_lost", job=job.job_id, verdict=verdict, **_standstill(tenure))
            self.stay_away(tenure.delivery, tenure.job, Verdict.HELD)
            return None
        except GivenBack:
            raise
        except Overrun as over:
            run.in_time().over = over.message
            return await run_end.after_cut(run, executor, assignment)
        except WaitExhausted as spent:
            return await run_end.after_wait(run, spent, executor, assignment)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its job's failure
            return failed_with(error)

    async def _give_back(self, run: JobRun, reason: attempt_end.GivingBack) -> None:
        checkpoint = await run.last_checkpoint()
        held = run.tenure.held
        await self._write(run, JobYield, attempt_end.giving_back(held, reason, checkpoint))

    async def _ran(self, executor: Executor, assignment: Assignment) -> Ran:
        """Run the job, and submit the jobs that it wants to wait for while its lease is kept."""
        job = assignment
        with tracing.running(job.kind, job.job_id, job.attempt, job.trace) as span:
            try:
                ran = await self._ran_with_children(executor, assignment)
            except asyncio.CancelledError:
                span.end("stopped")
                raise
            except Exception as error:
                span.end("failed", failure_of(error))
                raise
            span.end(_outcome_of(ran), ran.failure)
        return ran

    async def _ran_with_children(self, executor: Executor, assignment: Assignment) -> Ran:
        ran = await executor.run(assignment)
        new = [one for one in ran.after if isinstance(one, ScheduleBody)]
        if not new:
            return ran
        try:
            await submit_many(self.session, new)
        except (Rejected, PartlySubmitted) as refused:
            raise Rejected(
                f"this worker could not submit what the handler asked for: {refused.message}",
                reason=getattr(refused, "reason", "rejected"),
            ) from refused
        return ran

    async def _end(
        self,
        run: JobRun,
        body: ScheduleBody,
        ran: Ran,
        *,
        until_s: float,
    ) -> bool:
        """Write how it ended, with the proof where that is the end of the job.

        Returns whether that was accepted.
        """
        tenure = run.tenure
        run.speak("done" if ran.failure is None else "failed")
        goes_on = ran.failure is not None or bool(ran.after)
        checkpoint = await run.last_checkpoint() if goes_on else None
        if ran.after:
            keys = tuple(map(key_of, ran.after))
            waiting = attempt_end.waiting(tenure.held, keys, checkpoint)
            return await self._write(run, JobYield, waiting, until_s=until_s)
        end = attempt_end.after(
            tenure.held,
            body.retry,
            outputs=ran.outputs,
            fault=self._recorded(ran.fault),
            exit_code=ran.exit,
            checkpoint=checkpoint,
            chance=self.session.entropy.random(),
        )
        if run.kept is not None:
            end = await with_output(end, run.kept, run.artifacts)
        if isinstance(end, YieldBody):
            return await self._write(run, JobYield, end, until_s=until_s)
        usage = run.usage(end.outputs)
        proven = proof_writer.Run(
            manifest=body.manifest,
            inputs=with_results(body.manifest, tenure.results)[0].inputs,
            started=hlc.unpack(tenure.fence),
            usage=usage,
            cost=run.cost(usage),
            runner=ran.runner,
            isolation=ran.isolation,
            environment=ran.environment,
        )
        complete = proof_writer.prove(self.session, end, proven)
        return await self._write(run, JobComplete, complete, until_s=until_s)

    def _recorded(self, fault: attempt_end.Fault | None) -> attempt_end.Fault | None:
        """What the log keeps of a fault: without its traceback where the mesh's rules say so."""
        if fault is None or self.session.control.rules.tracebacks:
            return fault
        return structs.replace(fault, failure=structs.replace(fault.failure, traceback=""))

    async def _write(
        self,
        run: JobRun,
        op_type: type[JobOp],
        end: attempt_end.Ending,
        *,
        until_s: float = 0.0,
    ) -> bool:
        """Commit the end; whether it was accepted. Acknowledge only a job that the log shows ended.

        While the engine does not answer it tries again, until `until_s` on the clock that runs in
        suspend.
        """
        tenure = run.tenure
        try:
            verdict = await self._written(tenure, op_type, _costed(end, run), until_s)
        except TenureLost as lost:
            _tell_refusal(tenure, op_type, lost.verdict)
            self.stay_away(tenure.delivery, tenure.job, Verdict.HELD)
            return False
        if not verdict.is_accepted:
            _tell_refusal(tenure, op_type, verdict)
        if tenure.job.is_terminal:
            self.done += 1
            tenure.delivery.ack()
        else:
            self.stay_away(tenure.delivery, tenure.job, Verdict.NOT_YET)
        return verdict.is_accepted

    async def _written(
        self, tenure: Tenure, op_type: type[JobOp], end: attempt_end.Ending, until_s: float
    ) -> Verdict:
        attempt = 0
        while True:
            try:
                return await tenure.write(op_type, end)
            except EngineDenied:
                raise
            except Unavailable:
                if self.session.wall.boot_s() >= until_s:
                    raise
            await self.session.pause(attempt)
            attempt = min(attempt + 1, LONGEST_PAUSE)

    def stay_away(self, delivery: Delivery, job: Job | None, verdict: Verdict) -> None:
        """Settle an announcement that cannot be claimed now: not before it can be."""
        if job is None or job.is_terminal or job.state is State.WAITING:
            delivery.ack()  # the offer that ends a wait is another announcement
            return
        wait_s = claim_delay_s(
            job,
            verdict,
            by=self.session.author.did,
            deliveries=delivery.deliveries,
            now_ms=self.session.wall.now_ms(),
            chance=self.session.entropy.random(),
        )
        delivery.nak(wait_s)


def _outcome_of(ran: Ran) -> str:
    if ran.failure is not None:
        return "failed"
    return "waits" if ran.after else "succeeded"


def _without_result(tenure: Tenure) -> str:
    """How a run ended that has no result here."""
    if tenure.job.outcome == "cancelled":
        return "cancelled"
    return "given_back" if tenure.lost is None else "lost"


def _tell_refusal(tenure: Tenure, op_type: type[JobOp], verdict: Verdict) -> None:
    fields = _standstill(tenure)
    log.warning(
        "end_rejected", job=tenure.job.id, op=op_type.type_name(), verdict=verdict.value, **fields
    )


def _standstill(tenure: Tenure) -> dict[str, str]:
    """Why the lease may have been lost, if nothing could renew it for that long."""
    if not tenure.stood_still_s:
        return {}
    return {
        "why": f"the worker's event loop was blocked for {tenure.stood_still_s:.1f} s, so the"
        " lease was not renewed: a coroutine blocked it, or the process was suspended",
        "hint": "make the handler a plain 'def', which runs in a thread, or wrap the blocking"
        " part in 'await asyncio.to_thread(...)'",
    }


def _costed(end: attempt_end.Ending, run: JobRun) -> attempt_end.Ending:
    """A yield that says what its tenure has cost."""
    said = run.cost(run.usage(())) if isinstance(end, YieldBody) else None
    return end if said is None else structs.replace(end, cost=said)


async def _end_of(work: asyncio.Future[Ran], run: JobRun) -> Ran:
    """The result of the work. If this wait is cancelled, the work is too, within a limit.

    A handler that ignores its cancellation must not keep its job from other workers, nor keep
    the worker from ending. What a run returns that was cut does not count.
    """
    try:
        await _over(work)
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait({work}, timeout=0 if run.gave_up else STUBBORN_S)
        if not work.done():
            log.warning("handler_ignores_cancellation")
            work.add_done_callback(_forget)
            raise
    if run.is_cut:
        _forget(work)
        raise asyncio.CancelledError
    return work.result()


async def _over(work: asyncio.Future[Ran]) -> None:
    """Wait for the work, whatever becomes of it; `asyncio.wait` does much more for each job."""
    if work.done():
        return
    waiter = asyncio.get_running_loop().create_future()

    def wake(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    work.add_done_callback(wake)
    try:
        await waiter
    finally:
        work.remove_done_callback(wake)


def _forget(work: asyncio.Future[Ran]) -> None:
    if not work.cancelled():
        work.exception()
