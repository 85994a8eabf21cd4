"""Retries a job that ended without a result: a new job on the log, linked to the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.derivations.plan_authority import may_read
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.policy import retry as retry_policy
from antiphon.errors import Rejected
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.erasure import require_kept

if TYPE_CHECKING:
    from antiphon.runtime.caller.submission import Submitted
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session

LONGEST_CHAIN: Final = 256
"""Retries of retries that are followed to find the last one."""


class RetryLinks(Struct, frozen=True, kw_only=True):
    """A job's neighbours in a chain of retries, by id."""

    retry_of: str | None
    retried_as: str | None


async def retry(session: Session, kind: str, job_id: str) -> Submitted:
    """Submit a job again that failed, expired or was cancelled.

    A job is not retried twice. If it was retried before, that retry is returned, or retried in
    turn if it ended without a result as well.
    """
    for _ in range(LONGEST_CHAIN):
        view = await session.read_lane(kind, job_id)
        body = _retryable(view, kind, job_id)
        await require_kept(session, kind, job_id)
        await _require_readable(session, view, body)
        submitted = await submission.submit(session, retry_policy.retried(body, job_id))
        if submitted.is_new:
            return submitted
        view = await session.read_lane(kind, submitted.id)
        if view.lane.job is None or view.lane.job.state not in retry_policy.RETRYABLE:
            return submitted
        job_id = submitted.id
    raise Rejected(f"job {job_id[:8]} was retried {LONGEST_CHAIN} times", reason="retried")


async def links_of(session: Session, view: JobView) -> RetryLinks:
    """Both links of a job whose lane was read; the later job is looked up on the log."""
    body, job = view.submitted_with, view.lane.job
    if body is None or job is None:
        return RetryLinks(retry_of=None, retried_as=None)
    ahead = retry_policy.retry_id(body, job.id)
    is_there = (await session.read_lane(job.kind, ahead)).lane.job is not None
    return RetryLinks(retry_of=body.retry_of, retried_as=ahead if is_there else None)


async def _require_readable(session: Session, view: JobView, body: ScheduleBody) -> None:
    """`Rejected` if its submitter may not read what it waits for.

    Whoever retries it may read more, and would get for the submitter what that one may not have.
    """
    job = view.lane.job
    if job is None or not body.predecessors:
        return
    control, now_ms = await session.sync_control(), session.wall.now_ms()
    branches = session.protocol.branches
    for kind in dict.fromkeys(kind for kind, _ in body.predecessors):
        if not may_read(control, branches, job.scheduler, kind, now_ms):
            raise Rejected(
                f"job {job.id[:8]} waits for {kind}, which its submitter may not read",
                reason="not_readable",
                hint="submit it yourself, if whoever reads its result may have that one too",
            )


def _retryable(view: JobView, kind: str, job_id: str) -> ScheduleBody:
    job, body = view.lane.job, view.submitted_with
    if job is None or body is None:
        raise submission.no_job(kind, job_id)
    if not job.is_terminal:
        raise Rejected(
            f"job {job_id[:8]} has not ended: it is {job.state.value}",
            reason="not_ended",
            hint=f"antiphon cancel {job_id[:8]}, and then retry it",
        )
    if job.state not in retry_policy.RETRYABLE:
        raise Rejected(
            f"job {job_id[:8]} succeeded, so there is nothing to retry",
            reason="succeeded",
            hint="submit it again to run it again",
        )
    return body
