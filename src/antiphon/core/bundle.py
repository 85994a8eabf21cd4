"""Checking a bundle with nothing but the bundle: no server, no home, no clock (spec §9).

A bundle holds a job's lane, the control records that its verdicts need, and one seal; each record
with its place, its verdict and its path to the seal's root. What is checked:

- genesis is the mesh's name, and says who owns it;
- the same reducers that judged the records on the log give the verdicts that are in the bundle,
  so signatures, authority, fences and proofs hold, and nothing is missing on which one rests;
- every record, its place and its verdict are leaves of the tree that the seal names;
- the seal is signed by the coordinator whom the owner named.

A bundle is canonical JSON and holds nothing that is not checked, so no byte of it can be changed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec
from msgspec import Meta, Struct

from antiphon.core import opened_record as records
from antiphon.core.authority.control import Control
from antiphon.core.control_history import ControlHistory
from antiphon.core.families.jobs.ops import JobComplete
from antiphon.core.families.jobs.state import Job
from antiphon.core.families.mesh.ops import Genesis, MeshGenesis
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.families.seals.state import lane_before, leaf_of
from antiphon.core.family import UNSEEN_ROOT, Lane, Needs, Reads
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.proof import merkle
from antiphon.core.protocol import Protocol
from antiphon.core.record import codec, signing, subjects
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import key_of, mesh_id
from antiphon.core.record.op import Kind, subject_of
from antiphon.core.record.verdict import Verdict
from antiphon.core.story import Line, tell
from antiphon.errors import Malformed, Rejected

FORMAT: Final = "antiphon-bundle-1"
MAX_BUNDLE_BYTES: Final = 64 * 1024 * 1024
MAX_RECORDS: Final = 65_536

_Place = Annotated[int, Meta(ge=1, le=codec.MAX_INTEGER)]
_Index = Annotated[int, Meta(ge=0, le=codec.MAX_INTEGER)]
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Closed; what is at its default is not written."""


class Content(_Part, frozen=True, kw_only=True):
    """A record's bytes: as text where they are text, which they are unless they are junk."""

    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, payload: bytes) -> Content:
        """The one way to write these bytes."""
        try:
            return cls(text=payload.decode())
        except UnicodeDecodeError:
            return cls(base64=base64.b64encode(payload).decode())

    def payload(self) -> bytes:
        """The bytes, or `Malformed`."""
        try:
            raw = (
                self.text.encode()
                if self.text is not None
                else base64.b64decode(self.base64 or "", validate=True)
            )
        except (binascii.Error, ValueError) as problem:
            raise Malformed("a record in the bundle is not base64", reason="bundle") from problem
        if Content.of(raw) != self:
            raise Malformed("a record in the bundle is not in its one spelling", reason="bundle")
        return raw


class Shown(_Part, frozen=True, kw_only=True):
    """One record with its place, its verdict, and its path to the seal's root."""

    seq: _Place
    commit_ms: _Index
    subject: Annotated[str, Meta(max_length=1024)]
    verdict: Verdict
    record: Content
    leaf: _Index
    path: Annotated[tuple[_Hash, ...], Meta(max_length=merkle.MAX_PROOF)]


class Bundle(_Part, frozen=True, kw_only=True):
    """What one needs to check a job offline."""

    format: Literal["antiphon-bundle-1"]
    mesh: Annotated[str, Meta(pattern=r"^[a-z2-7]{16}\Z")]
    family: Annotated[str, Meta(min_length=1, max_length=64)]
    kind: Kind
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    """What it is about: of which family and kind, and which; of a job, its id."""
    records: Annotated[tuple[Shown, ...], Meta(max_length=MAX_RECORDS)]
    """By sequence; the lane, the control records, and what those name as their deps."""
    seal: Content


