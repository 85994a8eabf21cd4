"""Submits a job, waits for its end, cancels it. A client reads one lane and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import (
    CancelBody,
    EvictBody,
    Failure,
    JobCancel,
    JobClaim,
    JobComplete,
    JobEvict,
    JobResolve,
    JobSchedule,
    JobStart,
    JobYield,
    ScheduleBody,
)
from antiphon.core.families.jobs.state import EMPTY, Job, JobLane
from antiphon.core.history.tenures import WORKER_LOST, Tenure, lost_tenures, lost_words
from antiphon.core.manifest import job_id
from antiphon.core.proof.output import Output
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.time_text import hlc_text
from antiphon.decoding import UNREADABLE
from antiphon.errors import (
    JobFailed,
    Rejected,
    Unavailable,
)
from antiphon.runtime import tracing
from antiphon.runtime.caller.holdings import holdings_of
from antiphon.runtime.caller.predecessor_check import check_predecessors
from antiphon.runtime.log.breaker_guard import guarded
from antiphon.runtime.log.writer import Intent, Policy, Written, go_behind, write_one
from antiphon.telemetry import printable_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.record.op import Op
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session

EXIT_HINT: Final = (
    "the task called sys.exit, as argparse and click do: have it raise an error that says why"
)
SECOND_LOOK: Final = 2
"""A copy of the log may be a moment behind: how long to pause before a job is called missing."""


class Submitted(Struct, frozen=True):
    """A job that is on the log, and whether this submission put it there."""

    kind: str
    id: str
    seq: int
    is_new: bool
    lane: JobLane | None = None
    """Its lane as far as it was read for that, if it was."""


class Ended(Struct, frozen=True):
    """A job's end as it is on the log."""

    job: Job
    outputs: tuple[Output, ...]
    error: Failure | None
    exit: int | None = None
    """A command's exit code; negative: the signal that ended it."""
    reason: str = ""
    """Why it was cancelled, as far as that was said."""
    hlc: str = ""
    """The timestamp of the op that ended it, as text."""
    lost: tuple[Tenure, ...] = ()
    """The tenures whose workers were lost, where that used up its attempts."""


async def submit(session: Session, body: ScheduleBody) -> Submitted:
    """Schedule a job. The same (kind, manifest) again finds the first: nothing runs twice.

    `CircuitOpen` at once while the session's breaker is open.

    There may be rejected records on the job's subject, such as an earlier try of ours with a
    wrong clock: the schedule is written after them. A job of a kind that is under a limit gets
    the limit's label, unless it has one.
    """

    def again(now: Written) -> Intent | None:
        return go_behind(now) if now.lane.job is None else None

    with guarded(session):
        if session.confirmed == 0:
            await session.sync_control()
        if body.quorum is not None:
            await _check_quorum(session, body)
        if body.predecessors:
            await check_predecessors(session, [body])
        policy = Policy(again=again, foresees=True, what="the job")
        body = tracing.traced(body)
        intent = Intent(JobSchedule, labelled(session, body), EMPTY)
        try:
            written = await write_one(session, intent, policy)
        except Rejected as refused:
            anew = labelled(session, body)  # the limit may be newer than what was known of the log
            if refused.reason != Verdict.LIMIT.value or anew == intent.body:
                raise
            written = await write_one(session, Intent(JobSchedule, anew, EMPTY), policy)
    job, is_new = written.lane.job, written.verdict is Verdict.OK
    seq = written.seq if is_new or job is None else job.scheduled_seq
    return Submitted(body.kind, job_id(body.manifest), seq, is_new=is_new)


async def _check_quorum(session: Session, body: ScheduleBody) -> None:
    from antiphon.runtime.caller.quorum_check import check_quorums

    await check_quorums(session, [body])


def labelled(session: Session, body: ScheduleBody) -> ScheduleBody:
    """The same with the label of its kind's limit, if it names none (spec §7.3)."""
    if body.concurrency is not None:
        return body
    label = session.control.rules.label_of(body.kind)
    return replace(body, concurrency=label) if label else body


async def wait_for_end(session: Session, kind: str, job_id: str, *, is_known: bool = True) -> Ended:
    """Follow the job's own subject until its lane shows an end.

    `Rejected` at once if there is no such job, unless it `is_known` that there is.
    """
    subject = job_subjects.job(session.mesh, kind, job_id)
    after = 0
    if not is_known:
        view = await look(session, kind, job_id, is_known=False)
        ended = ended_of(view)
        if ended is not None:
            return ended
        after = view.lane.job_tail
    # What is on the subject already comes first, and only what may be an end is a reason to read.
    async with session.log.follow(after, subject=subject) as batches:
        async for batch in batches:
            if not any(may_end(one.payload) for one in batch):
                continue
            ended = ended_of(await session.read_lane(kind, job_id))
            if ended is not None:
                return ended
    raise Unavailable("the log ended before the job did")


async def look(session: Session, kind: str, job_id: str, *, is_known: bool) -> JobView:
    """The job's lane as it is now; `Rejected` if there is no such job, unless it `is_known`."""
    view = await session.read_lane(kind, job_id)
    if view.lane.job is not None or is_known:
        return view
    await session.pause(SECOND_LOOK)
    view = await session.read_lane(kind, job_id)
    if view.lane.job is None:
        raise no_job(kind, job_id)
    return view


class _Peek(Struct):
    type: str


