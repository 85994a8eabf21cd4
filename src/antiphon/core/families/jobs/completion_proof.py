"""What a completion and its proof state together, and whether it is proved (spec §9).

Whether a completion is accepted is decided by `table._complete`: fence, claimer, this, and what it
says of model calls (`audited_calls`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.jobs.audited_calls import are_accounted_for
from antiphon.core.proof import answer, statement
from antiphon.core.proof.answer import Answered, AnswerPredicate, AnswerStatement
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.cost.job_cost import Cost
    from antiphon.core.families.jobs.ops import CompleteBody, JobComplete
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.family import At
    from antiphon.core.proof.statement import DsseEnvelope, Proof, Statement


def statement_of(mesh: str, author: str, body: CompleteBody, proof: Proof) -> Statement:
    """What the author of a completion states, with this proof."""
    predicate = statement.Predicate(
        mesh=mesh,
        kind=body.kind,
        job=body.job,
        inputs=proof.inputs,
        worker=author,
        fence=body.fence,
        started=body.fence,  # a run begins with its tenure
        ended=proof.ended,
        status=body.status,
        exit=body.exit,
        runner=proof.runner,
        isolation=proof.isolation,
        environment=proof.environment,
        policy_root=proof.policy_root,
        usage=proof.usage,
        cost=proof.cost,
        calls=body.calls,
    )
    return statement.made_of(predicate, body.outputs)


def answer_statement_of(
    mesh: str, author: str, body: CompleteBody, said: Answered
) -> AnswerStatement:
    """What whoever answered a question states."""
    predicate = AnswerPredicate(
        mesh=mesh,
        kind=body.kind,
        job=body.job,
        text=said.text,
        answer=answer.answer_in(body.outputs) or "",
        key=author,
        fence=body.fence,
        answered=said.at,
    )
    return answer.statement_about(predicate)


def envelope_of(mesh: str, author: str, body: CompleteBody) -> DsseEnvelope | None:
    """The proof of a completion as other tools read it; None if it has none."""
    proof, said = body.proof, body.answered
    if said is not None:
        return answer.in_envelope(answer_statement_of(mesh, author, body, said), said.sig)
    if proof is None:
        return None
    return statement.in_envelope(statement_of(mesh, author, body, proof), proof.sig)


def fault(job: Job, body: CompleteBody, author: str, at: At) -> Verdict | None:
    """Why a completion of this job by its holder is not accepted; None: it is."""
    if not is_proved(body, author, at):
        return Verdict.PROOF
    # Nearly every job is neither audited nor says anything of model calls; people make none.
    is_about_calls = body.calls is not None or (job.is_audited and body.answered is None)
    if is_about_calls and not are_accounted_for(job, body):
        return Verdict.AUDIT
    return None


def is_proved(body: CompleteBody, author: str, at: At) -> bool:
    """Whether its own author signed what a completion says.

    A reader that has just signed or verified the proof does not verify it again.
    """
    if at.is_verified and (body.proof is not None or body.answered is not None):
        return True
    return _is_signed(at.control.mesh, author, body)


def is_signed(op: JobComplete) -> bool:
    """The same of an op alone; it names its mesh."""
    return _is_signed(op.mesh, op.author, op.body)


def _is_signed(mesh: str, author: str, body: CompleteBody) -> bool:
    proof, said = body.proof, body.answered
    if said is not None:
        return answer.is_signed_by_key(answer_statement_of(mesh, author, body, said), said.sig)
    if proof is None:
        return False
    return statement.is_signed_by(statement_of(mesh, author, body, proof), author, proof.sig)


def cost_in_proof(body: CompleteBody) -> Cost | None:
    """What a completion says that its tenure cost; its proof has been checked."""
    return None if body.proof is None else body.proof.cost
