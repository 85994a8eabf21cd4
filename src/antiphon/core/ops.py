"""The ops: a closed union, and nothing else is ever an op (spec §4.1, §7.2, §7.4).

Every envelope field is always written; in bodies a field at its default is not. With the strict
reading of `codec.decode` each op therefore has exactly one spelling.

The subject is a function of the op: `subject_of` is the only place that knows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core import subjects
from antiphon.core.bodies import (
    MAX_DEPS,
    CancelBody,
    ClaimBody,
    Class,
    CompleteBody,
    CoordinatorBody,
    Count,
    DelegateBody,
    Did,
    DsseEnvelope,
    DsseSignature,
    EvictBody,
    EvidenceBody,
    ExpireBody,
    Failure,
    Fence,
    Genesis,
    JobId,
    Kind,
    Label,
    Logical,
    OfferBody,
    Output,
    ReadmitBody,
    RecoverBody,
    Retry,
    RevokeBody,
    RouteBody,
    RulesBody,
    ScheduleBody,
    SealBody,
    Seq,
    StartBody,
    Text,
    Wall,
    YieldBody,
)
from antiphon.core.grants import open_token
from antiphon.core.ids import mesh_id
from antiphon.core.manifest import Digest, job_id

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CONTROL_TYPES",
    "JOB_TYPES",
    "MAX_AUTH",
    "MAX_DEPS",
    "TYPE_NAMES",
    "VERSION",
    "AnyOp",
    "CancelBody",
    "ClaimBody",
    "Class",
    "CompleteBody",
    "ControlOp",
    "CoordinatorBody",
    "Count",
    "DelegateBody",
    "Did",
    "DsseEnvelope",
    "DsseSignature",
    "EvictBody",
    "EvidenceBody",
    "ExpireBody",
    "Failure",
    "Fence",
    "Genesis",
    "JobCancel",
    "JobClaim",
    "JobComplete",
    "JobEvict",
    "JobExpire",
    "JobId",
    "JobOffer",
    "JobOp",
    "JobSchedule",
    "JobStart",
    "JobYield",
    "Kind",
    "Label",
    "Logical",
    "MeshCoordinator",
    "MeshEvidence",
    "MeshGenesis",
    "MeshReadmit",
    "MeshRecover",
    "MeshRoute",
    "MeshRules",
    "MeshSeal",
    "OfferBody",
    "Op",
    "Output",
    "ReadmitBody",
    "RecoverBody",
    "Retry",
    "RevokeBody",
    "RouteBody",
    "RulesBody",
    "ScheduleBody",
    "SealBody",
    "Seq",
    "StartBody",
    "Text",
    "UcanDelegate",
    "UcanRevoke",
    "Wall",
    "YieldBody",
    "decoder",
    "key_of",
    "subject_of",
]

VERSION: Final = 1
MAX_AUTH: Final = 16


class Op(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", gc=False):
    """The envelope; its bytes' BLAKE3 is the op's id."""

    v: Literal[1]
    mesh: Annotated[str, Meta(pattern=r"^([a-z2-7]{16})?\Z")]
    author: Annotated[str, Meta(min_length=1, max_length=64)]
    hlc: tuple[Wall, Logical]
    prev: Seq
    """The last sequence that the author saw on this op's subject; 0 = nothing."""
    deps: Annotated[tuple[tuple[Seq, Digest], ...], Meta(max_length=MAX_DEPS)]
    auth: Annotated[tuple[Annotated[str, Meta(max_length=128)], ...], Meta(max_length=MAX_AUTH)]

    TYPE: ClassVar[str]


class MeshGenesis(Op, frozen=True, tag="mesh.genesis"):
    """Founds the mesh."""

    body: Genesis
    TYPE: ClassVar[str] = "mesh.genesis"


class MeshRules(Op, frozen=True, tag="mesh.rules"):
    """Replaces the rules."""

    body: RulesBody
    TYPE: ClassVar[str] = "mesh.rules"


class MeshRoute(Op, frozen=True, tag="mesh.route"):
    """Sets or clears a route."""

    body: RouteBody
    TYPE: ClassVar[str] = "mesh.route"


class MeshCoordinator(Op, frozen=True, tag="mesh.coordinator"):
    """Names the coordinator."""

    body: CoordinatorBody
    TYPE: ClassVar[str] = "mesh.coordinator"


class MeshRecover(Op, frozen=True, tag="mesh.recover"):
    """Replaces the owner."""

    body: RecoverBody
    TYPE: ClassVar[str] = "mesh.recover"


class MeshEvidence(Op, frozen=True, tag="mesh.evidence"):
    """Quarantines an author that signed two ops with one timestamp."""

    body: EvidenceBody
    TYPE: ClassVar[str] = "mesh.evidence"


class MeshReadmit(Op, frozen=True, tag="mesh.readmit"):
    """Ends a quarantine."""

    body: ReadmitBody
    TYPE: ClassVar[str] = "mesh.readmit"


class MeshSeal(Op, frozen=True, tag="mesh.seal"):
    """Vouches for the log so far."""

    body: SealBody
    TYPE: ClassVar[str] = "mesh.seal"


class UcanDelegate(Op, frozen=True, tag="ucan.delegate"):
    """Grants."""

    body: DelegateBody
    TYPE: ClassVar[str] = "ucan.delegate"


