"""Opening a record: every check that needs only the record itself.

The result is an `OpenedRecord`: a verified op on its own subject, or the verdict why it is not one.
Nothing is skipped: a record that cannot be read still has its place in its lane, and every reader
gives it the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from antiphon.core.family import NEVER_MS, Dep, Family
from antiphon.core.record import codec, signing
from antiphon.core.record.branches import CONTROL, Place
from antiphon.core.record.ids import digest
from antiphon.core.record.op import VERSION, Op, subject_of
from antiphon.core.record.verdict import Verdict
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from antiphon.core.protocol import Protocol

_BYTE_REASONS: Final = {reason.value: reason for reason in Verdict}


class OpenedRecord(Struct, frozen=True, gc=False):
    """A committed record, opened."""

    seq: int
    commit_ms: int
    subject: str
    op: Op | None
    """The verified op; None if `fault` says why there is none."""
    op_id: str
    fault: Verdict | None
    place: Place | None = None
    """The lane and slot of its subject, if it has any."""
    family: Family | None = None
    """The op's family."""
    since: int = 1
    """The first protocol in which its bytes are an op."""
    is_verified: bool = False
    """Whether the reader has verified, or just made, the signatures inside; set by no one else."""

    @property
    def is_control(self) -> bool:
        """Whether it is a control record, which every node follows."""
        return self.place is not None and self.place.key.family == CONTROL

    def fault_under(self, protocol: int) -> Verdict | None:
        """What is wrong with the record while this protocol is in force."""
        return Verdict.TYPE if self.since > protocol else self.fault


_IsSigned = Callable[[str, str, bytes, signing.Block], bool]
_peek_decoder: Final = msgspec.json.Decoder(dict[str, Any])


def open_record(
    protocol: Protocol, mesh: str, seq: int, commit_ms: int, subject: str, payload: bytes
) -> OpenedRecord:
    """Check framing, canonical form, schema, mesh, subject and signature, in that order."""
    opened = _opened(protocol, mesh, subject, payload, signing.is_block_valid)
    return OpenedRecord(seq, commit_ms, *opened)


def open_own(protocol: Protocol, op_bytes: bytes, subject: str, op_id: str) -> OpenedRecord:
    """An op that this process has just encoded, on its own subject: the checks of its bytes."""
    place = protocol.place_of(subject)
    try:
        op = codec.decode(op_bytes, protocol.decoder)
    except Malformed as problem:
        fault, since = _byte_fault(protocol, op_bytes, problem)
        return OpenedRecord(0, 0, subject, None, op_id, fault, place, None, since)
    family = protocol.family_of[type(op)]
    return OpenedRecord(0, 0, subject, op, op_id, None, place, family, op.SINCE)


def as_read(protocol: Protocol, op: Op, subject: str, op_id: str) -> OpenedRecord:
    """An op that this process has just encoded, taken as what a reader gets from its bytes.

    Only where that is certain: then it is what `open_own` returns.
    """
    family, place = protocol.family_of[type(op)], protocol.place_of(subject)
    return OpenedRecord(0, 0, subject, op, op_id, None, place, family, op.SINCE)


def placed(opened: OpenedRecord, seq: int, commit_ms: int) -> OpenedRecord:
    """The same at its place on the log."""
    return OpenedRecord(
        seq,
        commit_ms,
        opened.subject,
        opened.op,
        opened.op_id,
        opened.fault,
        opened.place,
        opened.family,
        opened.since,
        opened.is_verified,
    )


def unsigned(protocol: Protocol, op: Op, seq: int, commit_ms: int) -> OpenedRecord:
    """An op that is not signed yet, as if it had been committed at this place."""
    subject, family = subject_of(op), protocol.family_of[type(op)]
    place = protocol.place_of(subject)
    return OpenedRecord(seq, commit_ms, subject, op, "", None, place, family, op.SINCE)


def open_anywhere(protocol: Protocol, mesh: str, payload: bytes) -> OpenedRecord:
    """A record that is shown as evidence, not committed: the same checks, on its own subject."""
    try:
        op_bytes, _ = signing.unframe(payload)
        op = codec.decode(op_bytes, protocol.decoder)
        subject = subject_of(op, op_bytes)
    except Malformed:
        subject = ""
    return open_record(protocol, mesh, 0, 0, subject, payload)


