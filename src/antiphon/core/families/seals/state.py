"""How far the log is sealed, and what a seal's tree is made of (spec §7.5).

A seal names the root of a Merkle tree (`core/proof/merkle.py`) with one leaf for every record up
to some sequence, in sequence order, rejected ones and earlier seals included. A leaf holds the
record's place, its digest and its verdict; for a rejected record also the last one before it that
its lane accepted. So if you trust the seal, you know for any record that it was on the log, where,
and which verdict it got; and who shows you a rejected record cannot hide what came before it.

A leaf is one byte, the version of its form, and canonical JSON. The archive's entries are leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from antiphon.core.family import Lane
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.core.record.op import Digest
from antiphon.core.record.verdict import Verdict
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from antiphon.core.families.seals.ops import MeshSeal


class Sealed(Struct, frozen=True):
    """The newest seal that passed every check except perhaps the root; the next must cover more."""

    seq: int
    hlc: tuple[int, int]
    hlc_author: str
    upto: int
    commit_ms: int
    snapshot: str | None = None
    """The digest of the newest snapshot, if it names one."""


class SealLane(Lane, frozen=True):
    """The seal subject: its last record, and how far the log is sealed."""

    tails: tuple[int, ...] = (0,)
    state: Sealed | None = None

    @property
    def tail(self) -> int:
        """The last sequence on the subject, whatever its verdict: the next seal's `prev`."""
        return self.tails[0]

    @property
    def upto(self) -> int:
        """The last sequence that a seal covers; 0 while there is none."""
        return self.state.upto if self.state is not None else 0


def lane_before(op: MeshSeal) -> SealLane:
    """The lane as it must have been before this seal, if the seal is right."""
    return SealLane((op.prev,))


LEAF_VERSION: Final = b"\x01"
MAX_SUBJECT: Final = 1024
"""More characters than the subject of any op has. Junk may have 32,000, which as JSON are more than
an entry of an archive has room for."""


class Leaf(NamedTuple):
    """What one leaf says about its record."""

    seq: Annotated[int, Meta(ge=1, le=codec.MAX_INTEGER)]
    commit_ms: Annotated[int, Meta(ge=0, le=codec.MAX_INTEGER)]
    subject: str
    digest: Digest
    verdict: Verdict
    after: Annotated[int, Meta(ge=0, le=codec.MAX_INTEGER)] = 0
    """Of a rejected record: the last accepted one of its lane. 0 of others, and where the lane has
    no state."""


_leaf_decoder: Final = msgspec.json.Decoder(Leaf)


def leaf(
    seq: int, commit_ms: int, subject: str, record_digest: str, verdict: str, after: int = 0
) -> bytes:
    """One record's leaf in the tree. Of a subject that is longer than any of ours, the digest."""
    if len(subject) > MAX_SUBJECT:
        subject = digest(subject.encode())
    return LEAF_VERSION + codec.encode([seq, commit_ms, subject, record_digest, verdict, after])


def leaf_of(
    seq: int, commit_ms: int, subject: str, payload: bytes, verdict: str, after: int = 0
) -> bytes:
    """The same, from the record's own bytes."""
    return leaf(seq, commit_ms, subject, digest(payload), verdict, after)


def read_leaf(data: bytes) -> Leaf:
    """What a leaf says, or `Malformed`."""
    try:
        found = _leaf_decoder.decode(data[1:])
    except UNREADABLE as problem:
        raise Malformed("this is not the leaf of a record", reason="leaf") from problem
    if leaf(*found[:4], found.verdict.value, found.after) != data:
        raise Malformed("this leaf is not in its one form", reason="leaf")
    return found
