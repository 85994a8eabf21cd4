"""What a member does with jobs and questions that it may hold: `claim` and `answer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.core.clock import hlc
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import (
    MAX_AFTER,
    ClaimBody,
    CompleteBody,
    Failure,
    JobClaim,
    JobComplete,
    JobYield,
    YieldBody,
)
from antiphon.core.families.jobs.state import State
from antiphon.core.proof.answer import answer_output
from antiphon.runtime.executors.proof_writer import Run, prove, python_runner
from chaos.hostile.rights.member import KIND, Member, Step

ERROR: Final = Failure(name="Fault", message="x" * 4_096)
LONG_ANSWER: Final = 16_000
QUESTION: Final = "What should become of it?"
"""What the run asks the member that may answer."""

# --- claim --------------------------------------------------------------------------------------


async def _held(
    member: Member, jobs: Sequence[str], *, answers: bool = False
) -> tuple[str, str, int] | None:
    """One of these that it claims, or already holds: its id, fence and the end of its subject.

    With `answers` they are questions.
    """
    job = jobs[member.number() % len(jobs)]
    view = await member.session.read_lane(KIND, job)
    found, tail = view.lane.job, view.lane.job_tail
    if found is None or found.is_terminal:
        return None
    if found.claimer == member.key.did and found.state is not State.PENDING:
        return job, found.fence, tail
    lease_ms = member.session.control.rules.lease_ms
    body = ClaimBody(kind=KIND, job=job, lease_ms=lease_ms, begin=True, answers=answers)
    draft = member.session.draft(JobClaim, body, prev=tail)
    seq = await member.session.commit(draft, timeout_s=3)
    return job, hlc.pack(draft.op.hlc), seq


def _halves(member: Member) -> tuple[list[str], list[str]]:
    """Jobs that fail, and jobs that wait for them."""
    half = len(member.jobs) // 2
    return member.jobs[:half], member.jobs[half:]


async def _give_back(member: Member, **how: Any) -> None:
    held = await _held(member, _halves(member)[1])
    if held is None:
        return
    job, fence, tail = held
    body = YieldBody(kind=KIND, job=job, fence=fence, **how)
    await member.session.commit(member.session.draft(JobYield, body, prev=tail), timeout_s=3)


async def _fail_at_length(member: Member) -> None:
    """End one of its jobs with the longest error, so that others of its jobs wait for it."""
    held = await _held(member, _halves(member)[0])
    if held is None:
        return
    job, fence, tail = held
    view = await member.session.read_lane(KIND, job)
    if view.submitted_with is None:
        return
    run = Run(
        manifest=view.submitted_with.manifest,
        usage=Usage(wall_ms=1),
        runner=python_runner(),
    )
    body = CompleteBody(kind=KIND, job=job, fence=fence, status="failed", exit=1, error=ERROR)
    proved = prove(member.session, body, run)
    await member.session.commit(member.session.draft(JobComplete, proved, prev=tail), timeout_s=3)


async def _wait_for_many(member: Member) -> None:
    """Give a job back until all of its own have ended, as often as they can be named."""
    named = [(KIND, one) for one in member.jobs]
    after = tuple((named * (MAX_AFTER // len(named) + 1))[:MAX_AFTER])
    await _give_back(member, reason="after", after=after)


async def _wait_for_failures(member: Member) -> None:
    """The same with those that failed, so that every error is repeated to it."""
    failed = [(KIND, one) for one in _halves(member)[0][:64]]
    await _give_back(member, reason="after", after=tuple(failed))


async def _claim_and_yield(member: Member) -> None:
    await _give_back(member, reason="later", error=ERROR)


# --- answer -------------------------------------------------------------------------------------


async def _take_questions(member: Member) -> None:
    """Take a question so that nobody else can answer, and renew that for as little as it may."""
    held = await _held(member, member.jobs, answers=True)
    if held is None:
        return
    job, fence, tail = held
    least_ms = member.session.control.rules.lease_min_ms
    body = ClaimBody(kind=KIND, job=job, lease_ms=least_ms, fence=fence, answers=True)
    await member.session.commit(member.session.draft(JobClaim, body, prev=tail), timeout_s=3)


async def _leave_questions(member: Member) -> None:
    """Take a question, and give it back with a long error."""
    held = await _held(member, member.jobs, answers=True)
    if held is None:
        return
    job, fence, tail = held
    body = YieldBody(kind=KIND, job=job, fence=fence, reason="later", error=ERROR)
    await member.session.commit(member.session.draft(JobYield, body, prev=tail), timeout_s=3)


async def _long_answers(member: Member) -> None:
    """Answer at the greatest length that an answer may have."""
    await _answered(member, "x" * LONG_ANSWER)


async def _no_answers(member: Member) -> None:
    """Answer what was not asked, so that it is refused on the question's lane."""
    await _answered(member, "x" * LONG_ANSWER, text="something else")


async def _answered(member: Member, said: str, text: str = QUESTION) -> None:
    held = await _held(member, member.jobs, answers=True)
    if held is None:
        return
    job, fence, tail = held
    outputs = (answer_output(msgspec.json.encode(said).decode()),)
    body = CompleteBody(kind=KIND, job=job, fence=fence, status="succeeded", outputs=outputs)
    signed = member.session.author.answer(body, text)
    await member.session.commit(member.session.draft(JobComplete, signed, prev=tail), timeout_s=3)


CLAIMS: Final[dict[str, Step]] = {
    "claim and yield": _claim_and_yield,
    "wait for many": _wait_for_many,
    "fail at length": _fail_at_length,
    "wait for failures": _wait_for_failures,
}
ANSWERS: Final[dict[str, Step]] = {
    "take questions": _take_questions,
    "leave questions": _leave_questions,
    "long answers": _long_answers,
    "no answers": _no_answers,
}