class Report(Struct, frozen=True, kw_only=True):
    """What a good bundle shows."""

    mesh: str
    name: str
    owner: str
    """Who founded the mesh: everything rests on this key."""
    control: Control
    """What held for the mesh where the seal ends."""
    key: LaneKey
    state: Any
    """What the records come to: of a job, the `Job`."""
    lane: list[tuple[OpenedRecord, Verdict]]
    seal: SealBody
    coordinator: str
    records: int

    @property
    def is_job(self) -> bool:
        """Whether it is about a job."""
        return isinstance(self.state, Job)

    def story(self) -> list[Line]:
        """Its records in words."""
        return tell(self.lane)

    @property
    def job(self) -> Job:
        """The job that it is about; `Rejected` if it is about something else."""
        if not isinstance(self.state, Job):
            _refuse(f"it is about {self.key.name} of the family {self.key.family}, and no job")
        return self.state

    @property
    def completion(self) -> JobComplete | None:
        """How the job ended, if it is one and somebody completed it."""
        if not self.is_job:
            return None
        ending = next((e.op for e, _ in self.lane if e.seq == self.job.ended_seq), None)
        return ending if isinstance(ending, JobComplete) else None


_decoder = msgspec.json.Decoder(Bundle)


def write(bundle: Bundle) -> bytes:
    """The bundle as a file."""
    return codec.encode(bundle) + b"\n"


def read(data: bytes) -> Bundle:
    """A bundle from a file, in its one spelling, or `Malformed`."""
    if len(data) > MAX_BUNDLE_BYTES:
        raise Malformed("the file is too large for a bundle", reason="bundle")
    try:
        bundle = _decoder.decode(data)
        again = write(bundle)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise Malformed(f"this is not a bundle: {problem}", reason="bundle") from problem
    if again != data:
        raise Malformed(
            "the bundle was changed after it was written: it is not in its one spelling",
            reason="bundle",
        )
    return bundle


def check(protocol: Protocol, bundle: Bundle, *, owner: str | None = None) -> Report:
    """Everything that the bundle can show, or `Rejected` with what is wrong with it."""
    key = LaneKey(bundle.family, bundle.kind, bundle.name)
    family = next((one for one in protocol.families if one.name == key.family), None)
    if family is None or family.is_control:
        _refuse(f"it is about the family {key.family!r}, which has no such things")
    opened_records = _opened(protocol, bundle)
    genesis = _genesis(bundle, opened_records, owner)
    seal = _sealed(protocol, bundle)
    _check_leaves(bundle, seal.body)
    history, lane, judged = _replayed(protocol, bundle, key, opened_records)
    control = history.at(seal.body.upto + 1, seal.hlc[0])
    _check_seal(protocol, history, seal, bundle.seal.payload())
    if control is None or lane.state is None:
        _refuse("it does not show that there ever was such a thing: no first op")
    if why := family.unfinished(lane.state):
        _refuse(f"where it ends, {why}")
    return Report(
        mesh=bundle.mesh,
        name=genesis.name,
        owner=genesis.owner,
        control=control,
        key=key,
        state=lane.state,
        lane=judged,
        seal=seal.body,
        coordinator=seal.author,
        records=len(opened_records),
    )


def _refuse(why: str) -> NoReturn:
    raise Rejected(f"the bundle does not hold: {why}", reason="bundle")


def _opened(protocol: Protocol, bundle: Bundle) -> list[OpenedRecord]:
    if any(b.seq <= a.seq or b.leaf <= a.leaf for a, b in pairwise(bundle.records)):
        _refuse("its records are not in the order of the log")
    return [
        records.open_record(
            protocol, bundle.mesh, s.seq, s.commit_ms, s.subject, s.record.payload()
        )
        for s in bundle.records
    ]


def _genesis(bundle: Bundle, opened_records: list[OpenedRecord], owner: str | None) -> Genesis:
    first = opened_records[0] if opened_records else None
    if first is None or not isinstance(first.op, MeshGenesis):
        _refuse("it does not begin with the founding of a mesh")
    op_bytes, _ = signing.unframe(bundle.records[0].record.payload())
    if mesh_id(op_bytes) != bundle.mesh:
        _refuse("its genesis founded another mesh than it names")
    if owner is not None and first.op.body.owner != owner:
        _refuse(f"its mesh was founded by {first.op.body.owner}, not by the owner that you trust")
    return first.op.body