class UcanRevoke(Op, frozen=True, tag="ucan.revoke"):
    """Takes back."""

    body: RevokeBody
    TYPE: ClassVar[str] = "ucan.revoke"


class JobSchedule(Op, frozen=True, tag="job.schedule"):
    """Calls a job."""

    body: ScheduleBody
    TYPE: ClassVar[str] = "job.schedule"


class JobOffer(Op, frozen=True, tag="job.offer"):
    """Announces a job."""

    body: OfferBody
    TYPE: ClassVar[str] = "job.offer"


class JobClaim(Op, frozen=True, tag="job.claim"):
    """Takes or renews a lease."""

    body: ClaimBody
    TYPE: ClassVar[str] = "job.claim"


class JobStart(Op, frozen=True, tag="job.start"):
    """Begins to run."""

    body: StartBody
    TYPE: ClassVar[str] = "job.start"


class JobComplete(Op, frozen=True, tag="job.complete"):
    """Ends a job with an outcome."""

    body: CompleteBody
    TYPE: ClassVar[str] = "job.complete"


class JobYield(Op, frozen=True, tag="job.yield"):
    """Gives a job back."""

    body: YieldBody
    TYPE: ClassVar[str] = "job.yield"


class JobExpire(Op, frozen=True, tag="job.expire"):
    """Ends what outlasted its time."""

    body: ExpireBody
    TYPE: ClassVar[str] = "job.expire"


class JobCancel(Op, frozen=True, tag="job.cancel"):
    """Aborts a job."""

    body: CancelBody
    TYPE: ClassVar[str] = "job.cancel"


class JobEvict(Op, frozen=True, tag="job.evict"):
    """Lets an output's bytes go."""

    body: EvictBody
    TYPE: ClassVar[str] = "job.evict"


ControlOp = (
    MeshGenesis
    | MeshRules
    | MeshRoute
    | MeshCoordinator
    | MeshRecover
    | MeshEvidence
    | MeshReadmit
    | UcanDelegate
    | UcanRevoke
)
JobOp = (
    JobSchedule
    | JobOffer
    | JobClaim
    | JobStart
    | JobComplete
    | JobYield
    | JobExpire
    | JobCancel
    | JobEvict
)
AnyOp = ControlOp | JobOp | MeshSeal

CONTROL_TYPES: Final = (
    MeshGenesis,
    MeshRules,
    MeshRoute,
    MeshCoordinator,
    MeshRecover,
    MeshEvidence,
    MeshReadmit,
    UcanDelegate,
    UcanRevoke,
)
JOB_TYPES: Final = (
    JobSchedule,
    JobOffer,
    JobClaim,
    JobStart,
    JobComplete,
    JobYield,
    JobExpire,
    JobCancel,
    JobEvict,
)
TYPE_NAMES: Final = frozenset(kind.TYPE for kind in (*CONTROL_TYPES, *JOB_TYPES, MeshSeal))

decoder: Final[msgspec.json.Decoder[AnyOp]] = msgspec.json.Decoder(AnyOp)


def _schedule_subject(mesh: str, op: JobSchedule) -> str:
    job = job_id(op.body.manifest)
    if op.body.waits:
        return subjects.wait(mesh, op.body.kind, job)
    return subjects.call(mesh, op.body.urgency, op.body.kind, job)


def _offer_subject(mesh: str, op: JobOffer) -> str:
    return subjects.call(mesh, op.body.urgency, op.body.kind, op.body.job)


def _job_subject(mesh: str, op: JobClaim | JobStart | JobComplete) -> str:
    return f"ap.{mesh}.job.{op.body.kind}.{op.body.job}"


def key_of(did: str) -> str:
    """A node's id as one subject token."""
    return did.removeprefix("did:key:")


_SUBJECTS: Final[dict[type, Callable[[str, Any], str]]] = {
    MeshGenesis: lambda mesh, _: subjects.control(mesh, "genesis"),
    MeshRules: lambda mesh, _: subjects.control(mesh, "rules"),
    MeshRoute: lambda mesh, op: subjects.control(mesh, f"route.{op.body.kind}"),
    MeshCoordinator: lambda mesh, _: subjects.control(mesh, "coordinator"),
    MeshRecover: lambda mesh, _: subjects.control(mesh, "recover"),
    MeshEvidence: lambda mesh, op: subjects.control(mesh, f"evidence.{key_of(op.body.node)}"),
    MeshReadmit: lambda mesh, op: subjects.control(mesh, f"readmit.{key_of(op.body.node)}"),
    MeshSeal: lambda mesh, _: subjects.seal(mesh),
    UcanDelegate: lambda mesh, op: subjects.control(mesh, f"ucan.{open_token(op.body.token).cid}"),
    UcanRevoke: lambda mesh, op: subjects.control(mesh, f"revoke.{op.body.cid}"),
    JobSchedule: _schedule_subject,
    JobOffer: _offer_subject,
    **dict.fromkeys(JOB_TYPES[2:], _job_subject),
}


def subject_of(op: AnyOp, op_bytes: bytes = b"") -> str:
    """Where this op belongs. Only genesis needs its own bytes, since they are the mesh's name."""
    mesh = op.mesh or mesh_id(op_bytes)
    return _SUBJECTS[type(op)](mesh, op)
