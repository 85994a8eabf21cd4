"""The work of one run: how it begins, and what became of it.

A run that has used up its beats, or one of its waits, has the escalations of its score (spec §11).
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.authority.parties import party_of
from antiphon.core.derivations.given_results import with_results
from antiphon.core.families.jobs.ops import DEGRADED, Failure, JobKey, Result, ScheduleBody
from antiphon.core.families.jobs.state import State
from antiphon.core.policy.attempt_end import Fault
from antiphon.core.proof.answer import answer_in
from antiphon.errors import (
    AntiphonError,
    EngineDenied,
    Overrun,
    PartlySubmitted,
    Rejected,
    StaleFence,
    Unavailable,
    WaitExhausted,
    is_away,
)
from antiphon.runtime import tracing
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.caller.submission import ended_of
from antiphon.runtime.executors.executor import Assignment, GivenBack, Ran
from antiphon.runtime.executors.failure import failed_with, failure_of, fault_of
from antiphon.runtime.executors.handler_call import degraded_output
from antiphon.runtime.executors.handler_exits import EXITS, InHandler, is_of_worker
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.runtime.worker.runs.budget_timer import STUBBORN_S
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.runtime.executors.executor import Executor
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.worker.runs.job_run import JobRun
    from antiphon.runtime.worker.runs.model_calls import Account, ModelCalls
    from antiphon.runtime.worker.runs.run_beats import RunBeats
    from antiphon.runtime.worker.tenure import Tenure

FALLBACK_S: Final = 1.0
"""A fallback has one beat, and at least this long."""

LONGEST_PAUSE: Final = 6
"""Doublings of the pause between two tries."""

log = LazyLogger(__name__)


def assignment_of(run: JobRun) -> Assignment:
    """The job as its executor sees it."""
    job, body, control = run.tenure.job, run.body, run.tenure.session.control
    manifest, texts = with_results(body.manifest, job.results)
    return Assignment(
        kind=job.kind,
        job_id=job.id,
        fence=job.fence,
        attempt=job.attempts + 1,
        manifest=manifest,
        texts=texts,
        continuations=job.continuations,
        children=job.children if job.child_results else (),
        child_results=job.child_results,
        submitter=party_of(control, job.scheduler, job.call_auth, before=job.scheduled_seq)
        or job.scheduler,
        trace=body.trace,
        auth=job.auth,
        checkpoint=job.checkpoint,
        run=run,
    )


async def work_of(run: JobRun, executor: Executor, assignment: Assignment) -> Ran:
    """Run the job, and submit the jobs that it wants to wait for while its lease is kept."""
    job, session = assignment, run.tenure.session
    if run.tenure.fault is not None:
        return Ran(runner=python_runner(), fault=run.tenure.fault)
    with tracing.running(job.kind, job.job_id, job.attempt, job.trace) as span:
        try:
            assignment = await _with_answers(session, assignment)
            with InHandler():
                ran = await executor.run(assignment)
            new = [one for one in ran.after if isinstance(one, ScheduleBody)]
            if new:
                await _submit(run.tenure, new, is_patient=executor.goes_on)
        except asyncio.CancelledError:
            span.end("stopped")
            raise
        except Exception as error:
            span.end("failed", failure_of(error))
            raise
        done = "waits" if ran.after else "succeeded"
        span.end(done if ran.fault is None else "failed", ran.failure)
    return ran


async def _with_answers(session: Session, assignment: Assignment) -> Assignment:
    """The same with people's answers as their own records say it.

    The coordinator's offer repeats the results of children. For an answer its word is not enough:
    whoever signed it, and may, is on the question's lane.
    """
    results = assignment.child_results
    if not any(one.is_answer for one in results):
        return assignment
    read = [
        await _answer(session, key, said) if said.is_answer else said
        for key, said in zip(assignment.children, results, strict=True)
    ]
    return replace(assignment, child_results=tuple(read))


async def _answer(session: Session, key: JobKey, said: Result) -> Result:
    try:
        view = await session.read_lane(*key)
    except EngineDenied:
        return said  # this worker may not read what it asked
    job = view.lane.job
    if job is None:
        return said  # archived meanwhile
    ended = ended_of(view)
    if ended is None or job.question is None:
        raise GivenBack(
            f"the answer to {key[0]} {key[1][:8]} is not on the log as far as it is read"
        )
    if job.state is not State.SUCCEEDED:
        return Result(outcome=job.outcome, error=ended.error, is_answer=True)
    return Result(text=answer_in(ended.outputs) or "null", is_answer=True)


async def _submit(tenure: Tenure, new: list[ScheduleBody], *, is_patient: bool) -> None:
    """Submit what a handler waits for. Others are asked by it, so it never waits in an outbox.

    A run that goes on without the engine waits for that here. A job's id follows from its content,
    so it is submitted once however often that is tried. What it names may wait in the outbox, where
    nothing else would send it.
    """
    session, outbox = tenure.session, tenure.outbox
    for attempt in count():
        try:
            if outbox is not None:
                await outbox.bring(new)
            await submit_many(session, new)
        except (Unavailable, Rejected, PartlySubmitted) as problem:
            why = problem.__cause__ if isinstance(problem, PartlySubmitted) else problem
            if is_patient and isinstance(why, Unavailable) and is_away(why):
                if attempt == 0:
                    log.warning("children_wait_for_engine", jobs=len(new), problem=why.message)
                await session.pause(min(attempt, LONGEST_PAUSE))
                continue
            if isinstance(problem, Unavailable):
                raise
            raise Rejected(
                f"this worker could not submit what the handler asked for: {problem.message}",
                reason=getattr(problem, "reason", "rejected"),
            ) from problem
        if outbox is not None:
            outbox.brought(new)
        return


async def result_of(
    run: JobRun, work: asyncio.Future[Ran], executor: Executor, assignment: Assignment
) -> Ran | None:
    """What became of the work; None if its worker stops, or if the tenure is lost.

    Raises `GivenBack`, and what a signal to this process raised: whatever else a handler raises
    is its job's failure.
    """
    tenure = run.tenure
    try:
        ran = await _end_of(work, run)
        return ran if run.beats is None else marked(ran, run.beats)
    except asyncio.CancelledError:
        work.cancel()
        if run.budget is not None and run.budget.over is not None:
            return run.budget.failure()
        if run.is_cut and tenure.lost is None:
            return await after_cut(run, executor, assignment)
        if tenure.is_out_of_time:
            limit_s = assignment.manifest.timeout
            return failed_with(TimeoutError(f"took longer than {limit_s} s"))
        return None
    except GivenBack:
        raise
    except Overrun as over:
        run.in_time().over = over.message
        return await after_cut(run, executor, assignment)
    except WaitExhausted as spent:
        return await after_wait(run, spent, executor, assignment)
    except Exception as error:  # noqa: BLE001 - see above
        return failed_with(error)


async def _end_of(work: asyncio.Future[Ran], run: JobRun) -> Ran:
    """The result of the work. If this wait is cancelled, the work is too, within a limit.

    A handler that ignores its cancellation must not keep its job from other workers, nor keep
    the worker from ending. What a run returns that was cut does not count.
    """
    is_told_to_end = False
    try:
        await _over(work)
    except asyncio.CancelledError:
        is_told_to_end = True
        work.cancel()
        await asyncio.wait({work}, timeout=0 if run.gave_up else STUBBORN_S)
        if not work.done():
            log.warning("handler_ignores_cancellation")
            work.add_done_callback(_forget)
            raise
    if run.is_cut:
        _forget(work)
        raise asyncio.CancelledError
    try:
        return work.result()
    except (Exception, *EXITS):
        raise
    except asyncio.CancelledError as cancelled:
        if is_told_to_end or run.tenure.lost is not None or run.tenure.is_out_of_time:
            raise
        return failed_with(cancelled)  # nobody but the handler itself
    except BaseException as error:  # noqa: BLE001 - see `result_of`
        return failed_with(error)


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


async def after_cut(run: JobRun, executor: Executor, assignment: Assignment) -> Ran:
    """A run that was cut: a coarser result, or a failure that may have another phrase."""
    beats = run.in_time()
    score, phrase, words = beats.score, beats.phrase, beats.over
    if score is None or phrase is None:
        raise ValueError("only a run with a score is cut")
    steps = score.escalation.on_overrun
    beats.emit(steps, words)
    instead = await _fallback(run, steps, words, executor, assignment)
    if instead is not None:
        return instead
    if "checkpoint" not in steps:
        run.forget_checkpoint()
    asked_ms = None
    if "defer:next-phrase" in steps:
        now_ms = run.clock.now_ms()
        asked_ms = phrase.next_phrase_ms(now_ms) - now_ms
    fault = Fault(
        failure=Failure(name=Overrun.__name__, message=words),
        asked_ms=asked_ms,
        reason="overrun",
        phrases_max=score.retry.max_phrases,
    )
    return Ran(runner=python_runner(), fault=fault)


async def after_wait(
    run: JobRun, spent: WaitExhausted, executor: Executor, assignment: Assignment
) -> Ran:
    """A handler that ended because a wait had used up its budget."""
    score = run.body.score
    steps = score.escalation.on_wait_exhausted if score is not None else ()
    if spent.on_fail:
        steps = (f"fallback:{spent.on_fail}", *steps)
    instead = await _fallback(run, steps, spent.message, executor, assignment)
    if instead is not None:
        return instead
    phrases_max = score.retry.max_phrases if score is not None else None
    return Ran(runner=python_runner(), fault=replace(fault_of(spent), phrases_max=phrases_max))


async def accounted(calls: ModelCalls, tenure: Tenure) -> Account | Fault:
    """The model calls of a run that has ended; a fault if their snapshots cannot be stored.

    They are stored under the lease, so there is no point in waiting longer than that, unless the
    run went on without it. `StaleFence` if another worker has the job.
    """
    limit_s = None if tenure.outbox is not None else max(tenure.lease_left_s, 0.0)
    try:
        async with asyncio.timeout(limit_s):
            return await calls.account()
    except TimeoutError:
        raise Unavailable("the snapshots of its model calls could not be stored in time") from None
    except (StaleFence, Unavailable):
        raise
    except (AntiphonError, OSError) as problem:
        return fault_of(problem)
    finally:
        calls.close()


def marked(ran: Ran, beats: RunBeats) -> Ran:
    """The result of a handler that went on after a wait had used up its budget says so."""
    spent = beats.exhausted
    if spent is None or ran.fault is not None or not ran.outputs:
        return ran
    if any(one.name == DEGRADED for one in ran.outputs):
        return ran
    return replace(ran, outputs=(*ran.outputs, degraded_output(spent.message)))


async def _fallback(
    run: JobRun, steps: Sequence[str], why: str, executor: Executor, assignment: Assignment
) -> Ran | None:
    """The result of the first fallback that has one."""
    limit_s = max(run.clock.meter().beat_ms / 1000, FALLBACK_S)
    for step in steps:
        action, _, name = step.partition(":")
        if action != "fallback":
            continue
        where = {"kind": assignment.kind, "job": assignment.job_id, "fallback": name}
        try:
            async with asyncio.timeout(limit_s):
                ran = await executor.fall_back(name, assignment)
        except TimeoutError:
            log.warning("fallback_too_slow", seconds=limit_s, **where)
            continue
        except BaseException as problem:  # the user's own code
            if is_of_worker(problem):
                raise
            log.warning("fallback_failed", problem=repr(problem), **where)
            continue
        if ran is None:
            log.warning("fallback_missing", hint=f'register it: @task.fallback("{name}")', **where)
        elif ran.failure is None and ran.outputs:
            return replace(ran, outputs=(*ran.outputs, degraded_output(why, name)))
    return None
