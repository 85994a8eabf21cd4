"""How a tenure ends: the body of the op that says so."""

from __future__ import annotations

from antiphon.core import ops
from antiphon.core.backoff import backoff_ms
from antiphon.core.jobs import Job

Ending = ops.CompleteBody | ops.YieldBody


def after(
    job: Job,
    retry: ops.Retry,
    *,
    outputs: tuple[ops.Output, ...] = (),
    failure: ops.Failure | None = None,
    exit_code: int | None = None,
    chance: float,
) -> Ending:
    """A yield after a failure while attempts are left, else a completion (M22)."""
    if failure is not None and _is_worth_another(job, retry, failure):
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
        kind=job.kind,
        job=job.job,
        fence=job.fence,
        status="succeeded" if failure is None else "failed",
        outputs=outputs,
        error=failure,
        exit=exit_code,
    )


def _is_worth_another(job: Job, retry: ops.Retry, failure: ops.Failure) -> bool:
    return job.attempts + 1 < job.attempts_max and failure.name not in retry.give_up_on


def giving_back(job: Job) -> Ending:
    """This process ends before the work does."""
    return ops.YieldBody(kind=job.kind, job=job.job, fence=job.fence, reason="drain")
