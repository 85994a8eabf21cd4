"""What each verb of a story puts on the log.

Everybody acts through a peer of their own, which reads before it writes and picks the chain as any
node would. What no honest node would write is made from that: another chain, time, author or
subject, and signed all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from msgspec import UNSET, Struct
from msgspec.structs import replace
from nacl import bindings

from antiphon.core.authority.delegations import token_of
from antiphon.core.clock.hlc import Hlc, pack
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import (
    CancelBody,
    ClaimBody,
    CompleteBody,
    JobCancel,
    JobClaim,
    JobComplete,
    JobOffer,
    JobSchedule,
    JobStart,
    JobYield,
    OfferBody,
    ScheduleBody,
    StartBody,
    YieldBody,
)
from antiphon.core.families.mesh.ops import (
    CoordinatorBody,
    EvidenceBody,
    MeshCoordinator,
    MeshEvidence,
    MeshReadmit,
    MeshRecover,
    MeshRoute,
    MeshRules,
    ReadmitBody,
    RecoverBody,
    RouteBody,
    RulesBody,
)
from antiphon.core.manifest import Manifest, job_id
from antiphon.core.record import codec, signing, subjects
from antiphon.core.record.op import Op, subject_of
from antiphon.core.ucan import Delegation, Payload, Policy, issue, seal_envelope
from antiphon.runtime.identity.key_files import SeedKeyring
from tests.runtime.by_hand import proved
from tests.scenarios.script import NOBODY, NOTHING, Step, Story
from tests.scenarios.stage import Stage, key_of

LEASE_MS = 30_000
NO_FENCE = "0" * 16


@dataclass(frozen=True, slots=True)
class Work:
    """A job of the story."""

    kind: str
    manifest: Manifest
    id: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as it was put on a log."""

    subject: str
    payload: bytes
    hlc: tuple[int, int]