_peek: Final = msgspec.json.Decoder(_Peek).decode
_NO_END: Final = frozenset({JobClaim.type_name(), JobStart.type_name()})


def may_end(payload: bytes) -> bool:
    """Whether a record may be the end of its job; it is not verified."""
    try:
        return _peek(payload[: payload.index(b"\n")]).type not in _NO_END
    except (*UNREADABLE, ValueError):
        return True


def no_job(kind: str, job_id: str) -> Rejected:
    """The error for a job that is not on the log."""
    return Rejected(
        f"there is no job {job_id[:8]} of kind {kind}",
        reason=Verdict.NO_JOB.value,
        hint="'antiphon jobs' lists the newest, and so does 'await mesh.jobs()'",
    )


def ended_of(view: JobView) -> Ended | None:
    """The end of a job, or None while it has none."""
    job = view.lane.job
    if job is None or not job.is_terminal:
        return None
    opened = view.opened_at(job.ended_seq)
    ended = end_by(job, opened.op if opened is not None else None)
    if job.outcome != "exhausted":
        return ended
    lost = lost_tenures((one.opened, one.verdict) for one in view.history)
    return replace(ended, lost=lost)


def end_by(job: Job, op: Op | None) -> Ended:
    """The end of a job that this op ended."""
    hlc = hlc_text(op.hlc) if op is not None else ""
    match op:
        case JobComplete(body=body):
            return Ended(job, body.outputs, body.error, body.exit, hlc=hlc)
        case JobResolve(body=body):
            return Ended(job, body.outputs, None, hlc=hlc)
        case JobYield(body=body):
            return Ended(job, (), body.error, hlc=hlc)
        case JobCancel(body=body):
            return Ended(job, (), None, reason=body.reason, hlc=hlc)
        case _:
            return Ended(job, (), None, hlc=hlc)


def failure(ended: Ended, session: Session | None = None) -> JobFailed:
    """The error for a submitter that wanted a result; the session knows the names of workers."""
    job = ended.job
    match job.outcome:
        case "exhausted" if job.attempts < job.attempts_max:
            why = "gave up: workers gave it back too often"
        case "exhausted":
            why = f"gave up after {job.attempts} attempt{'s' if job.attempts > 1 else ''}"
            if ended.lost:
                name = short_node if session is None else holdings_of(session).name
                why += f"; {lost_words(ended.lost, name)}; the worker's log may say why"
            elif job.expired_fence == job.fence:
                why += "; the last worker's lease ran out, and its log may say why"
        case "expired":
            why = "no worker claimed it in time"
        case "cancelled":
            why = f"it was cancelled: {ended.reason}" if ended.reason else "it was cancelled"
        case _:
            why = "it failed"
    hint = f"antiphon show {job.id[:8]}"
    if ended.error is not None:
        why += f": {ended.error.name}: {printable_lines(ended.error.message)}"
        if ended.error.name == SystemExit.__name__:
            hint += f"; {EXIT_HINT}"
        elif ended.error.name == WORKER_LOST:
            hint += f"; antiphon retry {job.id[:8]}, when the cause is removed"
    return JobFailed(
        f"job {job.id[:8]} ({job.kind}): {why}",
        reason=job.outcome or job.state.value,
        hint=hint,
        kind=job.kind,
        job_id=job.id,
        error_type=ended.error.name if ended.error is not None else "",
        error_message=ended.error.message if ended.error is not None else "",
        attempts=job.tries,
        # Python prints both on a terminal, and a worker that nobody trusts wrote them.
        traceback=printable_lines(ended.error.traceback) if ended.error is not None else "",
    )


async def cancel(session: Session, kind: str, job_id: str, *, reason: str) -> Job:
    """End a job that has not ended; the job afterwards."""
    body = CancelBody(kind=kind, job=job_id, reason=reason)

    def wanted(lane: JobLane) -> Intent | None:
        has_ended = lane.job is not None and lane.job.is_terminal
        return None if has_ended else Intent(JobCancel, body, lane)

    return await _change(session, kind, job_id, wanted, Policy(foresees=True, what="cancelling"))


async def evict(session: Session, kind: str, job_id: str, digest: str) -> Job:
    """Record that an output is no longer kept; the job afterwards. Safe twice."""
    body = EvictBody(kind=kind, job=job_id, hash=digest)

    def wanted(lane: JobLane) -> Intent | None:
        is_gone = lane.job is not None and digest in lane.job.evicted
        return None if is_gone else Intent(JobEvict, body, lane)

    await session.sync_control()
    return await _change(session, kind, job_id, wanted, Policy(foresees=True, what="evicting"))


async def _change(
    session: Session,
    kind: str,
    job_id: str,
    wanted: Callable[[JobLane], Intent | None],
    policy: Policy,
) -> Job:
    """Write what a job's state calls for, if anything; the job afterwards."""
    with guarded(session):
        return await _change_now(session, kind, job_id, wanted, policy)


async def _change_now(
    session: Session,
    kind: str,
    job_id: str,
    wanted: Callable[[JobLane], Intent | None],
    policy: Policy,
) -> Job:
    lane = (await session.read_lane(kind, job_id)).lane
    if lane.job is None:
        raise no_job(kind, job_id)
    intent, known = wanted(lane), lane.job
    if intent is not None:
        policy = replace(policy, again=lambda now: wanted(now.lane))
        known = (await write_one(session, intent, policy)).lane.job or known
    return known