def _sealed(protocol: Protocol, bundle: Bundle) -> MeshSeal:
    opened = records.open_anywhere(protocol, bundle.mesh, bundle.seal.payload())
    if not isinstance(opened.op, MeshSeal):
        why = opened.fault.in_words if opened.fault is not None else "it is another op"
        _refuse(f"its seal is none: {why}")
    return opened.op


def _check_leaves(bundle: Bundle, seal: SealBody) -> None:
    for shown in bundle.records:
        if shown.seq > seal.upto:
            _refuse(f"record {shown.seq} is newer than what its seal covers")
        leaf = leaf_of(
            shown.seq,
            shown.commit_ms,
            shown.subject,
            shown.record.payload(),
            shown.verdict.value,
        )
        path = [bytes.fromhex(node) for node in shown.path]
        root = merkle.root_from_inclusion(shown.leaf, seal.size, merkle.leaf_hash(leaf), path)
        if root is None or root.hex() != seal.root:
            _refuse(f"record {shown.seq}, as it is shown with its verdict, is not what was sealed")


def _replayed(
    protocol: Protocol, bundle: Bundle, key: LaneKey, opened_records: list[OpenedRecord]
) -> tuple[ControlHistory, Lane, list[tuple[OpenedRecord, Verdict]]]:
    """Judge everything again as any reader of the log would."""
    shown_at = {shown.seq: shown for shown in bundle.records}

    def read(needs: Needs) -> Reads:
        found = {seq: shown_at.get(seq) for seq in needs.records}
        return Reads(
            records={
                seq: records.dep_of(protocol, shown.subject, shown.record.payload())
                if shown is not None
                else None
                for seq, shown in found.items()
            },
            mark=UNSEEN_ROOT,
        )

    history, lane = ControlHistory(protocol, bundle.mesh), protocol.empty(key)
    judged: list[tuple[OpenedRecord, Verdict]] = []
    needed: set[int] = set()
    beside: set[int] = set()
    for shown, opened in zip(bundle.records, opened_records, strict=True):
        if opened.is_control:
            verdict = history.apply(opened)
        elif opened.place is not None and opened.place.key == key:
            outcome = history.settle(lane, opened, read)
            lane, verdict = outcome.lane, outcome.verdict
            judged.append((opened, verdict))
        else:
            beside.add(opened.seq)
            continue
        needed.update(seq for seq, _ in (opened.op.deps if opened.op is not None else ()))
        if verdict is not shown.verdict:
            _refuse(
                f"record {opened.seq} was sealed as '{shown.verdict.value}', and by what is in the"
                f" bundle it is '{verdict.value}': something is missing, or was put in"
            )
    if beside - needed:
        _refuse(f"record {min(beside - needed)} has nothing to do with what it is about")
    return history, lane, judged


def _check_seal(
    protocol: Protocol, history: ControlHistory, seal: MeshSeal, payload: bytes
) -> None:
    """By the rules of the place where the tree ends; when it was committed is not shown."""
    at = (seal.body.upto + 1, seal.hlc[0], subject_of(seal))
    opened = records.open_record(protocol, seal.mesh, *at, payload)
    outcome = history.settle(lane_before(seal), opened, lambda _: Reads(mark=UNSEEN_ROOT))
    if outcome.verdict is not Verdict.UNSEEN:
        _refuse(f"its seal would be rejected: {outcome.verdict.in_words}")


def wanted_control(bundle_lane: Iterable[OpenedRecord], mesh: str, kind: str) -> set[str]:
    """The control subjects, literal ones, on which verdicts on these ops may rest.

    Delegations and revocations by the chains that the ops name; routes of the kind; what was
    shown against the authors. Rules, offices and recoveries always.
    """
    wanted = {"genesis", "rules", "coordinator", "recover"}
    prefix = kind
    while prefix:
        wanted.add(f"route.{prefix}")
        prefix = prefix.rpartition(".")[0]
    for opened in bundle_lane:
        if opened.op is not None:
            node = key_of(opened.op.author)
            wanted |= {f"evidence.{node}", f"readmit.{node}"}
            wanted |= {f"{what}.{cid}" for cid in opened.op.auth for what in ("ucan", "revoke")}
    return {subjects.control(mesh, what) for what in wanted}