@dataclass(slots=True)
class Names:
    """What a story has given names to so far."""

    story: Story
    grants: dict[str, Delegation] = field(default_factory=dict)
    jobs: dict[str, Work] = field(default_factory=dict)
    records: dict[str, Sent] = field(default_factory=dict)
    fences: dict[tuple[str, str], str] = field(default_factory=dict)
    """By person and job: the fence of the newest claim that the person wrote, accepted or not."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def did(self, who: str) -> str:
        return key_of(who).did


async def perform(step: Step, stage: Stage, names: Names) -> Sent | None:
    """Make the record of a step; None if it puts nothing on the log."""
    words = step.words
    for who in {step.who, words.get("pose", step.who)}:
        await stage.people[who].sync_control()
    match step.verb:
        case "writes":
            _write_grant(step, stage, names)
            return None
        case "alters":
            old = names.grants[words["grant"]]
            end = replace(old.payload, exp=_seconds(words["end"], stage, names))
            names.grants[words["new_grant"]] = seal_envelope(end, old.signature)
            return None
        case "replays":
            record = names.records[words["record"]]
            below = record.subject.split(".", 2)[2]
            subject = _lane_or(f"{subjects.root(stage.mesh)}.{below}", step, stage, names)
            return Sent(subject, record.payload, record.hlc)
    kind, body = await _said(step, stage, names)
    sent = await _signed(kind, body, step, stage, names)
    if "new_record" in words:
        names.records[words["new_record"]] = sent
    if step.verb == "claims":
        names.fences[step.who, words["job"]] = pack(sent.hlc)
    return sent


async def _signed(op_type: type[Op], body: Struct, step: Step, stage: Stage, names: Names) -> Sent:
    words = step.words
    session = stage.people[words.get("pose", step.who)]
    if "time" in words:
        hlc = Hlc(stage.clock.today_ms + names.story.after_ms(words["time"]), 0)
    elif "dated_as" in words:
        hlc = Hlc(*names.records[words["dated_as"]].hlc)
    else:
        hlc = session.author.tick()
    op = replace(session.compose(op_type, body, prev=0), hlc=hlc)
    if "chain" in words:
        chain = [] if words["chain"] == NOTHING else words["chain"].split(", ")
        op = replace(op, auth=tuple(names.grants[one].cid for one in chain))
    own = subject_of(op)
    op = replace(op, prev=await stage.tail(own))
    op_bytes = codec.encode(op)
    block = signing.Block(sig=key_of(step.who).sign(signing.OP_TYPE, op_bytes))
    subject = _lane_or(own, step, stage, names)
    return Sent(subject, signing.frame(op_bytes, block), op.hlc)


def _lane_or(subject: str, step: Step, stage: Stage, names: Names) -> str:
    if "lane" not in step.words:
        return subject
    work = names.jobs[step.words["lane"]]
    return job_subjects.job(stage.mesh, work.kind, work.id)


# --- bodies -----------------------------------------------------------------------------------


async def _said(step: Step, stage: Stage, names: Names) -> tuple[type[Op], Struct]:
    """The op type of a verb, and the body that says the same."""
    words, did = step.words, names.did
    match step.verb:
        case "grants":
            granted = _write_grant(step, stage, names)
            return UcanDelegate, DelegateBody(token=token_of(granted.raw))
        case "brings":
            granted = names.grants[words["grant"]]
            return UcanDelegate, DelegateBody(token=token_of(granted.raw))
        case "revokes":
            return UcanRevoke, RevokeBody(cid=names.grants[words["grant"]].cid)
        case "routes":
            target = None if words["target"] == NOBODY else did(words["target"])
            return MeshRoute, RouteBody(kind=words["kind"], target=target)
        case "names":
            return MeshCoordinator, CoordinatorBody(node=did(words["person"]))
        case "sets":
            rules = stage.people[step.who].control.rules
            changed = replace(rules, **{words["rule"]: int(words["number"])})
            return MeshRules, RulesBody(rules=changed)
        case "hands":
            heirs = {"owner": did(words["person"]), "recovery": did(words["spare"])}
            return MeshRecover, RecoverBody(**heirs)
        case "shows":
            one, two = (names.records[words[part]] for part in ("record", "other_record"))
            return MeshEvidence, EvidenceBody(
                node=did(words["person"]),
                first=one.payload.decode(),
                second=two.payload.decode(),
            )
        case "readmits":
            return MeshReadmit, ReadmitBody(node=did(words["person"]))
        case "calls":
            return JobSchedule, _call(step, stage, names)
        case _:
            return await _about_job(step, stage, names)


def _call(step: Step, stage: Stage, names: Names) -> ScheduleBody:
    words = step.words
    if "job" in words:
        content = names.jobs[words["job"]].manifest
    else:
        content = Manifest(command=("true", words["new_job"]), args=(), timeout=30)
    names.jobs[words["new_job"]] = Work(words["kind"], content, job_id(content))
    not_before = None
    if "end" in words:
        not_before = stage.clock.today_ms + names.story.after_ms(words["end"])
    return ScheduleBody(
        kind=words["kind"],
        manifest=content,
        not_before=not_before,
        concurrency=words.get("label"),
    )


async def _about_job(step: Step, stage: Stage, names: Names) -> tuple[type[Op], Struct]:
    words = step.words
    work = names.jobs[words["job"]]
    # Whoever writes on a lane has read it: its clock is past what stands there.
    author = stage.people[words.get("pose", step.who)]
    known = (await author.read_lane(work.kind, work.id)).lane.job
    on = {"kind": work.kind, "job": work.id}
    fence = names.fences.get((step.who, words["job"])) or (known and known.fence) or NO_FENCE
    match step.verb:
        case "offers":
            return JobOffer, OfferBody(**on)
        case "claims":
            return JobClaim, ClaimBody(**on, lease_ms=LEASE_MS)
        case "renews":
            return JobClaim, ClaimBody(**on, lease_ms=LEASE_MS, fence=fence)
        case "starts":
            return JobStart, StartBody(**on, fence=fence)
        case "completes":
            body = CompleteBody(**on, fence=fence, status="succeeded")
            return JobComplete, proved(author, body, work.manifest)
        case "yields":
            return JobYield, YieldBody(**on, fence=fence, reason="drain")
        case "cancels":
            return JobCancel, CancelBody(**on)
    raise AssertionError(f"the stage cannot do {step.verb!r}")


# --- delegations ------------------------------------------------------------------------------


def _write_grant(step: Step, stage: Stage, names: Names) -> Delegation:
    """Sign a delegation with one's own key, whoever it says that it is from."""
    words = step.words
    like = [["like", ".kind", words["kinds"]]] if "kinds" in words else []
    payload = Payload(
        iss=names.did(words.get("issuer", step.who)),
        aud=names.did(words["person"]),
        sub=stage.people[step.who].control.owner,
        cmd=words["command"],
        pol=Policy(like),
        nonce=b"grant of the story %d" % next(names.numbers),
        exp=_seconds(words["end"], stage, names) if "end" in words else None,
        nbf=_seconds(words["start"], stage, names) if "start" in words else UNSET,
    )
    granted = issue(payload, lambda message: _sign_bare(key_of(step.who), message))
    names.grants[words["new_grant"]] = granted
    return granted


def _sign_bare(key: SeedKeyring, message: bytes) -> bytes:
    return bindings.crypto_sign(message, key._secret)[:64]


def _seconds(time: str, stage: Stage, names: Names) -> int:
    return (stage.clock.today_ms + names.story.after_ms(time)) // 1000
