"""What a replica knows about lanes that may leave the log, and which of them have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from antiphon.core.families.jobs.columns import follows
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.replicas import until_ms
from antiphon.core.families.jobs.state import JobLane
from antiphon.core.opened_record import open_anywhere
from antiphon.ports import NANOSECONDS_PER_MS
from antiphon.runtime.replica.replica import Queries, Replica
from antiphon.runtime.replica.replica_table import link

if TYPE_CHECKING:
    from antiphon.core.record.branches import LaneKey
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


class LiveRow(NamedTuple):
    """A lane that is not known to be archived."""

    row: int
    kind: str
    name: str
    lane: Any


class ReplicaArchive(Queries):
    """Questions of the archiver."""

    def old(self, table: LaneTable, below: int, *, limit: int, after: int = 0) -> list[OldRow]:
        """The oldest lanes of a family with records below a sequence that are not purged.

        Without those whose first such record is not behind `after`.
        """
        # By sequence, and no further than the page: grouping all lanes for each page would grow
        # with their square.
        begin = after + 1 if after else self._oldest(table)
        rest = "from records e where e.lane = r.lane and e.seq >= r.seq and e.seq < :below"
        rows = self._db.execute(
            f"select l.id, l.kind, l.name, l.body, r.seq, (select max(e.seq) {rest}),"  # noqa: S608 - our own name
            f" (select max(e.stamp_ns) {rest})"
            f" from records r cross join hot h on h.lane = r.lane cross join {table.name} l"
            " on l.id = r.lane left join purged p on p.lane = r.lane"
            " where r.seq >= :begin and r.seq < :below and r.seq > coalesce(p.upto, 0)"
            " and not exists (select 1 from records e where e.lane = r.lane and e.seq < r.seq"
            " and e.seq > coalesce(p.upto, 0)) order by r.seq limit :limit",
            {"begin": begin, "below": below, "limit": limit},
        )
        return [
            OldRow(
                *(row, kind, name, table.decode(body)),
                first=first,
                last=last,
                newest_ms=newest_ns // NANOSECONDS_PER_MS,
            )
            for row, kind, name, body, first, last, newest_ns in rows
        ]

    def _oldest(self, table: LaneTable) -> int:
        """The first record of a family that is on the log."""
        found = self._db.execute(
            "select min((select min(r.seq) from records r"  # noqa: S608 - our own name
            " where r.lane = h.lane and r.seq > coalesce(p.upto, 0)))"
            f" from hot h cross join {table.name} l on l.id = h.lane"
            " left join purged p on p.lane = h.lane"
        ).fetchone()
        return int(found[0] or 0)

    def live(self, table: LaneTable, *, after: int, limit: int) -> list[LiveRow]:
        """Lanes of a family that are not known to be archived, in the order of their rows."""
        rows = self._db.execute(
            f"select l.id, l.kind, l.name, l.body from live v join {table.name} l on l.id = v.lane"  # noqa: S608 - our own name
            " where l.id > ? order by l.id limit ?",
            (after, limit),
        )
        return [LiveRow(row, kind, name, table.decode(body)) for row, kind, name, body in rows]

    def not_live(self, rows: Iterable[int]) -> None:
        """Note that lanes are archived; one that begins again is live again."""
        self._db.executemany("delete from live where lane = ?", [(row,) for row in rows])

    def stamps(self, row: int, upto: int) -> list[tuple[int, int]]:
        """The records of a lane up to a sequence: sequence and stamp in ms."""
        rows = self._db.execute(
            "select seq, stamp_ns from records where lane = ? and seq <= ? order by seq",
            (row, upto),
        )
        return [(seq, stamp_ns // NANOSECONDS_PER_MS) for seq, stamp_ns in rows]

    def newest_upto(self, row: int, below: int, before_ms: int) -> int:
        """The newest record of a lane below a sequence and not behind a time; 0 if all are gone."""
        found = self._db.execute(
            "select max(seq) from records where lane = ? and seq < ? and stamp_ns < ?"
            " and seq > coalesce((select upto from purged where lane = ?), 0)",
            (row, below, before_ms * NANOSECONDS_PER_MS, row),
        ).fetchone()
        return found[0] or 0

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

    def is_on_log(self, key: LaneKey) -> bool:
        """Whether a lane has records on the log."""
        found = self._db.execute(
            f"select 1 from hot join lanes_{key.family} on id = lane where name = ? and kind = ?",  # noqa: S608 - our own name
            (key.name, key.kind),
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


def replicas_until_ms(replica: Replica, row: int) -> int:
    """Until when replicas may name a schedule of this lane, accepted or not; -1: there is none."""
    found = replica.ask(ReplicaArchive).with_replicas(row)
    ops = (open_anywhere(replica.protocol, replica.mesh, payload).op for payload in found)
    return max((until_ms(op) for op in ops if isinstance(op, JobSchedule)), default=-1)
