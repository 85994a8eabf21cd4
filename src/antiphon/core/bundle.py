"""Bundles: checking a job offline, with nothing but the file (spec §9).

The check needs no server, no state directory and no clock. A bundle has a job's lane, the control
records that its verdicts need, the lanes of the replicas that agreed on its result if there are
any, those of the questions that people answered for it, and one seal; each record with its place,
its verdict and its path to the seal's root. What is checked:

- the digest of genesis is the mesh's id, and genesis names the owner;
- the same reducer that judged the records on the log accepts those that the bundle shows. So
  signatures, authority, fences and proofs are valid, and no record that a verdict needs is missing;
- every record, its place and its verdict are leaves of the tree that the seal names;
- the seal is signed by the coordinator that the owner named.

Of the rejected records on a lane, only those are there that an accepted one names: as the record
before it on its subject, by digest and sealed verdict; as a dependency, with its bytes. The seal
says of each which record the lane accepted before it, so nothing can be hidden behind it. However
much junk others write on a job's lane, its bundle has at most one record of it for each that was
accepted.

A bundle is canonical JSON and has nothing that is not checked, so any changed byte is noticed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec
from msgspec import Meta, Struct

from antiphon.core import opened_record
from antiphon.core.authority.control import Control
from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.families.jobs.ops import JobComplete, JobResolve
from antiphon.core.families.jobs.questions import answers_named
from antiphon.core.families.jobs.state import Job
from antiphon.core.families.mesh.ops import Genesis, MeshGenesis
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.families.seals.state import MAX_SUBJECT, lane_before, leaf
from antiphon.core.family import UNSEEN_ROOT, Lane, Needs, Reads
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.history.story import Line, tell
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.proof import merkle
from antiphon.core.proof.answer import answer_in
from antiphon.core.protocol import Protocol
from antiphon.core.record import codec, ids, signing, subjects
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import key_of, mesh_id, short_node
from antiphon.core.record.op import Digest, Kind, Op, subject_of
from antiphon.core.record.verdict import Verdict
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed, Rejected

FORMAT: Final = "antiphon-bundle-1"
MAX_BUNDLE_BYTES: Final = 64 * 1024 * 1024
MAX_RECORDS: Final = 65_536
SHARED_KEPT: Final = 4_096
SHARED_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Control records and seals that are not verified again in the next bundle, and their size."""

_Place = Annotated[int, Meta(ge=1, le=codec.MAX_INTEGER)]
_Index = Annotated[int, Meta(ge=0, le=codec.MAX_INTEGER)]
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """No unknown fields; defaults are not written."""


class Content(_Part, frozen=True, kw_only=True):
    """A record's bytes: as text if they are UTF-8 (all but junk), otherwise base64."""

    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, payload: bytes) -> Content:
        """The only encoding of these bytes."""
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
            raise Malformed("a record in the bundle is not in canonical form", reason="bundle")
        return raw


class BundledRecord(_Part, frozen=True, kw_only=True):
    """One record with its place, its verdict, and its path to the seal's root."""

    seq: _Place
    commit_ms: _Index
    subject: Annotated[str, Meta(max_length=MAX_SUBJECT)]
    verdict: Verdict
    record: Content | None = None
    """Its bytes."""
    digest: Digest | None = None
    """Of a rejected record whose bytes nobody needs."""
    after: _Index = 0
    """Of a rejected record: the last one before it that its lane accepted."""
    leaf: _Index
    path: Annotated[tuple[_Hash, ...], Meta(max_length=merkle.MAX_PROOF)]

    def payload(self) -> bytes:
        """The bytes, or `Malformed`."""
        if self.record is None or self.digest is not None:
            raise Malformed(f"the bytes of record {self.seq} are needed", reason="bundle")
        return self.record.payload()

    def leaf_bytes(self) -> bytes:
        """Its leaf in the seal's tree."""
        of = ids.digest(self.payload()) if self.digest is None else self.digest
        at = (self.seq, self.commit_ms, self.subject)
        return leaf(*at, of, self.verdict.value, self.after)


