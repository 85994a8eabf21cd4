"""The life of a job as data: who submitted it, who claimed it, how it ended.

It is made of the records that the log accepted, in their order, and of nothing else: the same log
gives the same history on every machine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.completion_proof import envelope_of
from antiphon.core.families.jobs.derivation import Cause
from antiphon.core.families.jobs.ops import (
    JobClaim,
    JobComplete,
    JobExpire,
    JobResolve,
    JobSchedule,
    JobYield,
)
from antiphon.core.manifest import BlobInput, Manifest, inputs_of
from antiphon.core.proof import statement
from antiphon.core.proof.output import Output
from antiphon.core.record import codec
from antiphon.core.record.ids import digest, public_key_of
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.bundle import Report
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.op import Op

PUSHED: Final = "pushed-{}.commit"
"""The name of the input that is the pushed commit; in it, the commit's Git id."""
_PUSHED: Final = re.compile(r"pushed-([0-9a-f]{40}|[0-9a-f]{64})\.commit", re.ASCII)


class Claim(Struct, frozen=True, kw_only=True):
    """One tenure of a job."""

    worker: str
    """Its did:key."""
    fence: str
    at_ms: int
    ended: str = ""
    """How it ended without a result: `expired`, or `yielded` and why; empty: it did not."""
    ended_by: str = ""
    ended_ms: int = 0


class Ending(Struct, frozen=True, kw_only=True):
    """How a job ended."""

    outcome: str
    by: str
    """The did:key that wrote the end."""
    at_ms: int
    trailers: tuple[tuple[str, str], ...] = ()
    """Those of its proof."""
    proof: bytes | None = None
    """The DSSE envelope as canonical JSON; None where no run was completed."""
    outputs: bytes = b"[]\n"
    """Pointers to the outputs, as JSON."""
    agreed: tuple[str, ...] = ()
    """The replicas that agreed on the result, if it has some."""


class JobHistory(Struct, frozen=True, kw_only=True):
    """A job's life so far."""

    mesh: str
    kind: str
    id: str
    is_first: bool
    """Whether no other kind had a job with this id before."""
    manifest: bytes
    """As canonical JSON: without an alias, the job's id is the BLAKE3 of exactly these bytes."""
    submitter: str
    at_ms: int
    priority: str
    commit: str = ""
    """The Git id of the pushed commit that it was submitted for, as its submitter says."""
    cause: tuple[str, str] | None = None
    """The kind and the id of the job whose end a plan answered with it; None if none did."""
    claims: tuple[Claim, ...] = ()
    ending: Ending | None = None


def key_id(did: str) -> str:
    """A key as the trailers name it: `ed25519:` and its hexadecimal digits."""
    return f"ed25519:{public_key_of(did).hex()}"


def history_of(
    mesh: str, job: Job, records: Iterable[OpenedRecord], *, is_first: bool
) -> JobHistory | None:
    """The life of a job, from its accepted records; None if its submission is not among them."""
    history: JobHistory | None = None
    claims: list[Claim] = []
    ending: Ending | None = None
    for record in records:
        op, at_ms = record.op, record.commit_ms
        if isinstance(op, JobSchedule) and history is None:
            history = _submitted(mesh, op, job, at_ms, is_first=is_first)
        elif isinstance(op, JobClaim) and op.body.fence is None:
            claims.append(Claim(worker=op.author, fence=hlc.pack(op.hlc), at_ms=at_ms))
        elif isinstance(op, JobYield | JobExpire):
            claims = [_ended(one, op, at_ms) for one in claims]
        if op is not None and job.is_terminal and record.seq == job.ended_seq:
            ending = _ending(op, job, at_ms)
    return None if history is None else replace(history, claims=tuple(claims), ending=ending)


def history_in(report: Report, *, is_first: bool) -> JobHistory | None:
    """The life of the job in a bundle that was checked; None if it is not about a job."""
    if not report.is_job:
        return None
    accepted = (opened for opened, verdict in report.lane if verdict is Verdict.OK)
    return history_of(report.mesh, report.job, accepted, is_first=is_first)


def is_pushed_input(history: JobHistory, commit_id: str, data: bytes) -> bool:
    """Whether these bytes of a commit are the pushed commit that a job has as an input."""
    manifest = json.decode(history.manifest, type=Manifest)
    given = inputs_of(manifest)
    blobs = (one for one in given if isinstance(one, BlobInput))
    return any((one.name, one.hash) == (PUSHED.format(commit_id), digest(data)) for one in blobs)


def _submitted(mesh: str, op: JobSchedule, job: Job, at_ms: int, *, is_first: bool) -> JobHistory:
    derived = op.body.derived
    return JobHistory(
        mesh=mesh,
        kind=job.kind,
        id=job.id,
        is_first=is_first,
        manifest=codec.encode(op.body.manifest),
        submitter=op.author,
        at_ms=at_ms,
        priority=op.body.priority,
        commit=pushed_commit(op.body.manifest),
        cause=(derived.kind, derived.job) if isinstance(derived, Cause) else None,
    )


def pushed_commit(manifest: Manifest) -> str:
    """The Git id of the pushed commit among a job's inputs; empty if there is none."""
    given = inputs_of(manifest)
    for one in given:
        found = _PUSHED.fullmatch(str(one.name)) if isinstance(one, BlobInput) else None
        if found is not None:
            return found[1]
    return ""


def _ended(claim: Claim, op: JobYield | JobExpire, at_ms: int) -> Claim:
    if claim.ended or claim.fence != op.body.fence:
        return claim
    why = f"yielded {op.body.reason}" if isinstance(op, JobYield) else "expired"
    return replace(claim, ended=why, ended_by=op.author, ended_ms=at_ms)


def _ending(op: Op, job: Job, at_ms: int) -> Ending:
    made = Ending(outcome=job.outcome or job.state.value, by=op.author, at_ms=at_ms)
    if isinstance(op, JobResolve):
        agreed = tuple(child for child, _ in op.body.children)
        return replace(made, outputs=_pointers(op.body.outputs), agreed=agreed)
    if not isinstance(op, JobComplete):
        return made
    made = replace(made, outputs=_pointers(op.body.outputs))
    envelope = envelope_of(op.mesh, op.author, op.body)
    if envelope is None:
        return made
    if op.body.answered is not None:  # nothing was executed
        return replace(made, proof=codec.encode(envelope))
    lines = tuple(statement.trailers(envelope))
    return replace(made, proof=codec.encode(envelope), trailers=lines)


def _pointers(outputs: Iterable[Output]) -> bytes:
    plain = [{"name": one.name, "type": one.type, **to_builtins(one.content)} for one in outputs]
    return json.format(json.encode(plain, order="deterministic"), indent=1) + b"\n"