def dep_of(protocol: Protocol, subject: str, payload: bytes, commit_ms: int) -> Dep:
    """A record as a dependency of an op that names it."""
    try:
        op_bytes, _ = signing.unframe(payload)
    except Malformed:
        op_bytes = payload
    place = protocol.place_of(subject)
    if place is None:
        return Dep(digest(op_bytes), "", ())
    op = None
    if protocol.is_named(place):
        mesh = subject.split(".", 2)[1]
        op = _opened(protocol, mesh, subject, payload, signing.is_block_valid)[1]
    family = protocol.family_at(place)
    can_leave = family is not None and family.is_asked_again is not None
    may_leave_ms = commit_ms if can_leave else NEVER_MS
    is_cut = family is not None and family.is_cut
    return Dep(digest(op_bytes), place.key.kind, protocol.read_by(place), may_leave_ms, is_cut, op)


_Opened = tuple[str, Op | None, str, Verdict | None, Place | None, Family | None, int]
"""The fields of an `OpenedRecord` after its sequence and commit time."""


def _opened(
    protocol: Protocol, mesh: str, subject: str, payload: bytes, is_signed: _IsSigned
) -> _Opened:
    place, op_bytes = protocol.place_of(subject), payload
    try:
        op_bytes, block = signing.unframe(payload)
        op = codec.decode(op_bytes, protocol.decoder)
        fault = _fault(op, op_bytes, mesh, subject)
        if fault is None and not is_signed(op.author, mesh, op_bytes, block):
            fault = Verdict.SIGNATURE
    except Malformed as problem:
        fault, since = _byte_fault(protocol, op_bytes, problem)
        if fault is Verdict.MALFORMED:
            op, family = _newer(protocol, mesh, subject, payload)
            if op is not None:
                return subject, op, digest(op_bytes), None, place, family, since
        return subject, None, digest(op_bytes), fault, place, None, since
    if fault is not None:
        return subject, None, digest(op_bytes), fault, place, None, op.SINCE
    return subject, op, digest(op_bytes), None, place, protocol.family_of[type(op)], op.SINCE


def _fault(op: Op, op_bytes: bytes, mesh: str, subject: str) -> Verdict | None:
    """Whether an op is for another mesh, or on the wrong subject."""
    if op.mesh != mesh and not (op.CREATES_MESH and not op.mesh):
        return Verdict.MESH
    return None if subject_of(op, op_bytes) == subject else Verdict.SUBJECT


def _byte_fault(protocol: Protocol, op_bytes: bytes, problem: Malformed) -> tuple[Verdict, int]:
    """What is wrong with bytes that are not an op, and since which protocol."""
    reason = _BYTE_REASONS.get(problem.reason, Verdict.MALFORMED)
    if reason not in {Verdict.MALFORMED, Verdict.CANONICAL}:
        return reason, 1
    try:
        peek = _peek_decoder.decode(op_bytes)
    except UNREADABLE:
        return reason, 1
    known = protocol.ops.get(peek["type"]) if isinstance(peek.get("type"), str) else Op
    if reason is Verdict.MALFORMED:
        if type(peek.get("v")) is int and peek["v"] != VERSION:
            return Verdict.VERSION, 1
        if known is None:
            return Verdict.TYPE, 1
    return reason, known.SINCE if known is not None else 1


def _newer(
    protocol: Protocol, mesh: str, subject: str, payload: bytes
) -> tuple[Op | None, Family | None]:
    """An op of a newer protocol, validly signed on its own subject, as a family can read it."""
    try:
        op_bytes, block = signing.unframe(payload)
        for family in protocol.families:
            op = family.read_newer(op_bytes, protocol.number)
            if (
                op is not None
                and _fault(op, op_bytes, mesh, subject) is None
                and signing.is_block_valid(op.author, mesh, op_bytes, block)
            ):
                return op, family
    except Malformed:
        pass  # not readable as an op at all
    return None, None