class Bundle(_Part, frozen=True, kw_only=True):
    """Everything that is needed to check a job offline."""

    format: Literal["antiphon-bundle-1"]
    mesh: Annotated[str, Meta(pattern=r"^[a-z2-7]{16}\Z")]
    family: Annotated[str, Meta(min_length=1, max_length=64)]
    kind: Kind
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    """What it is about: family, kind and name; the name of a job is its id."""
    records: Annotated[tuple[BundledRecord, ...], Meta(max_length=MAX_RECORDS)]
    """In sequence order: the lane, the lanes that its ops name, the control records, and the deps
    of all these."""
    seal: Content


class ShownAnswer(Struct, frozen=True, kw_only=True):
    """A question that a job went on with, as far as its bundle shows it."""

    key: LaneKey
    text: str = ""
    """What was asked; empty: the bundle does not have the question."""
    answer: str | None = None
    """As JSON; None: nobody answered, or that is not shown."""
    by: tuple[str, ...] = ()
    """Whose keys signed the answer."""
    outcome: str = ""


class Report(Struct, frozen=True, kw_only=True):
    """What a valid bundle proves."""

    mesh: str
    name: str
    owner: str
    """The key that created the mesh: everything depends on trusting it."""
    control: Control
    """The control state at the end of what the seal covers."""
    key: LaneKey
    state: Any
    """The state that the records result in; for a job, the `Job`."""
    lane: list[tuple[OpenedRecord, Verdict]]
    seal: SealBody
    coordinator: str
    records: int
    beside: list[OpenedRecord]
    """The records of other lanes, by which some of its own were judged."""
    answers: list[ShownAnswer] = []
    """What people were asked for it, and who answered."""

    @property
    def is_job(self) -> bool:
        """Whether it is about a job."""
        return isinstance(self.state, Job)

    def story(self) -> list[Line]:
        """Its records, a sentence each."""
        return tell(self.lane)

    @property
    def job(self) -> Job:
        """The job; `Rejected` if the bundle is not about a job."""
        if not isinstance(self.state, Job):
            _refuse(f"it is about {self.key.name} of the family {self.key.family}, not about a job")
        return self.state

    @property
    def completion(self) -> JobComplete | None:
        """The completion; None if it is not about a job, or the job was not completed."""
        if not self.is_job:
            return None
        ending = next((e.op for e, _ in self.lane if e.seq == self.job.ended_seq), None)
        return ending if isinstance(ending, JobComplete) else None

    @property
    def quorum(self) -> list[JobComplete]:
        """The completions of the replicas that agreed on its result; none if it was run itself."""
        if not self.is_job:
            return []
        ending = next((e.op for e, _ in self.lane if e.seq == self.job.ended_seq), None)
        if not isinstance(ending, JobResolve):
            return []
        ends = {seq for _, seq in ending.body.children}
        return [e.op for e in self.beside if e.seq in ends and isinstance(e.op, JobComplete)]


Step = Literal["mesh", "seal", "verdicts", "coordinator"]
"""What is checked after the bytes, in this order."""
Passed = Callable[[Step, str], None]
Turn = Callable[[], None]
"""Called after each record: a long check lets others work, or is given up."""

_decoder = msgspec.json.Decoder(Bundle)
_Put = tuple[str, int, int, str, bytes]
"""Everything that opening a record depends on: mesh, sequence, commit time, subject, payload."""
_shared_records = BoundedCache[_Put, tuple[Protocol, OpenedRecord]](
    most=SHARED_KEPT, most_bytes=SHARED_KEPT_BYTES
)
_seals = BoundedCache[tuple[str, bytes], tuple[Protocol, OpenedRecord]](
    most=SHARED_KEPT, most_bytes=SHARED_KEPT_BYTES
)


def write(bundle: Bundle) -> bytes:
    """The bundle as a file."""
    return codec.encode(bundle) + b"\n"


def read(data: bytes) -> Bundle:
    """A bundle from a file in canonical form, or `Malformed`."""
    if len(data) > MAX_BUNDLE_BYTES:
        raise Malformed("the file is too large for a bundle", reason="bundle")
    try:
        bundle = _decoder.decode(data)
        again = write(bundle)
    except UNREADABLE as problem:
        raise Malformed(f"this is not a bundle: {problem}", reason="bundle") from problem
    if again != data:
        raise Malformed(
            "the bundle was changed after it was written: it is not in canonical form",
            reason="bundle",
        )
    return bundle


