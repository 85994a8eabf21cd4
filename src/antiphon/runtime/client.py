"""Calling: submit a job, wait for its end, cancel it. A client reads one lane and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import (
    CancelBody,
    EvictBody,
    Failure,
    JobCancel,
    JobComplete,
    JobEvict,
    JobSchedule,
    JobYield,
    ScheduleBody,
)
from antiphon.core.families.jobs.state import EMPTY, Job
from antiphon.core.manifest import job_id
from antiphon.core.outputs import Output
from antiphon.core.reasons import ABOUT_TIME, LACKS_AUTHORITY, Reason
from antiphon.errors import Conflict, JobFailed, LostRace, Rejected, Unavailable
from antiphon.runtime.mesh_time import HINT

if TYPE_CHECKING:
    from antiphon.runtime.lane_reading import JobView
    from antiphon.runtime.peer import Peer

CALL_TRIES: Final = 8
CANCEL_TRIES: Final = 8


class Called(Struct, frozen=True):
    """A job that is on the log, and whether this call put it there."""

    kind: str
    job: str
    seq: int
    is_new: bool


class Ended(Struct, frozen=True):
    """A job's end as the log has it."""

    job: Job
    outputs: tuple[Output, ...]
    error: Failure | None
    exit: int | None = None
    """What a command returned; negative: the signal that ended it."""


async def call(peer: Peer, body: ScheduleBody, *, deps: tuple[tuple[int, str], ...] = ()) -> Called:
    """Schedule a job. The same (kind, manifest) again finds the first: nothing runs twice.

    Records that were refused may lie where the call belongs, an earlier try of our own with a
    wrong clock among them: it goes behind them.
    """
    job, prev = job_id(body.manifest), 0
    await _require_permission(peer, body)
    for attempt in range(CALL_TRIES):
        if attempt > 1:
            await peer.pause(attempt)
        draft = peer.draft(JobSchedule, body, prev=prev, deps=deps)
        try:
            seq = await peer.commit(draft)
            break
        except LostRace:
            view = await peer.read_lane(body.kind, job)
            if view.lane.job is not None:
                return Called(body.kind, job, view.lane.job.scheduled_seq, is_new=False)
            prev = view.lane.tails[draft.entry.place.slot] if draft.entry.place is not None else 0
    else:
        raise Unavailable(f"lost {CALL_TRIES} races in a row on job {job}")
    view = await peer.read_lane(body.kind, job, at_least=seq)
    verdict = view.verdict_of(draft.op_id)
    if verdict is Reason.OK:
        return Called(body.kind, job, seq, is_new=True)
    if verdict is Reason.EXISTS and view.lane.job is not None:
        return Called(body.kind, job, view.lane.job.scheduled_seq, is_new=False)
    reason = verdict or Reason.MALFORMED
    raise _refused(peer, "the call was rejected", reason)


async def _require_permission(peer: Peer, body: ScheduleBody) -> None:
    """`Rejected` before anything is written that would only be refused."""
    if peer.confirmed == 0:
        await peer.sync_control()
    verdict = peer.foresee(JobSchedule, body, EMPTY, prev=0)
    if verdict is not Reason.OK:
        # Perhaps the grant has only just been written.
        await peer.sync_control()
        verdict = peer.foresee(JobSchedule, body, EMPTY, prev=0)
    if verdict is Reason.OK:
        return
    raise _refused(peer, "the call would be rejected", verdict)


def _refused(peer: Peer, what: str, verdict: Reason) -> Rejected:
    """Why, and what to do about it; where it is about time, whether our own clock is wrong."""
    why = hint = ""
    if verdict in ABOUT_TIME:
        why = peer.author.mesh_time.fault(peer.author.clock.max_drift_ms)
        hint = HINT if why else "'antiphon doctor' compares the clocks"
    elif verdict in LACKS_AUTHORITY:
        hint = "'antiphon who' shows who may do what"
    return Rejected(f"{what}: {why or verdict.in_words}", reason=verdict.value, hint=hint)


