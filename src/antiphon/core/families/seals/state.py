"""How far the log is sealed, and what a seal's tree is made of (spec §7.5).

A seal names the root of a Merkle tree (`core/proof/merkle.py`) with one leaf for every record up
to some sequence, in sequence order, rejected ones and earlier seals included. A leaf holds the
record's place, its digest and its verdict. So if you trust the seal, you know for any record that
it was on the log, where, and which verdict it got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.family import Lane
from antiphon.core.record import codec
from antiphon.core.record.ids import digest

if TYPE_CHECKING:
    from antiphon.core.families.seals.ops import MeshSeal


class Sealed(Struct, frozen=True):
    """The newest seal that passed every check except perhaps the root; the next must cover more."""

    seq: int
    hlc: tuple[int, int]
    hlc_author: str
    upto: int
    commit_ms: int


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


def leaf(seq: int, commit_ms: int, subject: str, record_digest: str, verdict: str) -> bytes:
    """One record's leaf in the tree."""
    return codec.encode([seq, commit_ms, subject, record_digest, verdict])


def leaf_of(seq: int, commit_ms: int, subject: str, payload: bytes, verdict: str) -> bytes:
    """The same, from the record's own bytes."""
    return leaf(seq, commit_ms, subject, digest(payload), verdict)