def check(
    protocol: Protocol,
    bundle: Bundle,
    *,
    owner: str | None = None,
    passed: Passed = lambda _step, _words: None,
    turn: Turn = lambda: None,
) -> Report:
    """Everything that the bundle proves, or `Rejected` with what is wrong with it.

    `passed` is told of each step that holds, with what it showed.
    """
    key = LaneKey(bundle.family, bundle.kind, bundle.name)
    family = next((one for one in protocol.families if one.name == key.family), None)
    if family is None or family.is_control:
        _refuse(f"it is about the family {key.family!r}, which cannot be in a bundle here")
    genesis = _genesis(protocol, bundle, owner)
    passed("mesh", f"{genesis.name} ({bundle.mesh}), created by {short_node(genesis.owner)}.")
    seal = _sealed(protocol, bundle)
    _check_leaves(bundle, seal.body, turn)
    root = f"{seal.body.root[:8]}…{seal.body.root[-4:]}"
    passed("seal", f"Every record is in the tree of the first {seal.body.size:,}, root {root}.")
    opened_records = _opened(protocol, bundle, turn)
    history, lanes, judged = _replayed(protocol, bundle, key, opened_records, turn)
    lane = lanes[key]
    authors = {one.op.author for one in opened_records if one.op is not None}
    passed("verdicts", f"Signed by {len(authors)} keys; judged again, as sealed.")
    control = history.at(seal.body.upto + 1, seal.hlc[0])
    _check_seal(protocol, history, seal, bundle.seal.payload())
    passed("coordinator", f"{short_node(seal.author)}, whom the owner named, signed the seal.")
    if control is None or lane.state is None:
        _refuse("it does not contain the op that created what it is about")
    if why := family.unfinished(lane.state):
        _refuse(f"at its end, {why}")
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
        beside=[one for one in opened_records if one.place is not None and one.place.key != key],
        answers=_answers(lanes, judged, opened_records),
    )


def _refuse(why: str) -> NoReturn:
    raise Rejected(f"the bundle is not valid: {why}", reason="bundle")


def _opened(protocol: Protocol, bundle: Bundle, turn: Turn) -> list[OpenedRecord]:
    if any(b.seq <= a.seq or b.leaf <= a.leaf for a, b in pairwise(bundle.records)):
        _refuse("its records are not in the order of the log")
    if any((one.record is None) == (one.digest is None) for one in bundle.records):
        _refuse("of each record it has either the bytes or the digest")
    opened: list[OpenedRecord] = []
    for shown in bundle.records:
        opened.append(_opened_one(protocol, bundle.mesh, shown))
        turn()
    return opened


def _opened_one(protocol: Protocol, mesh: str, shown: BundledRecord) -> OpenedRecord:
    """A record as it is judged here: of a rejected one on a lane only its place counts."""
    at = (shown.seq, shown.commit_ms, shown.subject)
    if shown.verdict is Verdict.OK or protocol.lane_of(shown.subject) is None:
        return _opened_once(protocol, (mesh, *at, shown.payload()))
    return OpenedRecord(*at, None, "", shown.verdict, protocol.place_of(shown.subject))


def _opened_once(protocol: Protocol, put: _Put, *, is_shared: bool = False) -> OpenedRecord:
    """A record, opened. Bundles of one mesh share their control records, and seals."""
    known = _shared_records.get(put)
    if known is not None and known[0] is protocol:
        return known[1]
    opened = opened_record.open_record(protocol, *put)
    if opened.is_control or is_shared:
        _shared_records.put(put, (protocol, opened), len(put[-1]))
    return opened


def _genesis(protocol: Protocol, bundle: Bundle, owner: str | None) -> Genesis:
    shown = bundle.records[0] if bundle.records else None
    content = shown.record if shown is not None else None
    if shown is None or content is None:
        _refuse("its first record is not the genesis of a mesh")
    at, payload = (shown.seq, shown.commit_ms, shown.subject), content.payload()
    first = _opened_once(protocol, (bundle.mesh, *at, payload))
    if not isinstance(first.op, MeshGenesis):
        _refuse("its first record is not the genesis of a mesh")
    op_bytes, _ = signing.unframe(payload)
    if mesh_id(op_bytes) != bundle.mesh:
        _refuse("its genesis created another mesh than the one it names")
    if owner is not None and first.op.body.owner != owner:
        _refuse(f"its mesh was created by {first.op.body.owner}, not by the owner that you trust")
    return first.op.body


