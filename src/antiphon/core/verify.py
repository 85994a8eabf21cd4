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
from typing import Annotated, Final, Literal, NoReturn

import msgspec
from msgspec import Meta, Struct

from antiphon.core import codec, lanes, merkle, ops, records, seals, signing, subjects
from antiphon.core.bodies import JobId, Kind
from antiphon.core.control import Control
from antiphon.core.control_history import ControlHistory
from antiphon.core.deps import Dep
from antiphon.core.ids import digest, mesh_id
from antiphon.core.jobs import Job
from antiphon.core.reasons import Reason
from antiphon.core.records import Entry
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
    verdict: Reason
    record: Content
    leaf: _Index
    path: Annotated[tuple[_Hash, ...], Meta(max_length=merkle.MAX_PROOF)]


class Bundle(_Part, frozen=True, kw_only=True):
    """What one needs to check a job offline."""

    format: Literal["antiphon-bundle-1"]
    mesh: Annotated[str, Meta(pattern=r"^[a-z2-7]{16}\Z")]
    kind: Kind
    job: JobId
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
    job: Job
    lane: list[tuple[Entry, Reason]]
    seal: ops.SealBody
    coordinator: str
    completion: ops.JobComplete | None
    records: int


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


def check(bundle: Bundle, *, owner: str | None = None) -> Report:
    """Everything that the bundle can show, or `Rejected` with what is wrong with it."""
    entries = _opened(bundle)
    genesis = _genesis(bundle, entries, owner)
    seal = _sealed(bundle)
    _check_leaves(bundle, seal.body)
    history, lane, judged = _replayed(bundle, entries)
    control = history.at(seal.body.upto + 1, seal.hlc[0])
    _check_seal(control, seal, bundle.seal.payload())
    if control is None or lane.job is None:
        _refuse("it does not show that the job was ever called")
    if not lane.job.is_terminal:
        _refuse("the job had not ended where this bundle ends")
    ending = next((e.op for e, _ in judged if e.seq == lane.job.ended_seq), None)
    return Report(
        mesh=bundle.mesh,
        name=genesis.name,
        owner=genesis.owner,
        control=control,
        job=lane.job,
        lane=judged,
        seal=seal.body,
        coordinator=seal.author,
        completion=ending if isinstance(ending, ops.JobComplete) else None,
        records=len(entries),
    )


def _refuse(why: str) -> NoReturn:
    raise Rejected(f"the bundle does not hold: {why}", reason="bundle")


def _opened(bundle: Bundle) -> list[Entry]:
    if any(b.seq <= a.seq or b.leaf <= a.leaf for a, b in pairwise(bundle.records)):
        _refuse("its records are not in the order of the log")
    return [
        records.open_record(bundle.mesh, s.seq, s.commit_ms, s.subject, s.record.payload())
        for s in bundle.records
    ]


def _genesis(bundle: Bundle, entries: list[Entry], owner: str | None) -> ops.Genesis:
    first = entries[0] if entries else None
    if first is None or not isinstance(first.op, ops.MeshGenesis):
        _refuse("it does not begin with the founding of a mesh")
    op_bytes, _ = signing.unframe(bundle.records[0].record.payload())
    if mesh_id(op_bytes) != bundle.mesh:
        _refuse("its genesis founded another mesh than it names")
    if owner is not None and first.op.body.owner != owner:
        _refuse(f"its mesh was founded by {first.op.body.owner}, not by the owner that you trust")
    return first.op.body


def _sealed(bundle: Bundle) -> ops.MeshSeal:
    entry = records.open_anywhere(bundle.mesh, bundle.seal.payload())
    if not isinstance(entry.op, ops.MeshSeal):
        why = entry.fault.in_words if entry.fault is not None else "it is another op"
        _refuse(f"its seal is none: {why}")
    return entry.op


def _check_leaves(bundle: Bundle, seal: ops.SealBody) -> None:
    for shown in bundle.records:
        if shown.seq > seal.upto:
            _refuse(f"record {shown.seq} is newer than what its seal covers")
        leaf = seals.leaf_of(
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
    bundle: Bundle, entries: list[Entry]
) -> tuple[ControlHistory, lanes.Lane, list[tuple[Entry, Reason]]]:
    """Judge everything again, control first, as any reader of the log would."""
    control_subjects = subjects.all_control(bundle.mesh)
    own_lane = (bundle.kind, bundle.job)
    deps = _deps(bundle)
    history, lane = ControlHistory(bundle.mesh), lanes.EMPTY
    judged: list[tuple[Entry, Reason]] = []
    needed: set[int] = set()
    beside: set[int] = set()
    for shown, entry in zip(bundle.records, entries, strict=True):
        named = entry.op.deps if entry.op is not None else ()
        if subjects.matches(control_subjects, entry.subject):
            verdict = history.apply(entry)
        elif subjects.lane_of(entry.subject) == own_lane:
            outcome = lanes.apply(history.at(entry.seq, entry.commit_ms), lane, entry, deps)
            lane, verdict = outcome.lane, outcome.verdict
            judged.append((entry, verdict))
        else:
            beside.add(entry.seq)
            continue
        needed.update(seq for seq, _ in named)
        if verdict is not shown.verdict:
            _refuse(
                f"record {entry.seq} was sealed as '{shown.verdict.value}', and by what is in the"
                f" bundle it is '{verdict.value}': something is missing, or was put in"
            )
    if beside - needed:
        _refuse(f"record {min(beside - needed)} has nothing to do with the job")
    return history, lane, judged


def _deps(bundle: Bundle) -> dict[int, Dep]:
    return {shown.seq: _dep(shown) for shown in bundle.records}


def _dep(shown: Shown) -> Dep:
    payload = shown.record.payload()
    try:
        op_bytes, _ = signing.unframe(payload)
    except Malformed:
        op_bytes = payload
    return Dep(digest(op_bytes), shown.subject)


def _check_seal(control: Control | None, seal: ops.MeshSeal, payload: bytes) -> None:
    """By the rules of the place where the tree ends; when it was committed is not shown."""
    entry = records.open_record(
        seal.mesh, seal.body.upto + 1, seal.hlc[0], subjects.seal(seal.mesh), payload
    )
    verdict = seals.judge(control, seals.Seals(tail=seal.prev), entry, None).verdict
    if verdict is not Reason.OK:
        _refuse(f"its seal would be rejected: {verdict.in_words}")


def wanted_control(bundle_lane: Iterable[Entry], mesh: str, kind: str) -> set[str]:
    """The control subjects, literal ones, on which verdicts on these ops may rest.

    Delegations and revocations by the chains that the ops name; routes of the kind; what was
    shown against the authors. Rules, offices and recoveries always.
    """
    wanted = {"genesis", "rules", "coordinator", "recover"}
    prefix = kind
    while prefix:
        wanted.add(f"route.{prefix}")
        prefix = prefix.rpartition(".")[0]
    for entry in bundle_lane:
        if entry.op is not None:
            node = ops.key_of(entry.op.author)
            wanted |= {f"evidence.{node}", f"readmit.{node}"}
            wanted |= {f"{what}.{cid}" for cid in entry.op.auth for what in ("ucan", "revoke")}
    return {subjects.control(mesh, what) for what in wanted}