async def wait_for_end(peer: Peer, kind: str, job: str) -> Ended:
    """Follow one job's own subject until its lane shows an end."""
    subject = job_subjects.job(peer.mesh, kind, job)
    view = await peer.read_lane(kind, job)
    ended = ended_of(view)
    if ended is not None:
        return ended
    async with peer.log.follow(view.lane.job_tail, subject=subject) as batches:
        async for _ in batches:
            ended = ended_of(await peer.read_lane(kind, job))
            if ended is not None:
                return ended
    raise Unavailable("the log ended before the job did")


def ended_of(view: JobView) -> Ended | None:
    """The end of a lane, or None while there is none."""
    job = view.lane.job
    if job is None or not job.is_terminal:
        return None
    entry = view.entry_at(job.ended_seq)
    if entry is not None and isinstance(entry.op, JobComplete):
        body = entry.op.body
        return Ended(job, body.outputs, body.error, body.exit)
    error = None
    if entry is not None and isinstance(entry.op, JobYield):
        error = entry.op.body.error
    return Ended(job, (), error)


def failure(ended: Ended) -> JobFailed:
    """The error that a caller who wanted a result gets."""
    job = ended.job
    match job.outcome:
        case "exhausted" if job.attempts < job.attempts_max:
            why = "gave up: workers gave it back too often"
        case "exhausted":
            why = f"gave up after {job.attempts} attempt{'s' if job.attempts > 1 else ''}"
            if job.expired_fence == job.fence:
                why += ", the last of which let its lease run out; its worker's log may say why"
        case "expired":
            why = "nobody claimed it in time"
        case "cancelled":
            why = "it was cancelled"
        case _:
            why = "it failed"
    if ended.error is not None:
        why += f": {ended.error.name}: {ended.error.message}"
    return JobFailed(
        f"job {job.job[:8]} ({job.kind}): {why}",
        reason=job.outcome or job.state.value,
        hint=f"antiphon show {job.job[:8]}",
    )


async def cancel(peer: Peer, kind: str, job: str, *, reason: str) -> Job:
    """End a job that has not ended; the job as it stands afterwards."""
    body = CancelBody(kind=kind, job=job, reason=reason)
    for attempt in range(CANCEL_TRIES):
        if attempt:
            await peer.pause(attempt - 1)
        view = await peer.read_lane(kind, job)
        known = view.lane.job
        if known is None:
            raise Rejected(f"there is no job {job[:8]} of kind {kind}", reason="no_job")
        if known.is_terminal:
            return known
        draft = peer.draft(JobCancel, body, prev=view.lane.job_tail)
        try:
            seq = await peer.commit(draft)
        except Conflict:
            continue
        view = await peer.read_lane(kind, job, at_least=seq)
        verdict = view.verdict_of(draft.op_id)
        if verdict is Reason.OK and view.lane.job is not None:
            return view.lane.job
        if verdict is not None and verdict is not Reason.FINISHED:
            raise Rejected(f"cancelling was rejected: {verdict.in_words}", reason=verdict.value)
    raise Unavailable(f"job {job[:8]} changed faster than it could be cancelled")


async def evict(peer: Peer, kind: str, job: str, digest: str) -> Job:
    """Say that an output is kept no longer; the job afterwards. Again changes nothing."""
    body = EvictBody(kind=kind, job=job, hash=digest)
    for attempt in range(CANCEL_TRIES):
        if attempt:
            await peer.pause(attempt - 1)
        view = await peer.read_lane(kind, job)
        known = view.lane.job
        if known is not None and digest in known.evicted:
            return known
        await peer.sync_control()
        foreseen = peer.foresee(JobEvict, body, view.lane, prev=view.lane.job_tail)
        if foreseen is not Reason.OK:
            raise Rejected(
                f"evicting would be rejected: {foreseen.in_words}",
                reason=foreseen.value,
                hint="'antiphon who' shows who may do what" if foreseen in LACKS_AUTHORITY else "",
            )
        try:
            draft = peer.draft(JobEvict, body, prev=view.lane.job_tail)
            seq = await peer.commit(draft)
        except Conflict:
            continue
        view = await peer.read_lane(kind, job, at_least=seq)
        verdict = view.verdict_of(draft.op_id)
        if verdict is Reason.OK and view.lane.job is not None:
            return view.lane.job
        if verdict is not None and not verdict.is_accepted:
            raise Rejected(f"evicting was rejected: {verdict.in_words}", reason=verdict.value)
    raise Unavailable(f"job {job[:8]} changed faster than its output could be evicted")