def _sealed(protocol: Protocol, bundle: Bundle) -> MeshSeal:
    payload = bundle.seal.payload()
    known = _seals.get((bundle.mesh, payload))
    if known is not None and known[0] is protocol:
        opened = known[1]
    else:
        opened = opened_record.open_anywhere(protocol, bundle.mesh, payload)
        _seals.put((bundle.mesh, payload), (protocol, opened), len(payload))
    if not isinstance(opened.op, MeshSeal):
        why = opened.fault.in_words if opened.fault is not None else "it is another op"
        _refuse(f"its seal cannot be used: {why}")
    return opened.op


def _check_leaves(bundle: Bundle, seal: SealBody, turn: Turn) -> None:
    for shown in bundle.records:
        turn()
        if shown.seq > seal.upto:
            _refuse(f"record {shown.seq} is newer than what the seal covers")
        hashed = merkle.leaf_hash(shown.leaf_bytes())
        path = [bytes.fromhex(node) for node in shown.path]
        root = merkle.root_from_inclusion(shown.leaf, seal.size, hashed, path)
        if root is None or root.hex() != seal.root:
            _refuse(f"record {shown.seq} or its verdict is not what was sealed")


def _replayed(
    protocol: Protocol,
    bundle: Bundle,
    key: LaneKey,
    opened_records: list[OpenedRecord],
    turn: Turn,
) -> tuple[ControlHistory, dict[LaneKey, Lane], list[tuple[OpenedRecord, Verdict]]]:
    """Judge every record again, as any reader of the log would."""
    shown_at = {shown.seq: shown for shown in bundle.records}

    def read(needs: Needs) -> Reads:
        found = {seq: shown_at.get(seq) for seq in needs.records}
        return Reads(
            records={
                seq: opened_record.dep_of(protocol, shown.subject, shown.payload(), shown.commit_ms)
                if shown is not None
                else None
                for seq, shown in found.items()
            },
            mark=UNSEEN_ROOT,
            lanes={named: lanes.get(named) or protocol.empty(named) for named, _ in needs.lanes},
        )

    history = ControlHistory(protocol, bundle.mesh)
    verdicts = [shown.verdict for shown in bundle.records]
    named = all_lanes_named(list(zip(opened_records, verdicts, strict=True)), key)
    lanes = {each: protocol.empty(each) for each in (key, *named)}
    judged: list[tuple[OpenedRecord, Verdict]] = []
    beside: set[int] = set()
    accepted = dict.fromkeys(lanes, 0)
    for shown, opened in zip(bundle.records, opened_records, strict=True):
        turn()
        if opened.is_control:
            verdict = history.apply(opened)
        elif opened.place is not None and opened.place.key in lanes:
            where = opened.place.key
            outcome = history.settle(lanes[where], opened, read)
            lanes[where], verdict = outcome.lane, outcome.verdict
            if verdict is Verdict.OK:
                accepted[where] = opened.seq
            elif shown.verdict is verdict:
                _check_after(shown, accepted[where] if outcome.lane.state is not None else 0)
            if where == key:
                judged.append((opened, verdict))
        else:
            beside.add(opened.seq)
            continue
        if verdict is not shown.verdict:
            _refuse(
                f"record {opened.seq} was sealed as '{shown.verdict.value}', but the records in the"
                f" bundle give '{verdict.value}': something is missing, or was added"
            )
    _check_needs(bundle, opened_records, beside)
    return history, lanes, judged


