"""The ops: a closed union, and nothing else is ever an op (SPEC §4.1, §7.2, §7.4).

Every envelope field is always written; in bodies a field at its default is not. With the strict
reading of `codec.decode` each op therefore has exactly one spelling.

The subject is a function of the op: `subject_of` is the only place that knows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core import subjects
from antiphon.core.clock import MAX_LOGICAL, MAX_WALL
from antiphon.core.codec import MAX_INTEGER
from antiphon.core.grants import open_token
from antiphon.core.ids import mesh_id
from antiphon.core.manifest import Digest, Manifest, job_id
from antiphon.core.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION: Final = 1
MAX_DEPS: Final = 64
MAX_AUTH: Final = 16

Wall = Annotated[int, Meta(ge=0, le=MAX_WALL)]
Logical = Annotated[int, Meta(ge=0, le=MAX_LOGICAL)]
Seq = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Did = Annotated[str, Meta(pattern=r"^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}\Z")]
"""The shape of an Ed25519 did:key; whether it is a usable one shows where it signs."""
Fence = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
JobId = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Kind = Annotated[
    str,
    Meta(
        pattern=r"^(?=[a-z])[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
        r"(?:\.[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?){0,7}\Z",
        max_length=subjects.MAX_KIND_LENGTH,
    ),
]
Class = Literal[0, 1, 2]
Text = Annotated[str, Meta(max_length=4096)]
Label = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.=/-]{0,127}\Z")]


class _Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all bodies share: closed, and a default is never written."""


class Genesis(_Body, frozen=True):
    """Founds a mesh. The envelope's `mesh` is empty, since the id is this op's own digest."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    owner: Did
    recovery: Did
    rules: Rules


class RulesBody(_Body, frozen=True):
    """The complete rules from here on."""

    rules: Rules


class RouteBody(_Body, frozen=True):
    """While set, only `target` may claim jobs below this kind prefix; without it, cleared."""

    kind: Kind
    target: Did | None = None


class CoordinatorBody(_Body, frozen=True):
    """Who authors derivations from here on."""

    node: Did


class DelegateBody(_Body, frozen=True):
    """Puts a UCAN delegation on the log: unpadded base64url of its envelope."""

    token: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+\Z", max_length=24 * 1024)]


class RevokeBody(_Body, frozen=True):
    """Ends a delegation, and everything below it, from here on."""

    cid: Annotated[str, Meta(pattern=r"^b[a-z2-7]{20,100}\Z")]


class Retry(_Body, frozen=True):
    """How a job meets failure. The first two bound the log; the rest guide the worker."""

    attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    base_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 1_000
    cap_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 60_000
    give_up_on: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    """Error names that are not worth a second attempt."""


class ScheduleBody(_Body, frozen=True):
    """Calls a job. What to run is in the manifest; the rest is about when, where and how often."""

    kind: Kind
    manifest: Manifest
    urgency: Class = msgspec.field(name="class", default=1)
    retry: Retry = Retry()
    lease_ms: Annotated[int, Meta(ge=1, le=MAX_INTEGER)] | None = None
    lease_ms_max: Annotated[int, Meta(ge=1, le=MAX_INTEGER)] | None = None
    start_by: Wall | None = None
    not_before: Wall | None = None
    concurrency: Label | None = None
    requires: Annotated[tuple[Label, ...], Meta(max_length=32)] = ()
    retry_of: JobId | None = None

    @property
    def waits(self) -> bool:
        """Whether the job begins as waiting and needs the coordinator's offer."""
        return self.not_before is not None or self.concurrency is not None


class _OnJob(_Body, frozen=True):
    kind: Kind
    job: JobId


class OfferBody(_OnJob, frozen=True):
    """Announces a job: of a waiting one by the coordinator, of a pending one once more."""

    urgency: Class = msgspec.field(name="class", default=1)


class ClaimBody(_OnJob, frozen=True):
    """Takes a pending job, or renews the claimer's own lease.

    With `fence` it is a renewal of that tenure and nothing else, so that a worker whose lease
    was lost unnoticed cannot begin a new tenure by mistake.
    """

    lease_ms: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    begin: bool = False
    fence: Fence | None = None


class StartBody(_OnJob, frozen=True):
    """The claimer begins to run."""

    fence: Fence


class Output(_Body, frozen=True):
    """One output by content; small UTF-8 ones travel as text."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    hash: Digest
    size: Count
    type: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")] | None = None
    text: Annotated[str, Meta(max_length=128 * 1024)] | None = None


class Failure(_Body, frozen=True):
    """What went wrong, for people; `name` is what retry rules match."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    message: Text = ""


class DsseSignature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One signature of a DSSE envelope."""

    keyid: Annotated[str, Meta(max_length=128)]
    sig: Annotated[str, Meta(max_length=128)]


class DsseEnvelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A DSSE envelope as its specification spells it."""

    payload: Annotated[str, Meta(max_length=192 * 1024)]
    payload_type: Annotated[str, Meta(max_length=255)] = msgspec.field(name="payloadType")
    signatures: Annotated[tuple[DsseSignature, ...], Meta(min_length=1, max_length=4)]


class CompleteBody(_OnJob, frozen=True):
    """Ends a job. `proof` is reserved: protocol 1 refuses a completion that fills it in."""

    fence: Fence
    status: Literal["succeeded", "failed"]
    outputs: Annotated[tuple[Output, ...], Meta(max_length=1024)] = ()
    error: Failure | None = None
    exit: Annotated[int, Meta(ge=-255, le=255)] | None = None
    proof: DsseEnvelope | None = None


class YieldBody(_OnJob, frozen=True):
    """Gives the job back."""

    fence: Fence
    reason: Literal["error", "drain", "battery", "sleep", "lost", "other"]
    retry_after_ms: Count = 0
    error: Failure | None = None


class ExpireBody(_OnJob, frozen=True):
    """Ends a tenure whose deadline passed (`fence`), or a wait that lasted past `start_by`."""

    fence: Fence | None = None


class CancelBody(_OnJob, frozen=True):
    """Ends a job that has not ended."""

    reason: Text = ""


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


ControlOp = MeshGenesis | MeshRules | MeshRoute | MeshCoordinator | UcanDelegate | UcanRevoke
JobOp = (
    JobSchedule | JobOffer | JobClaim | JobStart | JobComplete | JobYield | JobExpire | JobCancel
)
AnyOp = ControlOp | JobOp

CONTROL_TYPES: Final = (
    MeshGenesis,
    MeshRules,
    MeshRoute,
    MeshCoordinator,
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
)
TYPE_NAMES: Final = frozenset(kind.TYPE for kind in (*CONTROL_TYPES, *JOB_TYPES))

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


_SUBJECTS: Final[dict[type, Callable[[str, Any], str]]] = {
    MeshGenesis: lambda mesh, _: subjects.control(mesh, "genesis"),
    MeshRules: lambda mesh, _: subjects.control(mesh, "rules"),
    MeshRoute: lambda mesh, op: subjects.control(mesh, f"route.{op.body.kind}"),
    MeshCoordinator: lambda mesh, _: subjects.control(mesh, "coordinator"),
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
