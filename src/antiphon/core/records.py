"""Opening a record: every check that needs nothing but the record itself.

The result is an `Entry`: either a verified op on its own subject, or the reason why it is none.
Nothing is thrown away: a record that cannot be read still occupies its place in its lane, and
every reader gives it the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.core import codec, ops, signing, subjects
from antiphon.core.ids import digest, mesh_id
from antiphon.core.ops import AnyOp
from antiphon.core.reasons import Reason
from antiphon.core.rules import PROTOCOL
from antiphon.errors import Malformed

_BYTE_REASONS: Final = {reason.value: reason for reason in Reason}


class Activation(Struct, frozen=True):
    """Just enough of a `mesh.rules` or genesis from the future to know that it is one."""

    author: str
    mesh: str
    hlc: tuple[int, int]
    prev: int
    deps: list[Any]
    type: str
    body: dict[str, Any]

    @property
    def protocol(self) -> int:
        """The protocol that it puts in force; 0 if it names none."""
        rules = self.body.get("rules")
        protocol = rules.get("protocol") if isinstance(rules, dict) else None
        return protocol if isinstance(protocol, int) else 0


class Entry(Struct, frozen=True, gc=False):
    """A committed record, opened."""

    seq: int
    commit_ms: int
    subject: str
    op: AnyOp | None
    """The verified op; None where `fault` says why there is none."""
    op_id: str
    fault: Reason | None
    activation: Activation | None = None
    """Set where validly signed rules name a protocol that this code cannot read."""


class Place(Struct, frozen=True, gc=False):
    """Where a record lies on the log."""

    seq: int
    commit_ms: int
    subject: str


_IsSigned = Callable[[str, str, bytes, signing.Block], bool]
_activation_decoder = msgspec.json.Decoder(Activation)
_peek_decoder = msgspec.json.Decoder(dict[str, Any])


def open_record(mesh: str, seq: int, commit_ms: int, subject: str, payload: bytes) -> Entry:
    """Check framing, canonical form, schema, mesh, subject and signature, in that order."""
    return _opened(mesh, Place(seq, commit_ms, subject), payload, signing.is_block_valid)


def open_own(mesh: str, subject: str, payload: bytes) -> Entry:
    """A record that this process signed just now: the same checks, but for the signature."""
    return _opened(mesh, Place(0, 0, subject), payload, lambda *_: True)


def _opened(mesh: str, at: Place, payload: bytes, is_signed: _IsSigned) -> Entry:
    op_bytes = payload
    seq, commit_ms, subject = at.seq, at.commit_ms, at.subject
    try:
        op_bytes, block = signing.unframe(payload)
        op = codec.decode(op_bytes, ops.decoder)
        if op.mesh != mesh and not isinstance(op, ops.MeshGenesis):
            fault: Reason | None = Reason.MESH
        elif ops.subject_of(op, op_bytes) != subject:
            fault = Reason.SUBJECT
        elif not is_signed(op.author, mesh, op_bytes, block):
            fault = Reason.SIGNATURE
        else:
            return Entry(seq, commit_ms, subject, op, digest(op_bytes), None)
    except Malformed as problem:
        fault = _byte_fault(op_bytes, problem)
        activation = _activation(mesh, subject, payload) if fault is Reason.MALFORMED else None
        return Entry(seq, commit_ms, subject, None, digest(op_bytes), fault, activation)
    return Entry(seq, commit_ms, subject, None, digest(op_bytes), fault)


def open_anywhere(mesh: str, payload: bytes) -> Entry:
    """A record that is shown rather than committed: the same checks, on the subject it names."""
    try:
        op_bytes, _ = signing.unframe(payload)
        subject = ops.subject_of(codec.decode(op_bytes, ops.decoder), op_bytes)
    except Malformed:
        subject = ""
    return open_record(mesh, 0, 0, subject, payload)


def _byte_fault(op_bytes: bytes, problem: Malformed) -> Reason:
    reason = _BYTE_REASONS.get(problem.reason, Reason.MALFORMED)
    if reason is not Reason.MALFORMED:
        return reason
    try:
        peek = _peek_decoder.decode(op_bytes)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Reason.MALFORMED
    if type(peek.get("v")) is int and peek["v"] != ops.VERSION:
        return Reason.VERSION
    if isinstance(peek.get("type"), str) and peek["type"] not in ops.TYPE_NAMES:
        return Reason.TYPE
    return Reason.MALFORMED


def _activation(mesh: str, subject: str, payload: bytes) -> Activation | None:
    """Rules of a protocol that this code does not have, or None if the record is no such thing.

    Newer rules may have fields that this code does not know. Rejecting them as malformed while
    newer code accepts them would split the mesh, so they are recognised by what never changes:
    type, place, author and signature.
    """
    if subject not in {subjects.control(mesh, "rules"), subjects.control(mesh, "genesis")}:
        return None
    try:
        op_bytes, block = signing.unframe(payload)
        op = _activation_decoder.decode(op_bytes)
        if not signing.is_block_valid(op.author, mesh, op_bytes, block):
            return None
    except (Malformed, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    founds = op.type == ops.MeshGenesis.TYPE and not op.mesh and mesh_id(op_bytes) == mesh
    changes = op.type == ops.MeshRules.TYPE and op.mesh == mesh
    what = "genesis" if founds else "rules"
    is_placed = (founds or changes) and subject == subjects.control(mesh, what)
    return op if is_placed and op.protocol > PROTOCOL else None