def _answers(
    lanes: dict[LaneKey, Lane],
    judged: list[tuple[OpenedRecord, Verdict]],
    opened_records: list[OpenedRecord],
) -> list[ShownAnswer]:
    """What people answered, as the lanes of the questions say it."""
    found: list[ShownAnswer] = []
    ops = {one.seq: one.op for one in opened_records}
    accepted = [one.op for one, verdict in judged if verdict is Verdict.OK and one.op is not None]
    for key in answers_named(accepted):
        job = lanes[key].state if key in lanes else None
        if not isinstance(job, Job) or job.question is None or not job.is_terminal:
            found.append(ShownAnswer(key=key))
            continue
        ending = ops.get(job.ended_seq)
        by: tuple[str, ...] = ()
        said: str | None = None
        if isinstance(ending, JobComplete):
            by, said = (ending.author,), answer_in(ending.body.outputs)
        elif isinstance(ending, JobResolve):
            ends = (ops.get(seq) for _, seq in ending.body.children)
            by = tuple(one.author for one in ends if isinstance(one, JobComplete))
            said = answer_in(ending.body.outputs)
        found.append(
            ShownAnswer(key=key, text=job.question.text, answer=said, by=by, outcome=job.outcome)
        )
    return found


def _check_after(shown: BundledRecord, accepted: int) -> None:
    """Whether the last record that the lane accepted before a rejected one is there."""
    if shown.after != accepted:
        _refuse(
            f"before record {shown.seq} its lane accepted record {shown.after}, and in the bundle"
            f" {accepted or 'none'}: something is left out"
        )


def _check_needs(bundle: Bundle, opened_records: list[OpenedRecord], beside: set[int]) -> None:
    """What took no effect must be there for something else."""
    ops = [one.op for one in opened_records if one.op is not None and one.seq not in beside]
    deps = {seq for op in ops for seq, _ in op.deps}
    before = {op.prev for op in ops}
    for shown, opened in zip(bundle.records, opened_records, strict=True):
        is_needed = shown.verdict is Verdict.OK or opened.is_control
        if shown.digest is not None:
            is_needed = shown.seq in before and shown.seq not in deps
        elif shown.seq in beside or not is_needed:
            is_needed = shown.seq in deps
        if not is_needed:
            _refuse(f"record {shown.seq} is not needed for what the bundle is about")


def all_lanes_named(
    records: list[tuple[OpenedRecord, Verdict]], key: LaneKey
) -> tuple[LaneKey, ...]:
    """The lanes that belong to a bundle beside its own: those named here, and by those in turn."""
    found: dict[LaneKey, None] = {}
    left = [key]
    while left:
        for one in lanes_named(records, left.pop()):
            if one not in found and one != key:
                found[one] = None
                left.append(one)
    return tuple(found)


def lanes_named(
    records: Iterable[tuple[OpenedRecord, Verdict]], key: LaneKey
) -> tuple[LaneKey, ...]:
    """The lanes that accepted ops on this lane were judged by, each once, and those of answers.

    A rejected op needs none of them: it would be rejected on empty lanes, too.
    """
    found, accepted = dict[LaneKey, None](), list[Op]()
    for opened, verdict in records:
        is_here = opened.place is not None and opened.place.key == key
        if is_here and verdict is Verdict.OK and opened.op is not None and opened.family:
            found.update(dict.fromkeys(opened.family.lanes_named(opened.op)))
            accepted.append(opened.op)
    found.update(dict.fromkeys(answers_named(accepted)))
    found.pop(key, None)
    return tuple(found)


def _check_seal(
    protocol: Protocol, history: ControlHistory, seal: MeshSeal, payload: bytes
) -> None:
    """By the rules where the tree ends; the bundle does not show when the seal was committed."""
    at = (seal.body.upto + 1, seal.hlc[0], subject_of(seal))
    opened = _opened_once(protocol, (seal.mesh, *at, payload), is_shared=True)
    outcome = history.settle(lane_before(seal), opened, lambda _: Reads(mark=UNSEEN_ROOT))
    if outcome.verdict is not Verdict.UNSEEN:
        _refuse(f"its seal would be rejected: {outcome.verdict.in_words}")


def wanted_control(
    bundle_lane: Iterable[OpenedRecord], mesh: str, kinds: Iterable[str]
) -> set[str]:
    """The literal control subjects that the verdicts on these ops may depend on.

    Delegations and revocations of the chains that the ops name; routes of the kinds; evidence
    against the authors. Rules, coordinators and recoveries always.
    """
    wanted = {"genesis", "rules", "coordinator", "recover", "archive"}
    for kind in kinds:
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
