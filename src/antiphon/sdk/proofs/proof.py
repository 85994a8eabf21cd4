"""The proof that a job's completion carries, for people and for other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.core.cost.words import cost_words, unmeasured_words, usage_words
from antiphon.core.families.jobs.completion_proof import envelope_of
from antiphon.core.families.jobs.ops import JobComplete
from antiphon.core.proof import answer, statement
from antiphon.core.proof.statement import DsseEnvelope, Proof, Statement
from antiphon.errors import Rejected

if TYPE_CHECKING:
    from antiphon.sdk.handle import JobHandle


async def proof_of(handle: JobHandle[Any]) -> DsseEnvelope:
    """The proof in a job's accepted completion; `Rejected` if there is none (yet)."""
    view = await handle.lane()
    job = view.lane.job
    opened = view.opened_at(job.ended_seq) if job is not None and job.is_terminal else None
    if opened is None:
        raise Rejected(
            f"job {handle.id[:8]} has not ended, so there is no proof yet",
            reason="no_proof",
            hint=f"antiphon show {handle.id[:8]}",
        )
    op = opened.op
    envelope = envelope_of(op.mesh, op.author, op.body) if isinstance(op, JobComplete) else None
    if envelope is None:
        raise Rejected(
            f"job {handle.id[:8]} ended without a proof: no run of it was completed",
            reason="no_proof",
            hint=f"antiphon show {handle.id[:8]}",
        )
    return envelope


open_envelope = statement.open_envelope
open_answer = answer.open_envelope
to_json = statement.to_json
trailers = statement.trailers

__all__ = [
    "DsseEnvelope",
    "Proof",
    "Statement",
    "cost_words",
    "open_answer",
    "open_envelope",
    "proof_of",
    "to_json",
    "trailers",
    "unmeasured_words",
    "usage_words",
]
