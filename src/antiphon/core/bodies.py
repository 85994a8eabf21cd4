"""What ops say: the bodies, each closed, a field at its default never written (spec §7)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core import subjects
from antiphon.core.clock import MAX_LOGICAL, MAX_WALL
from antiphon.core.codec import MAX_INTEGER
from antiphon.core.manifest import Digest, Manifest
from antiphon.core.rules import Rules

MAX_DEPS: Final = 64

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


class RecoverBody(_Body, frozen=True):
    """A new owner and a new recovery key, in the words of the old recovery key."""

    owner: Did
    recovery: Did


class EvidenceBody(_Body, frozen=True):
    """Two records that `node` signed with one timestamp, each as it lies on a log."""

    node: Did
    first: Annotated[str, Meta(max_length=96 * 1024)]
    second: Annotated[str, Meta(max_length=96 * 1024)]


class ReadmitBody(_Body, frozen=True):
    """Ends a quarantine."""

    node: Did


class SealBody(_Body, frozen=True):
    """Vouches for every record up to `upto`, rejected ones included, with their verdicts."""

    upto: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """The last sequence that it covers."""
    size: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """How many records that are."""
    root: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    state: Digest | None = None
    """Kept for the digest of a snapshot; refused until there are any."""


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
    """Names of errors that are not worth a second attempt, nor any that is a kind of them."""


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
    """Ends a job. The reducer refuses it without its proof."""

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


class EvictBody(_OnJob, frozen=True):
    """Says that an output's bytes are kept no longer; that they were made stays on record."""

    hash: Digest
