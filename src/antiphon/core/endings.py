"""How a tenure ends: the body of the op that says so."""

from __future__ import annotations

from antiphon.core import ops
from antiphon.core.backoff import backoff_ms
from antiphon.core.jobs import Job

Ending = ops.CompleteBody | ops.YieldBody


def success(job: Job, output: ops.Output) -> Ending:
    """The handler returned."""
    return ops.CompleteBody(
        kind=job.kind, job=job.job, fence=job.fence, status="succeeded", outputs=(output,)
    )


def after_error(job: Job, retry: ops.Retry, failure: ops.Failure, *, chance: float) -> Ending:
    """A yield while attempts are left, else a completion that says what went wrong (M22)."""
    if job.attempts + 1 < job.attempts_max and failure.name not in retry.give_up_on:
        delay_ms = backoff_ms(
            job.attempts, base_ms=retry.base_ms, cap_ms=retry.cap_ms, chance=chance
        )
        return ops.YieldBody(
            kind=job.kind,
            job=job.job,
            fence=job.fence,
            reason="error",
            retry_after_ms=delay_ms,
            error=failure,
        )
    return ops.CompleteBody(
        kind=job.kind, job=job.job, fence=job.fence, status="failed", error=failure
    )


def giving_back(job: Job) -> Ending:
    """This process ends before the work does."""
    return ops.YieldBody(kind=job.kind, job=job.job, fence=job.fence, reason="drain")
