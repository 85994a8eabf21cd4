"""The log as one machine has it: how much is written, how far it is sealed, what was refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.seals.ops import MeshSeal
from antiphon.ports import NANOSECONDS_PER_MS
from antiphon.runtime.node.full_node import SEAL_LANE
from antiphon.runtime.replica.replica_records import ReplicaRecords

if TYPE_CHECKING:
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.connection.connection import Connection

MINUTES: Final = 60
MINUTE_MS: Final = 60_000
RECORDS_EXAMINED: Final = 8_000
"""The newest ones; more in an hour are not counted, and `is_cut` says so."""
AT_ONCE: Final = 1_000
SEALS_LISTED: Final = 8
KINDS_LISTED: Final = 12
_NO_END: Final = 2**63 - 1


class Volume(Struct, kw_only=True):
    """Records of one minute, or about one kind."""

    name: str = ""
    """The kind; empty: it is about the mesh itself, or of a minute."""
    at_ms: int = 0
    """When the minute began."""
    records: int = 0
    bytes: int = 0
    refused: int = 0

    def add(self, size: int, *, is_refused: bool) -> None:
        """Count a record."""
        self.records += 1
        self.bytes += size
        self.refused += is_refused


class SealLine(Struct, frozen=True, kw_only=True):
    """A seal that matched the log."""

    seq: int
    at_ms: int
    by: str
    upto: int
    size: int
    """How many records it covers."""
    root: str


class LogStatus(Struct, frozen=True, kw_only=True):
    """The log now, as far as this machine reads it."""

    applied: int
    """The newest record that was verified here."""
    things: dict[str, int]
    """How many jobs, locks, documents and so on there are, by family."""
    replica_bytes: int
    minutes: list[Volume]
    """The last hour, oldest first; minutes without records too."""
    kinds: list[Volume]
    """The same by kind, the largest first."""
    reasons: dict[str, int]
    """Refused in that hour, by verdict, the most frequent first."""
    seals: list[SealLine]
    """Newest first."""
    now_ms: int
    """When all this was so."""
    is_cut: bool
    """Whether only the newest records of the hour were counted."""


async def log_status(connection: Connection) -> LogStatus:
    """Look at the newest records, at most `RECORDS_EXAMINED`."""
    session = connection.session
    now_ms = session.wall.now_ms()
    since_ms = (now_ms // MINUTE_MS - MINUTES + 1) * MINUTE_MS
    minutes = [Volume(at_ms=since_ms + number * MINUTE_MS) for number in range(MINUTES)]
    kinds: dict[str, Volume] = {}
    reasons: dict[str, int] = {}
    seen = 0
    async with connection.replica() as replica:
        newest = replica.ask(ReplicaRecords).sizes(
            since_ms * NANOSECONDS_PER_MS, limit=RECORDS_EXAMINED
        )
        for seen, (at_ms, subject, verdict, size) in enumerate(newest, 1):
            place = session.protocol.place_of(subject)
            kind = place.key.kind if place is not None else ""
            about = kinds.setdefault(kind, Volume(name=kind))
            minute = minutes[min((at_ms - since_ms) // MINUTE_MS, MINUTES - 1)]
            for volume in (about, minute):
                volume.add(size, is_refused=not verdict.is_accepted)
            if not verdict.is_accepted:
                reasons[verdict.value] = reasons.get(verdict.value, 0) + 1
            if seen % AT_ONCE == 0:
                await asyncio.sleep(0)
        return LogStatus(
            applied=replica.cursor.seq,
            things=replica.sizes.by_family(),
            replica_bytes=replica.sizes.file_bytes(),
            minutes=minutes,
            kinds=sorted(kinds.values(), key=lambda one: -one.bytes)[:KINDS_LISTED],
            reasons=dict(sorted(reasons.items(), key=lambda one: -one[1])),
            seals=_seals(connection, replica),
            now_ms=now_ms,
            is_cut=seen == RECORDS_EXAMINED,
        )


def _seals(connection: Connection, replica: Replica) -> list[SealLine]:
    found = replica.accepted_before(SEAL_LANE, _NO_END, limit=SEALS_LISTED)
    opened = (connection.session.open(one.record) for one in found)
    return [
        SealLine(
            seq=one.seq,
            at_ms=one.commit_ms,
            by=one.op.author,
            upto=one.op.body.upto,
            size=one.op.body.size,
            root=one.op.body.root,
        )
        for one in opened
        if isinstance(one.op, MeshSeal)
    ]
