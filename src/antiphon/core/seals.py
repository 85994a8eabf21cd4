"""Seals: the coordinator's word for everything on the log so far (spec §7.5).

A seal names the root of a Merkle tree (`core/merkle.py`) with one leaf for every record up to some
sequence, in sequence order, rejected ones and earlier seals included. A leaf holds the record's
place, its digest and its verdict, so whoever trusts the seal knows of any record that it was
there, where, and what the rules said to it.

A verdict on a seal needs the control state of its place, the seals before it, and what the node
itself makes of the log. A node that does not see every record can judge all but the root.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import codec, ops
from antiphon.core.control import Control, time_fault
from antiphon.core.deps import are_present
from antiphon.core.ids import digest
from antiphon.core.reasons import Reason

if TYPE_CHECKING:
    from antiphon.core.records import Entry


class Mark(Struct, frozen=True):
    """What a node makes of the log up to some sequence."""

    size: int
    root: str


OwnMark = Callable[[int], Mark]


class Seals(Struct, frozen=True):
    """The seal subject up to some record: its tail, and the newest accepted seal."""

    tail: int = 0
    """The last sequence on the subject, accepted or not: what the next seal names as `prev`."""
    seq: int = 0
    """The newest accepted seal's own place; 0 while there is none."""
    author: str = ""
    hlc: tuple[int, int] = (0, 0)
    upto: int = 0
    commit_ms: int = 0


NONE: Final = Seals()


class Outcome(Struct, frozen=True):
    """A verdict on a record of the seal subject, and the subject after it."""

    verdict: Reason
    seals: Seals


def leaf(seq: int, commit_ms: int, subject: str, record_digest: str, verdict: str) -> bytes:
    """What the tree holds of one record."""
    return codec.encode([seq, commit_ms, subject, record_digest, verdict])


def leaf_of(seq: int, commit_ms: int, subject: str, payload: bytes, verdict: str) -> bytes:
    """The same, from the record's own bytes."""
    return leaf(seq, commit_ms, subject, digest(payload), verdict)


def accepted(tail: int, entry: Entry) -> Seals:
    """The subject's state when this is the newest accepted seal on it."""
    if not isinstance(entry.op, ops.MeshSeal):
        return Seals(tail)
    return Seals(
        tail, entry.seq, entry.op.author, entry.op.hlc, entry.op.body.upto, entry.commit_ms
    )


def judge(
    control: Control | None,
    seals: Seals,
    entry: Entry,
    own: OwnMark | None,
) -> Outcome:
    """Judge one record of the seal subject.

    `own` tells what this node has up to a sequence, and is asked last; None if it cannot know.
    """
    verdict = _verdict(control, seals, entry, own)
    if verdict is Reason.OK:
        return Outcome(verdict, accepted(entry.seq, entry))
    return Outcome(verdict, replace(seals, tail=entry.seq))


def _verdict(
    control: Control | None,
    seals: Seals,
    entry: Entry,
    own: OwnMark | None,
) -> Reason:
    if entry.fault is not None:
        return entry.fault
    op = entry.op
    if control is None or not isinstance(op, ops.MeshSeal):
        return Reason.GENESIS
    fault = time_fault(control, entry, op.hlc)
    if fault is not None:
        return fault
    if op.prev != seals.tail:
        return Reason.PREV
    if control.is_quarantined(op.author):
        return Reason.QUARANTINED
    if op.author != control.coordinator:
        return Reason.NOT_COORDINATOR
    if op.deps and not are_present(entry, control.op_ids):
        return Reason.MISSING_DEP
    return _judge_order(seals, op) or _judge_content(entry.seq, op.body, own)


def _judge_order(seals: Seals, op: ops.MeshSeal) -> Reason | None:
    if op.hlc <= seals.hlc:
        is_double = op.hlc == seals.hlc and op.author == seals.author
        return Reason.EQUIVOCATION if is_double else Reason.STALE
    return Reason.STALE if op.body.upto <= seals.upto else None


def _judge_content(seq: int, body: ops.SealBody, own: OwnMark | None) -> Reason:
    if body.upto >= seq or body.size > body.upto or body.state is not None:
        return Reason.SEAL
    if own is not None and own(body.upto) != Mark(body.size, body.root):
        return Reason.SEAL
    return Reason.OK
