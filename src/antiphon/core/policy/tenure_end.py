"""How a tenure ends: the body of the op that says so."""

from __future__ import annotations

from msgspec import Struct

from antiphon.core.families.jobs.ops import CompleteBody, Failure, Retry, YieldBody
from antiphon.core.families.jobs.state import Job
from antiphon.core.policy.backoff import backoff_ms
from antiphon.core.proof.output import Output
from antiphon.core.record.codec import MAX_INTEGER

Ending = CompleteBody | YieldBody


class Fault(Struct, frozen=True, kw_only=True):
    """A failure, and what is known about whether another attempt helps."""

    failure: Failure
    lineage: tuple[str, ...] = ()
    """The failure's kind and everything that it is a kind of, by name. The log keeps the first
    of them only: `failure.name`."""
    is_final: bool = False
    """Another attempt would end the same way."""
    asked_ms: int | None = None
    """The wait that the job itself asked for: it stands in place of the backoff. The mesh's
    rules cut it down where it is too long."""

    def is_over_for(self, job: Job, retry: Retry) -> bool:
        """Whether it ends the job: no attempt is left, or none is worth it."""
        names = {self.failure.name, *self.lineage}
        is_hopeless = self.is_final or not names.isdisjoint(retry.give_up_on)
        return is_hopeless or job.attempts + 1 >= job.attempts_max

    def delay_ms(self, job: Job, retry: Retry, *, chance: float) -> int:
        """How long to wait before the next attempt."""
        if self.asked_ms is not None:
            return min(max(self.asked_ms, 0), MAX_INTEGER)
        return backoff_ms(job.attempts, base_ms=retry.base_ms, cap_ms=retry.cap_ms, chance=chance)


def after(
    job: Job,
    retry: Retry,
    *,
    outputs: tuple[Output, ...] = (),
    fault: Fault | None = None,
    exit_code: int | None = None,
    chance: float,
) -> Ending:
    """A yield after a failure while attempts are left, else a completion (M22)."""
    if fault is not None and not fault.is_over_for(job, retry):
        return YieldBody(
            kind=job.kind,
            job=job.id,
            fence=job.fence,
            reason="error",
            retry_after_ms=fault.delay_ms(job, retry, chance=chance),
            error=fault.failure,
        )
    return CompleteBody(
        kind=job.kind,
        job=job.id,
        fence=job.fence,
        status="succeeded" if fault is None else "failed",
        outputs=outputs,
        error=None if fault is None else fault.failure,
        exit=exit_code,
    )


def giving_back(job: Job) -> Ending:
    """This process ends before the work does."""
    return YieldBody(kind=job.kind, job=job.id, fence=job.fence, reason="drain")


def lost(job: Job) -> YieldBody:
    """The process that held it is gone, and its key is back: as an expiry, but at once."""
    words = "its worker ended in the middle of it, or was cut off"
    gone = Failure(name="WorkerLost", message=words)
    return YieldBody(kind=job.kind, job=job.id, fence=job.fence, reason="error", error=gone)
