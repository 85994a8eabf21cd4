"""What a replica knows about lanes that may leave the log, and which of them have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.ports import NANOSECONDS_PER_MS
from antiphon.runtime.replica.replica import Queries

if TYPE_CHECKING:
    from antiphon.runtime.replica.replica_table import LaneTable


class OldRow(NamedTuple):
    """A lane with records below an archive that are still on the log."""

    row: int
    kind: str
    name: str
    lane: Any
    first: int
    last: int
    newest_ms: int
    """Its oldest and newest such record, and the latest stamp of them."""


class ReplicaArchive(Queries):
    """Questions of the archiver."""

    def old(self, table: LaneTable, below: int, *, limit: int) -> list[OldRow]:
        """The oldest lanes of a family with records below a sequence that are not purged."""
        rows = self._db.execute(
            "select l.id, l.kind, l.name, l.body, min(r.seq), max(r.seq), max(r.stamp_ns)"  # noqa: S608 - our own name
            f" from {table.name} l left join purged p on p.lane = l.id"
            " join records r on r.lane = l.id and r.seq < ? and r.seq > coalesce(p.upto, 0)"
            " where l.first_seq < ? group by l.id order by min(r.seq) limit ?",
            (below, below, limit),
        )
        return [
            OldRow(row, kind, name, table.decode(body), first, last, stamp // NANOSECONDS_PER_MS)
            for row, kind, name, body, first, last, stamp in rows
        ]

    def is_named(self, row: int) -> bool:
        """Whether a lane that is still on the log names this one."""
        found = self._db.execute(
            "select 1 from names n left join purged p on p.lane = n.lane where n.named = ?"
            " and n.lane != ? and exists (select 1 from records r where r.lane = n.lane"
            " and r.seq > coalesce(p.upto, 0)) limit 1",
            (row, row),
        ).fetchone()
        return found is not None

    def with_replicas(self, row: int) -> list[bytes]:
        """The records of a lane that may be schedules with replicas."""
        rows = self._db.execute(
            "select payload from records where lane = ? and instr(payload, ?) > 0",
            (row, b'"replicas":'),
        )
        return [bytes(one) for (one,) in rows]

    def went(self, rows: Iterable[int], upto: int) -> None:
        """Note that records of these lanes are gone from the log."""
        self._db.executemany(
            "insert or replace into purged values (?, ?)", [(row, upto) for row in rows]
        )
