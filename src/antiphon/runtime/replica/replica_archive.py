"""What a replica knows about lanes that may leave the log, and which of them have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from antiphon.core.families.jobs.columns import follows
from antiphon.core.families.jobs.state import JobLane
from antiphon.ports import NANOSECONDS_PER_MS
from antiphon.runtime.replica.replica import Queries
from antiphon.runtime.replica.replica_table import link

if TYPE_CHECKING:
    from antiphon.runtime.replica.replica_table import LaneTable

_decode = msgspec.msgpack.Decoder(JobLane).decode


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
    oldest_ms: int
    """And the earliest."""


class ReplicaArchive(Queries):
    """Questions of the archiver."""

    def old(self, table: LaneTable, below: int, *, limit: int, after: int = 0) -> list[OldRow]:
        """The oldest lanes of a family with records below a sequence that are not purged.

        Without those whose first such record is not behind `after`.
        """
        rows = self._db.execute(
            "select l.id, l.kind, l.name, l.body, min(r.seq), max(r.seq),"  # noqa: S608 - our own name
            f" max(r.stamp_ns), min(r.stamp_ns) from hot h join {table.name} l on l.id = h.lane"
            " left join purged p on p.lane = l.id"
            " join records r on r.lane = l.id and r.seq < ? and r.seq > coalesce(p.upto, 0)"
            " group by l.id having min(r.seq) > ? order by min(r.seq) limit ?",
            (below, after, limit),
        )
        return [
            OldRow(
                *(row, kind, name, table.decode(body)),
                first=first,
                last=last,
                newest_ms=newest_ns // NANOSECONDS_PER_MS,
                oldest_ms=oldest_ns // NANOSECONDS_PER_MS,
            )
            for row, kind, name, body, first, last, newest_ns, oldest_ns in rows
        ]

    def has_old(self, tables: Iterable[LaneTable]) -> bool:
        """Whether there is a lane in one of these tables with records on the log."""
        found = (
            self._db.execute(f"select 1 from hot join {one.name} on id = lane limit 1").fetchone()  # noqa: S608 - our own name
            for one in tables
        )
        return any(found)

    def is_named(self, row: int) -> bool:
        """Whether a lane that is still on the log names this one."""
        found = self._db.execute(
            "select 1 from names n join hot h on h.lane = n.lane where n.named = ? and n.lane != ?"
            " limit 1",
            (row, row),
        ).fetchone()
        return found is not None

    def is_awaited(self, kind: str, name: str) -> bool:
        """Whether a job waits for the one of this name."""
        rows = self._db.execute(
            "select w.body from follows f join lanes_jobs w on w.id = f.lane"
            " where f.before = ? and w.state = 'waiting'",
            (link((kind, name)),),
        )
        jobs = (_decode(body).job for (body,) in rows)
        return any(job is not None and (kind, name) in follows(job) for job in jobs)

    def records_upto(
        self, upto: int, *, after: int, lanes: int
    ) -> tuple[list[tuple[int, int]], int]:
        """The records up to a sequence that are on the log, of some lanes: lane and sequence.

        Of so many lanes behind `after`; and the last of them, 0 if there are no more.
        """
        rows = self._db.execute(
            "select h.lane from hot h where h.lane > ? order by h.lane limit ?", (after, lanes)
        ).fetchall()
        if not rows:
            return [], 0
        last = rows[-1][0]
        found = self._db.execute(
            "select h.lane, r.seq from hot h join records r on r.lane = h.lane"
            " left join purged p on p.lane = h.lane"
            " where h.lane > ? and h.lane <= ? and r.seq <= ? and r.seq > coalesce(p.upto, 0)",
            (after, last, upto),
        ).fetchall()
        return found, last

    def with_replicas(self, row: int) -> list[bytes]:
        """The records of a lane that may be schedules with replicas."""
        rows = self._db.execute(
            "select payload from records where lane = ? and instr(payload, ?) > 0",
            (row, b'"replicas":'),
        )
        return [bytes(one) for (one,) in rows]

    def went(self, rows: Iterable[int], upto: int) -> None:
        """Note that records of these lanes are gone from the log."""
        gone = [(row, upto) for row in rows]
        self._db.executemany("insert or replace into purged values (?, ?)", gone)
        self._db.executemany(
            "delete from hot where lane = ? and not exists"
            " (select 1 from records r where r.lane = hot.lane and r.seq > ?)",
            gone,
        )

    def gaps(self, upto: int) -> list[tuple[int, int]]:
        """From which sequence on how many are missing that never were on the log."""
        found = self._db.execute(
            "select seq, missing from gaps where seq <= ? order by seq", (upto,)
        )
        return found.fetchall()
