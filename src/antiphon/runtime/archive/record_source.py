"""Where a bundle's records come from: a replica, or an archive alone."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.families.jobs.state import JobLane
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.opened_record import OpenedRecord, open_record
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Rejected
from antiphon.runtime.node.full_node import SEAL_LANE
from antiphon.runtime.replica.replica_erasures import ReplicaErasures

if TYPE_CHECKING:
    from antiphon.core.protocol import Protocol
    from antiphon.runtime.replica.replica import Replica, StoredRecord


class FoundRecord(Struct, frozen=True, kw_only=True):
    """A record, its verdict, and its place on the log and in the tree."""

    seq: int
    commit_ms: int
    subject: str
    verdict: Verdict
    digest: str
    payload: bytes
    leaf: int
    after: int = 0
    """Of a rejected record: the last one before it that its lane accepted."""

    def opened(self, protocol: Protocol, mesh: str) -> OpenedRecord:
        """The record, opened."""
        return open_record(protocol, mesh, self.seq, self.commit_ms, self.subject, self.payload)


class FoundSeal(Struct, frozen=True):
    """A seal that was accepted."""

    payload: bytes
    op: MeshSeal

    @property
    def body(self) -> SealBody:
        """What it commits to."""
        return self.op.body


def erased(seq: int, by: str, at_ms: int) -> Rejected:
    """What a reader says of a record whose bytes were removed."""
    when = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Rejected(
        f"the bytes of record {seq} were erased by {by} on {when}; its place, time, digest and"
        " verdict stay",
        reason="erased",
    )


class RecordSource(typing.Protocol):
    """What assembling a bundle reads."""

    @property
    def mesh(self) -> str:
        """The mesh that the records are of."""

    @property
    def protocol(self) -> Protocol:
        """The protocol that they are read by."""

    async def newest_seal(self) -> FoundSeal | None:
        """The newest seal; None if there is none yet."""

    async def accepted(self, key: LaneKey) -> list[FoundRecord]:
        """The records of a lane that were accepted, oldest first."""

    async def control(self, upto: int) -> list[FoundRecord]:
        """The control records up to a sequence, rejected ones too, oldest first."""

    async def records(self, seqs: Sequence[int]) -> list[FoundRecord]:
        """Those of these records that there are, with their bytes whatever their verdict."""

    async def path(self, leaf: int, size: int) -> list[str]:
        """The path from a leaf to the root over the first `size`."""


class ReplicaSource:
    """The records of a replica."""

    def __init__(self, replica: Replica) -> None:
        """Nothing is read yet."""
        self._replica = replica
        self.mesh, self.protocol = replica.mesh, replica.protocol

    async def newest_seal(self) -> FoundSeal | None:
        """See `RecordSource.newest_seal`."""
        stored = self._replica.newest_of(SEAL_LANE, verdict=Verdict.OK)
        op = None if stored is None else self._found(stored).opened(self.protocol, self.mesh).op
        if stored is None or not isinstance(op, MeshSeal):
            return None
        return FoundSeal(stored.record.payload, op)

    async def accepted(self, key: LaneKey) -> list[FoundRecord]:
        """See `RecordSource.accepted`."""
        found = list(map(self._found, self._replica.lane_records(key, verdict=Verdict.OK)))
        lane = self._replica.lane(key)
        if found and isinstance(lane, JobLane) and lane.job is not None:
            order = self._replica.ask(ReplicaErasures).about(lane.job)
            if order is not None:  # its bytes are only waiting for the archive
                raise erased(found[-1].seq, order.by, order.at_ms)
        return found

    async def control(self, upto: int) -> list[FoundRecord]:
        """See `RecordSource.control`."""
        seqs = [one.seq for one in self._replica.control_records() if one.seq <= upto]
        return await self.records(seqs)

    async def records(self, seqs: Sequence[int]) -> list[FoundRecord]:
        """See `RecordSource.records`."""
        found = (self._replica.record(seq) for seq in seqs)
        return [self._found(stored) for stored in found if stored is not None]

    async def path(self, leaf: int, size: int) -> list[str]:
        """See `RecordSource.path`."""
        return self._replica.tree.inclusion_at(leaf, size)

    def _found(self, stored: StoredRecord) -> FoundRecord:
        record = stored.record
        if stored.erased is not None:
            raise erased(record.seq, stored.erased.by, stored.erased.at_ms)
        return FoundRecord(
            seq=record.seq,
            commit_ms=record.commit_ms,
            subject=record.subject,
            verdict=stored.verdict,
            digest=stored.digest,
            payload=record.payload,
            leaf=self._replica.tree.size_at(record.seq) - 1,
            after=stored.after,
        )
