"""Answers a question with this process's key: takes it, signs the answer, completes it.

The two records are the same as those of a worker that runs a job. In between nobody else can
answer; if this process ends there, the question is open again when the lease is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from antiphon.core.authority.parties import party_of
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    Failure,
    JobClaim,
    JobComplete,
    JobSchedule,
)
from antiphon.core.families.jobs.questions import exclusion
from antiphon.core.families.jobs.replicas import child_body, most_children
from antiphon.core.families.jobs.state import HELD, Job, State
from antiphon.core.families.jobs.table import standing
from antiphon.core.manifest import job_id
from antiphon.core.proof.answer import Question, answer_in, answer_output, answer_problem, is_wanted
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Held, Malformed, Rejected, Unavailable
from antiphon.runtime.caller.submission import no_job
from antiphon.runtime.log.writer import Intent, Policy, Written, go_behind, whole_lane, write_one

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session

DECLINED = "Declined"
"""The name of the error of a question whose answer is not the one that it needs."""


class Asker(Struct, frozen=True):
    """Somebody who has this process answer: a key, and the delegations that it shows."""

    did: str
    auth: tuple[str, ...]


async def answer(
    session: Session, kind: str, name: str, value: Any, *, asker: Asker | None = None
) -> Job:
    """Answer an open question; the question's job afterwards.

    Of a question to several people, one that is still open is answered. `Malformed` if the value
    is no answer to it, `Rejected` if this key may not answer it, or it has ended.

    With `asker` it is also refused if its party asks the question or is excluded from it, or if
    several people are asked: nobody gets a second voice by speaking through another key.
    """
    view = await session.read_lane(kind, name)
    job, question = _open(view, kind, name)
    if asker is not None:
        await _require_other(session, job, question, asker)
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


async def given(session: Session, kind: str, name: str, value: Any) -> Job | None:
    """The question's job, if this key has given exactly this answer to it; otherwise None."""
    view = await session.read_lane(kind, name)
    views = [view]
    if view.lane.job is not None and view.lane.job.replicas:
        views += [child async for child in _children(session, view, view.lane.job)]
    for one in views:
        for judged in one.history:
            op = judged.opened.op
            if judged.verdict is not Verdict.OK or not isinstance(op, JobComplete):
                continue
            text = answer_in(op.body.outputs) if op.author == session.author.did else None
            if text is not None and msgspec.json.decode(text) == value:
                return one.lane.job
    return None


def is_taken(session: Session, job: Job) -> bool:
    """Whether somebody is answering a question.

    Not who lost its authority meanwhile: its tenure is over, though no record on the lane says so.
    """
    now = standing(session.control, job, session.confirmed + 1)
    return now is not None and now.state in HELD


async def _require_other(session: Session, job: Job, question: Question, asker: Asker) -> None:
    control, before = await session.sync_control(), session.confirmed + 1
    fault = exclusion(job, question, asker.did, asker.auth, control=control, before=before)
    if fault is not None:
        raise Rejected(
            "whoever asks a question may not answer it, and neither may those that it excludes",
            reason=fault.value,
        )
    if (job.replicas or job.replica_of) and asker.did != session.author.did:
        raise Rejected(
            "several people are asked, and each of them has to sign with a key of their own",
            reason="own_key",
            hint=f"on your own machine: antiphon answer {job.id[:8]} ANSWER",
        )


async def _children(session: Session, parent: JobView, job: Job) -> AsyncIterator[JobView]:
    """The questions to each of several people, as far as they are asked."""
    asked = next(one.opened for one in parent.history if isinstance(one.opened.op, JobSchedule))
    body = parent.submitted_with
    if body is None:
        return
    for index in range(most_children(job.replicas)):
        child = child_body(body, asked.op_id, index)
        view = await session.read_lane(job.kind, job_id(child.manifest))
        if view.lane.job is None:
            break
        yield view


async def _one_of(session: Session, parent: JobView, job: Job) -> JobView:
    """One of the questions to several people that nobody has taken, unless this party answered."""
    control, me = session.control, session.author.did
    auth = session.choose_auth(JobClaim, _claim(job))
    party = party_of(control, me, auth, before=session.confirmed + 1)
    found: JobView | None = None
    async for view in _children(session, parent, job):
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
        if found is None and not one.is_terminal and not is_taken(session, one):
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
    if is_taken(session, job) and job.claimer == me:
        return view

    def again(now: Written) -> Intent | None:
        there = now.lane.job
        return None if there.is_terminal or is_taken(session, there) else go_behind(now)

    policy = Policy(again=again, foresees=True, look=whole_lane, what="the answer")
    if is_taken(session, job):
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
