"""How a tenure ends: the body of the completion or yield."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import (
    Checkpoint,
    CompleteBody,
    Failure,
    JobKey,
    Retry,
    YieldBody,
)
from antiphon.core.families.jobs.state import Job
from antiphon.core.history.tenures import WORKER_LOST, Tenure, lost_words
from antiphon.core.policy.backoff import backoff_ms
from antiphon.core.proof.output import Output
from antiphon.core.record.codec import MAX_INTEGER

LOST_MAX: Final = 2
"""Workers that a job may take with it, if nobody chose how many attempts it has."""
USUAL_ATTEMPTS: Final = Rules().attempts

Ending = CompleteBody | YieldBody
GivingBack = Literal["drain", "battery", "sleep", "other"]
YieldReason = Literal["error", "overrun", "later"]
"""Why an attempt has no result: it failed, it used up its beats, or it asked for another try."""


class Fault(Struct, frozen=True, kw_only=True):
    """A failure, and whether another attempt may help."""

    failure: Failure
    lineage: tuple[str, ...] = ()
    """Names of the error's class and its base classes. The log keeps only the first:
    `failure.name`."""
    is_final: bool = False
    """Whether another attempt would end the same way."""
    asked_ms: int | None = None
    """The wait that the job itself asked for, instead of the backoff. The mesh's rules shorten
    it if it is too long."""
    reason: YieldReason = "error"
    phrases_max: int | None = None
    """How many attempts its score has, if that is fewer."""

    def is_over_for(self, job: Job, retry: Retry) -> bool:
        """Whether it ends the job: no attempt is left, or another would not help."""
        names = {self.failure.name, *self.lineage}
        is_hopeless = self.is_final or not names.isdisjoint(retry.give_up_on)
        if is_hopeless or self.reason == "later":
            return is_hopeless  # another try has a limit of its own, which is a rule of the mesh
        return job.attempts + 1 >= min(job.attempts_max, self.phrases_max or job.attempts_max)

    def delay_ms(self, job: Job, retry: Retry, *, chance: float) -> int:
        """How long to wait before the next attempt."""
        if self.asked_ms is not None:
            return min(max(self.asked_ms, 0), MAX_INTEGER)
        return backoff_ms(job.attempts, base_ms=retry.base_ms, cap_ms=retry.cap_ms, chance=chance)


def after(  # noqa: PLR0913 - what is known at the end of a run
    job: Job,
    retry: Retry,
    *,
    outputs: tuple[Output, ...] = (),
    fault: Fault | None = None,
    exit_code: int | None = None,
    checkpoint: Checkpoint | None = None,
    chance: float,
) -> Ending:
    """A yield after a failure while attempts are left, else a completion (M22)."""
    if fault is not None and not fault.is_over_for(job, retry):
        return failed(job, retry, fault, checkpoint, chance=chance)
    return CompleteBody(
        kind=job.kind,
        job=job.id,
        fence=job.fence,
        status="succeeded" if fault is None else "failed",
        outputs=outputs,
        error=None if fault is None else fault.failure,
        exit=exit_code,
    )


def failed(
    job: Job, retry: Retry, fault: Fault, checkpoint: Checkpoint | None = None, *, chance: float
) -> YieldBody:
    """A yield after a failed attempt. If it was the last one, the log ends the job (M22)."""
    return YieldBody(
        kind=job.kind,
        job=job.id,
        fence=job.fence,
        reason=fault.reason,
        retry_after_ms=fault.delay_ms(job, retry, chance=chance),
        error=fault.failure,
        checkpoint=checkpoint,
    )


def giving_back(
    job: Job, reason: GivingBack = "drain", checkpoint: Checkpoint | None = None
) -> Ending:
    """A yield that counts as no attempt: this worker cannot finish the job, another may (M22)."""
    return YieldBody(
        kind=job.kind, job=job.id, fence=job.fence, reason=reason, checkpoint=checkpoint
    )


def waiting(
    job: Job,
    children: tuple[JobKey, ...],
    checkpoint: Checkpoint | None = None,
    until_ms: int | None = None,
) -> YieldBody:
    """A yield until other jobs have ended; it does not count as an attempt."""
    return YieldBody(
        kind=job.kind,
        job=job.id,
        fence=job.fence,
        reason="after",
        after=children,
        until=until_ms,
        checkpoint=checkpoint,
    )


def lost(job: Job) -> YieldBody:
    """A yield for a job whose process is gone, by its restarted worker: an expiry, but at once."""
    words = "its worker stopped or was disconnected while running it"
    gone = Failure(name=WORKER_LOST, message=words)
    return YieldBody(kind=job.kind, job=job.id, fence=job.fence, reason="error", error=gone)


def too_many_lost(
    job: Job, retry: Retry, lost: Sequence[Tenure], name: Callable[[str], str]
) -> Fault | None:
    """Why a job fails instead of being run again: it would take the next worker with it.

    A number of attempts that its submitter or the mesh's owner chose is what holds instead.
    """
    is_chosen = retry.attempts is not None or job.attempts_max != USUAL_ATTEMPTS
    if is_chosen or len(lost) < LOST_MAX:
        return None
    words = f"{lost_words(lost, name)}; it is not run again until somebody retries it"
    return Fault(failure=Failure(name=WORKER_LOST, message=words), is_final=True)
