"""Answers a question with this process's key: takes it, signs the answer, completes it.

The two records are the same as those of a worker that runs a job. In between nobody else can
answer; if this process ends there, the question is open again when the lease is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.core.authority.parties import party_of
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    Failure,
    JobClaim,
    JobComplete,
    JobSchedule,
)
from antiphon.core.families.jobs.replicas import child_body, most_children
from antiphon.core.families.jobs.state import HELD, Job, State
from antiphon.core.manifest import job_id
from antiphon.core.proof.answer import Question, answer_output, answer_problem, is_wanted
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Held, Malformed, Rejected, Unavailable
from antiphon.runtime.caller.submission import no_job
from antiphon.runtime.log.writer import Intent, Policy, Written, go_behind, whole_lane, write_one

if TYPE_CHECKING:
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session

DECLINED = "Declined"
"""The name of the error of a question whose answer is not the one that it needs."""


async def answer(session: Session, kind: str, name: str, value: Any) -> Job:
    """Answer an open question; the question's job afterwards.

    Of a question to several people, one that is still open is answered. `Malformed` if the value
    is no answer to it, `Rejected` if this key may not answer it, or it has ended.
    """
    view = await session.read_lane(kind, name)
    job, question = _open(view, kind, name)
    text = msgspec.json.encode(value).decode()
    problem = answer_problem(question, text)
    if problem:
        raise Malformed(f"this is no answer to {question.text!r}: {problem}", reason="answer")
    if job.replicas:
        view = await _one_of(session, view, job)
    taken = await _taken(session, view, kind)
    return await _completed(session, taken, question, text)


def _open(view: JobView, kind: str, name: str) -> tuple[Job, Question]:
    job = view.lane.job
    if job is None:
        raise no_job(kind, name)
    if job.question is None:
        raise Rejected(
            f"{kind} {name[:8]} is a job, not a question",
            reason="question",
            hint="antiphon questions",
        )
    if job.is_terminal:
        how = "was answered" if job.state is not State.ABORTED else f"ended as {job.outcome}"
        raise Rejected(
            f"the question {name[:8]} {how} already",
            reason="finished",
            hint=f"antiphon show {name[:8]}",
        )
    return job, job.question


async def _one_of(session: Session, parent: JobView, job: Job) -> JobView:
    """One of the questions to several people that nobody has taken, unless this party answered."""
    asked = next(one.opened for one in parent.history if isinstance(one.opened.op, JobSchedule))
    body, control, me = parent.submitted_with, session.control, session.author.did
    auth = session.choose_auth(JobClaim, _claim(job))
    party = party_of(control, me, auth, before=session.confirmed + 1)
    found: JobView | None = None
    for index in range(most_children(job.replicas)):
        if body is None:
            break
        child = child_body(body, asked.op_id, index)
        view = await session.read_lane(job.kind, job_id(child.manifest))
        one = view.lane.job
        if one is None:
            break
        if one.claimer and party_of(control, one.claimer, one.auth, before=one.auth_seq) == party:
            if one.is_terminal:
                raise Rejected(
                    f"you have answered the question {job.id[:8]} already; others have to agree",
                    reason="already",
                )
            return view
        if found is None and one.state is State.PENDING:
            found = view
    if found is None:
        raise Unavailable(
            f"nobody else is asked {job.id[:8]} right now", hint="try again in a moment"
        )
    return found


def _claim(job: Job) -> ClaimBody:
    return ClaimBody(kind=job.kind, job=job.id, lease_ms=job.lease_ms, answers=True, begin=True)


async def _taken(session: Session, view: JobView, kind: str) -> JobView:
    """The question, held by this key."""
    job = view.lane.job
    if job is None:
        raise no_job(kind, "")
    me = session.author.did
    if job.state in HELD and job.claimer == me:
        return view

    def again(now: Written) -> Intent | None:
        return go_behind(now) if now.lane.job.state is State.PENDING else None

    policy = Policy(again=again, foresees=True, look=whole_lane, what="the answer")
    if job.state in HELD:
        written = Written(Intent(JobClaim, _claim(job)), lane=view.lane)
    else:
        written = await write_one(session, Intent(JobClaim, _claim(job), view.lane), policy)
    if written.verdict is not Verdict.OK or written.view is None:
        raise Held(
            f"somebody else is answering {job.id[:8]} right now",
            hint="try again in half a minute if it is still open: antiphon questions",
        )
    taken: JobView = written.view
    return taken


async def _completed(session: Session, view: JobView, question: Question, text: str) -> Job:
    job = view.lane.job
    if job is None:
        raise ValueError("a question that was taken is there")
    wanted = is_wanted(question, text)
    body = CompleteBody(
        kind=job.kind,
        job=job.id,
        fence=job.fence,
        status="succeeded" if wanted else "failed",
        outputs=(answer_output(text),),
        error=None if wanted else Failure(name=DECLINED, message=f"the answer is {text}"),
    )
    signed = session.author.answer(body, question.text)
    policy = Policy(again=go_behind, look=whole_lane, what="the answer")
    written = await write_one(session, Intent(JobComplete, signed, view.lane), policy)
    ended: Job = written.lane.job
    return ended
