"""What follows when a run has used up its beats: the escalations of its score (spec §11)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.families.jobs.ops import Failure
from antiphon.core.families.jobs.words import DEGRADED
from antiphon.errors import AntiphonError, Overrun
from antiphon.runtime.executors.executor import Ran
from antiphon.runtime.executors.failure import failed_with
from antiphon.runtime.executors.handler_call import degraded_output
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.errors import WaitExhausted
    from antiphon.runtime.executors.executor import Assignment, Executor
    from antiphon.runtime.worker.runs.job_run import JobRun
    from antiphon.runtime.worker.runs.run_beats import RunBeats

FALLBACK_S: Final = 1.0
"""A fallback has one beat, and at least this long."""

log = LazyLogger(__name__)


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
    return Ran(
        runner=python_runner(),
        failure=Failure(name=Overrun.__name__, message=words),
        reason="overrun",
        retry_after_ms=asked_ms,
        phrases_max=score.retry.max_phrases,
    )


async def after_wait(
    run: JobRun, spent: WaitExhausted, executor: Executor, assignment: Assignment
) -> Ran:
    """A handler that ended because a wait had used up its budget."""
    score = run.body.score
    steps = score.escalation.on_wait_exhausted if score is not None else ()
    instead = await _fallback(run, steps, spent.message, executor, assignment)
    if instead is not None:
        return instead
    phrases_max = score.retry.max_phrases if score is not None else None
    return replace(failed_with(spent), phrases_max=phrases_max)


def marked(ran: Ran, beats: RunBeats) -> Ran:
    """The result of a handler that went on after a wait had used up its budget says so."""
    spent = beats.exhausted
    if spent is None or ran.failure is not None or not ran.outputs:
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
        except (AntiphonError, Exception) as problem:  # noqa: BLE001 - the user's own code
            log.warning("fallback_failed", problem=repr(problem), **where)
            continue
        if ran is None:
            log.warning("fallback_missing", hint=f'register it: @task.fallback("{name}")', **where)
        elif ran.failure is None and ran.outputs:
            return replace(ran, outputs=(*ran.outputs, degraded_output(why, name)))
    return None
