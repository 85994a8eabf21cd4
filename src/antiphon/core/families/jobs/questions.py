"""Questions to people, as the rules of a job's lane have them (spec §7.3).

A question is a job of a kind that people hold. No worker is told about it: it is neither announced
nor offered. Whoever may answer claims it, saying so, and completes it with a signed answer. The
party that asked may not answer, nor may those that the question excludes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from antiphon.core.authority import parties
from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.state import Job, job_key
from antiphon.core.manifest import Manifest, NonceInput
from antiphon.core.proof import answer
from antiphon.core.proof.answer import Question
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.family import At
    from antiphon.core.record.op import Op

COMMAND = "@question"
"""The command in the manifest of every question; its one argument is the question's digest."""


def question_manifest(question: Question, nonce: NonceInput) -> Manifest:
    """The content of a question's job: its id follows from what is asked."""
    return Manifest(
        command=(COMMAND,),
        args=(answer.question_digest(question),),
        timeout=ANSWER_S,
        inputs=(nonce,),
    )


ANSWER_S = 600
"""How long somebody may hold a question before the answer is there."""


def schedule_fault(body: ops.ScheduleBody) -> Verdict | None:
    """Why a schedule that asks a question is none that can be answered, or None."""
    question = body.question
    if question is None:
        return None
    named = (body.manifest.command, body.manifest.args)
    if named != ((COMMAND,), (answer.question_digest(question),)):
        return Verdict.QUESTION
    waits = body.not_before is not None or body.concurrency is not None or body.predecessors
    if waits or body.derived is not None or answer.question_problem(question):
        return Verdict.QUESTION
    return None


def claim_fault(job: Job, op: ops.JobClaim, at: At) -> Verdict | None:
    """Why an op may not claim a job as a question, or as no question; None if it may."""
    question = job.question
    if op.body.answers != (question is not None):
        return Verdict.QUESTION
    if question is None:
        return None
    return exclusion(job, question, op.author, op.auth, control=at.control, before=at.seq)


def exclusion(
    job: Job,
    question: Question,
    node: str,
    auth: tuple[str, ...],
    *,
    control: Control,
    before: int,
) -> Verdict | None:
    """`self` if a node with these delegations is of a party that may not answer a question."""
    who = parties.party_of(control, node, auth, before=before)
    asks = parties.party_of(
        control, job.scheduler, job.call_auth, before=max(job.scheduled_seq, job.parent_seq)
    )
    if not who or who == asks or node == job.scheduler:
        return Verdict.SELF
    return Verdict.SELF if {who, node} & set(question.not_by) else None


def answer_fault(job: Job, body: ops.CompleteBody) -> Verdict | None:
    """Why a completion is no answer to the question of a job; None if it is one.

    Whether its statement is signed is checked with the proofs (`completion_proof`).
    """
    question, said = job.question, body.answered
    if question is None or said is None:
        return None if question is None and said is None else Verdict.ANSWER
    text = answer.answer_in(body.outputs)
    if text is None or said.text != question.text or body.proof is not None:
        return Verdict.ANSWER
    if answer.answer_problem(question, text):
        return Verdict.ANSWER
    is_wanted = answer.is_wanted(question, text)
    return None if is_wanted == (body.status == "succeeded") else Verdict.ANSWER


def answers_named(accepted: Iterable[Op]) -> tuple[LaneKey, ...]:
    """The questions whose answers a job went on with, by the accepted ops of its lane in order."""
    found = dict[LaneKey, None]()
    awaited: tuple[ops.JobKey, ...] = ()
    for op in accepted:
        if isinstance(op, ops.JobYield):
            awaited = op.body.after
        elif isinstance(op, ops.JobOffer) and len(op.body.results) == len(awaited):
            results = zip(awaited, op.body.results, strict=True)
            found.update({job_key(*key): None for key, result in results if result.is_answer})
    return tuple(found)
