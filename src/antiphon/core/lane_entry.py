"""Entering a lane at a sealed record, instead of reading it from its beginning (spec §7.5).

A lane that is written for months has hundreds of thousands of records, and who opens it wants its
state. Where the state follows from one accepted record (`Family.enter`), what has to be known about
that record is that it was accepted; that is what a seal says. So a full node tells the record, its
path to a seal and the seal; the reader checks all three and judges what comes after by the same
rules as everybody. It need not trust who told it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from antiphon.core.families.seals.state import leaf_of
from antiphon.core.proof import merkle
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.op import Count
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.families.seals.ops import SealBody
    from antiphon.core.family import Lane
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.protocol import Protocol
    from antiphon.core.record.branches import LaneKey

_Place = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class LaneEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a lane can be entered, and what shows that the record there was accepted."""

    seq: _Place
    """The record."""
    leaf: Count
    """Its place in the seal's tree."""
    path: Annotated[tuple[_Hash, ...], Meta(max_length=merkle.MAX_PROOF)]
    seal: _Place
    """The seal's own sequence."""


def can_enter(protocol: Protocol, key: LaneKey) -> bool:
    """Whether lanes of this family can be entered: its state follows from one record.

    Only lanes of one subject: of several, the other tails would not be known.
    """
    family = protocol.family(key.family)
    return family.enter is not None and sum(len(one.stems) for one in family.branches) == 1


def lane_at(
    protocol: Protocol,
    key: LaneKey,
    entry: LaneEntry,
    opened: OpenedRecord,
    payload: bytes,
    seal: SealBody,
) -> Lane | None:
    """The lane after the record, if the seal says that it was accepted there; else None.

    The seal's author and signature have been checked before.
    """
    family = protocol.family(key.family)
    op, place = opened.op, opened.place
    if op is None or place is None or place.key != key or not can_enter(protocol, key):
        return None
    if opened.seq != entry.seq or entry.seq > seal.upto or family.enter is None:
        return None
    leaf = leaf_of(opened.seq, opened.commit_ms, opened.subject, payload, Verdict.OK.value)
    path = [bytes.fromhex(node) for node in entry.path]
    root = merkle.root_from_inclusion(entry.leaf, seal.size, merkle.leaf_hash(leaf), path)
    if root is None or root.hex() != seal.root:
        return None
    state = family.enter(op, opened.seq, opened.op_id)
    time_ms = max(op.hlc[0], opened.commit_ms)
    return None if state is None else family.lane((opened.seq,), state, 0, time_ms)
