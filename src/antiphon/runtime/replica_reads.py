"""Questions to the replica: everything here is answered on this machine (spec §3, M20).

The tables and who writes them are in `antiphon.runtime.replica`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.core import subjects
from antiphon.core.branches import LaneKey
from antiphon.core.families.jobs.columns import WITHOUT_RESULT
from antiphon.core.families.jobs.state import Job, JobLane, State, job_key
from antiphon.core.family import Lane
from antiphon.core.protocol import Protocol
from antiphon.core.reasons import Reason
from antiphon.ports import Record
from antiphon.runtime.replica_table import LaneTable

_HEAD_BYTES: Final = 2048

_decode = msgspec.msgpack.Decoder(JobLane).decode


class StoredRecord(Struct, frozen=True):
    """A record with the verdict this node gave it."""

    record: Record
    verdict: Reason


class ReplicaReads:
    """The reading half of a replica."""

    _db: sqlite3.Connection
    mesh: str
    protocol: Protocol
    tables: dict[str, LaneTable]

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The kinds that it was made of, as filters; None if nobody began it."""
        row = self._db.execute("select value from meta where name = 'reads'").fetchone()
        return None if row is None else tuple(row[0].split())

    def control_records(self) -> Iterator[Record]:
        """Every control record, oldest first."""
        rows = self._db.execute(
            "select seq, stamp_ns, subject, payload from records where lane is null order by seq"
        )
        pattern = subjects.all_control(self.mesh)
        return (Record(*row) for row in rows if subjects.matches(pattern, row[2]))

    def record(self, seq: int) -> StoredRecord | None:
        """One record, or None."""
        row = self._db.execute(
            "select seq, stamp_ns, subject, payload, verdict from records where seq = ?", (seq,)
        ).fetchone()
        return StoredRecord(Record(*row[:4]), Reason(row[4])) if row else None

    def newest(self, since_ns: int, *, limit: int) -> Iterator[tuple[int, str, Reason, int, bytes]]:
        """Of the newest records, newest first: stamp in ms, subject, verdict, size, first bytes."""
        rows = self._db.execute(
            "select stamp_ns, subject, verdict, length(payload), substr(payload, 1, ?)"
            " from records order by seq desc limit ?",
            (_HEAD_BYTES, limit),
        )
        for stamp_ns, subject, verdict, size, head in rows:
            if stamp_ns < since_ns:
                return
            yield stamp_ns // 1_000_000, subject, Reason(verdict), size, head

    def newest_of(self, key: LaneKey, *, verdict: Reason | None = None) -> StoredRecord | None:
        """The newest record of a lane, of any verdict or of this one."""
        row = self._db.execute(
            "select seq, stamp_ns, subject, payload, verdict from records"
            " where lane = ? and (? is null or verdict = ?) order by seq desc limit 1",
            (self._row_of(key), verdict, verdict),
        ).fetchone()
        return StoredRecord(Record(*row[:4]), Reason(row[4])) if row else None

    def newest_beside(self, subject: str) -> int:
        """The newest sequence that is not on this subject; 0 if there is none."""
        row = self._db.execute(
            "select seq from records where subject != ? order by seq desc limit 1", (subject,)
        ).fetchone()
        return int(row[0]) if row else 0

    def lane_records(self, key: LaneKey) -> list[StoredRecord]:
        """A lane's records with their verdicts, oldest first."""
        rows = self._db.execute(
            "select seq, stamp_ns, subject, payload, verdict from records"
            " where lane = ? order by seq",
            (self._row_of(key),),
        )
        return [StoredRecord(Record(*row[:4]), Reason(row[4])) for row in rows]

    def job_records(self, kind: str, job: str) -> list[StoredRecord]:
        """The same of a job's lane."""
        return self.lane_records(job_key(kind, job))

    def _row_of(self, key: LaneKey) -> int:
        """The row of a lane; 0 if there is none, which no lane has."""
        row = self._db.execute(self.tables[key.family].find, (key.name, key.kind)).fetchone()
        return int(row[0]) if row else 0

    def find_lanes(self, prefix: str, *, limit: int = 16) -> list[tuple[LaneKey, Lane]]:
        """Lanes of any family whose names begin with these letters."""
        found: list[tuple[LaneKey, Lane]] = []
        for family, table in self.tables.items():
            rows = self._db.execute(
                f"select kind, name, body from {table.name}"  # noqa: S608 - a name of our own
                " where name >= ? and name < ? and name != '' limit ?",
                (prefix, prefix + "\uffff", limit - len(found)),
            )
            found += [(LaneKey(family, row[0], row[1]), table.decode(row[2])) for row in rows]
        return found

    def job(self, kind: str, job: str) -> Job | None:
        """What is the state of this job (M20)."""
        row = self._db.execute(
            "select body from lanes_jobs where name = ? and kind = ?", (job, kind)
        ).fetchone()
        return _decode(row[0]).job if row else None

    def find(self, prefix: str, *, limit: int = 16) -> list[Job]:
        """Jobs whose id begins with these hex digits."""
        rows = self._db.execute(
            "select body from lanes_jobs"
            " where name >= ? and name < ? and state is not null limit ?",
            (prefix, prefix + "g", limit),
        )
        return _jobs(rows)

    def pending(self, kind: str, *, limit: int = 1000) -> list[Job]:
        """Pending jobs of a kind, or below it, oldest first (M20)."""
        rows = self._db.execute(
            "select body from lanes_jobs where due_ms is not null and state = 'pending'"
            " and (kind = ? or (kind > ? and kind < ?)) order by first_seq limit ?",
            (kind, kind + ".", kind + "/", limit),
        )
        return _jobs(rows)

    def overdue(self, now_ms: int, *, limit: int = 100) -> list[Job]:
        """Jobs past their deadline, or past the time to start, longest overdue first (M20)."""
        rows = self._db.execute(
            "select body from lanes_jobs where due_ms is not null and due_ms < ?"
            " order by due_ms limit ?",
            (now_ms, limit),
        )
        return _jobs(rows)

    def unanswered(self, now_ms: int, *, limit: int = 100) -> list[Job]:
        """Pending jobs that should be called again, longest waiting first."""
        rows = self._db.execute(
            "select body from lanes_jobs where recall_ms is not null and recall_ms < ?"
            " order by recall_ms limit ?",
            (now_ms, limit),
        )
        return _jobs(rows)

    def kept_before(self, ended_ms: int, *, limit: int) -> list[Job]:
        """Jobs that ended before this and whose outputs are still kept, longest ago first."""
        rows = self._db.execute(
            "select body from lanes_jobs where kept_ms is not null and kept_ms < ?"
            " order by kept_ms limit ?",
            (ended_ms, limit),
        )
        return _jobs(rows)

    def is_needed(self, digest: str) -> bool:
        """Whether a job that has not ended reads it, or one that has still keeps it."""
        row = self._db.execute("select 1 from named where digest = ? limit 1", (digest,)).fetchone()
        return row is not None

    def evicted_before(self, at_ms: int, *, limit: int) -> list[str]:
        """Digests that were evicted before this and not settled yet."""
        rows = self._db.execute(
            "select digest from evicted where at_ms < ? order by at_ms limit ?", (at_ms, limit)
        )
        return [str(row[0]) for row in rows]

    def jobs(self, *, states: Iterable[State] = (), kind: str = "", limit: int = 50) -> list[Job]:
        """Jobs, newest first, filtered by state and kind prefix."""
        wanted = [state.value for state in states]
        clauses, args = ["state is not null"], list[object]()
        if wanted and set(wanted) <= {state.value for state in WITHOUT_RESULT}:
            clauses.append("failed_seq is not null")
        if wanted:
            clauses.append(f"state in ({','.join('?' * len(wanted))})")
            args += wanted
        if kind:
            clauses.append("(kind = ? or (kind > ? and kind < ?))")
            args += [kind, kind + ".", kind + "/"]
        rows = self._db.execute(
            f"select body from lanes_jobs where {' and '.join(clauses)} order by id desc limit ?",  # noqa: S608 - only placeholders are joined
            (*args, limit),
        )
        return _jobs(rows)

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state that has any."""
        rows = self._db.execute(
            "select state, lanes from tallies where family = 'jobs' and lanes > 0"
        )
        return dict(rows.fetchall())


def _jobs(rows: Iterable[tuple[bytes]]) -> list[Job]:
    found = (_decode(row[0]).job for row in rows)
    return [job for job in found if job is not None]
