"""The embedded replica: the log and the state derived from it, in SQLite beside the node (spec §3).

Reads never leave the machine. The replica is a cache of the log and can be thrown away. It must
never disagree with the log unnoticed, so records, derived lanes and the cursor change in one
transaction, and the cursor names both the sequence and the digest of the last record.

A replica is made of what the log shows within one scope, and records which. Lanes of other kinds
may have begun before the cursor, so another scope means building it again.

There is one table of records, and one of lanes for each family, with the columns that the family
declares. Writes are batched. Active lanes are kept in memory, bounded; any other lane is read
from its row, so memory depends on what is active, not on everything that ever was.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

import msgspec
from msgspec import Struct

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.families.jobs.columns import WITHOUT_RESULT, link
from antiphon.core.families.jobs.state import Job, JobLane, State, job_key
from antiphon.core.family import Evicted, Lane
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record import subjects
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt
from antiphon.ports import NANOSECONDS_PER_MS, Record
from antiphon.runtime.attention import attention_table
from antiphon.runtime.locks.replica_locks import ReplicaLocks
from antiphon.runtime.memory.replica_documents import ReplicaDocuments
from antiphon.runtime.node import replica_reports, replica_tree
from antiphon.runtime.node.replica_plans import ReplicaPlans
from antiphon.runtime.node.replica_sizes import ALL_KINDS, ReplicaSizes
from antiphon.runtime.node.replica_table import LaneTable, Row
from antiphon.runtime.node.replica_waits import ReplicaWaits
from antiphon.runtime.presence import presence_changes

SCHEMA_VERSION: Final = 7
LANES_IN_MEMORY: Final = 50_000
CACHE_KIB: Final = 16 * 1024
_HEAD_BYTES: Final = 2048
MOST_FOUND: Final = 16
"""How many lanes are listed for an ambiguous prefix."""

_decode = msgspec.msgpack.Decoder(JobLane).decode

_SCHEMA: Final = """
create table if not exists meta (name text primary key, value text not null) without rowid;
create table if not exists named (  -- lanes that still need those bytes, or wait for that job
    digest text not null, lane integer not null, primary key (digest, lane)
) without rowid;
create table if not exists evicted (
    digest text primary key, at_ms integer not null, named_as text not null
) without rowid;
create table if not exists tallies (
    family text not null, kind text not null,  -- empty: of all kinds
    state text not null, lanes integer not null, primary key (family, kind, state)
) without rowid;
create table if not exists records (
    seq integer primary key,
    stamp_ns integer not null,
    subject text not null,
    verdict text not null,
    lane integer,  -- its row in the table of its family; rows of all families are counted together
    payload blob not null
);
create index if not exists records_lane on records (lane, seq) where lane is not null;
create index if not exists records_control on records (seq) where lane is null;
"""

_BESIDE: Final = (replica_tree, replica_reports, attention_table, presence_changes)
_TABLES: Final = ("records", "named", "evicted", "tallies")


class Cursor(Struct, frozen=True):
    """How far the replica has come, and the digest of the record there."""

    seq: int
    record_digest: str


class StoredRecord(Struct, frozen=True):
    """A record with the verdict that this node gave it."""

    record: Record
    verdict: Verdict


class _Held(Struct):
    """A lane in memory; `row` is 0 until it has one."""

    row: int
    lane: Lane
    table: LaneTable
    first_seq: int = 0
    counted_as: str | None = None
    """The state under which the tallies in the file count it."""
    dirty: bool = False
    named: tuple[str, ...] = ()
    """The digests that the file lists for it, and what it no longer needed at that time."""
    gone: tuple[Evicted, ...] = ()


class Replica:
    """One mesh's replica in one file. It has one writer; readers open it read-only."""

    def __init__(
        self,
        path: Path | str,
        *,
        mesh: str,
        read_only: bool = False,
        protocol: Protocol = PROTOCOL,
    ) -> None:
        """Open or create; `Corrupt` if the file belongs to another mesh."""
        self.mesh = mesh
        self.protocol = protocol
        self.tables = {
            family.name: LaneTable(family) for family in protocol.families if not family.is_control
        }
        target = f"file:{path}?mode=ro" if read_only else str(path)
        self._db = sqlite3.connect(
            target, uri=read_only, isolation_level=None, check_same_thread=False
        )
        self._db.execute(f"pragma cache_size = -{CACHE_KIB}")
        self._db.execute("pragma busy_timeout = 5000")
        if not read_only:
            self._db.executescript("pragma journal_mode = wal; pragma synchronous = normal")
            self._db.executescript(_SCHEMA + "".join(one.SCHEMA for one in _BESIDE))
            self._db.execute("begin immediate")
            self._claim_file()
            self._db.execute("commit")
            self._db.executescript("".join(table.schema for table in self.tables.values()))
        self.tree = replica_tree.Tree(self._db)
        """The Merkle tree over the records: what seals are compared with."""
        self.plans = ReplicaPlans(self._db)
        self.documents = ReplicaDocuments(self._db)
        self.locks = ReplicaLocks(self._db)
        self.waits = ReplicaWaits(self._db)
        self.sizes = ReplicaSizes(self._db)
        self.reports = replica_reports.ReplicaReports(self._db)
        self.attention = attention_table.AttentionTable(self._db)
        self.presence = presence_changes.PresenceChanges(self._db)
        self._load()
        if not read_only:
            self.tree.load(self._cursor.seq)

    def _load(self) -> None:
        """Continue from what is in the file."""
        self._lanes: dict[LaneKey, _Held] = {}
        self._dirty: list[tuple[LaneKey, _Held]] = []
        self._pending: list[tuple[int, int, str, str, LaneKey | None, bytes]] = []
        self._next_row = 1 + max(
            self._scalar(f"select coalesce(max(id), 0) from {table.name}")  # noqa: S608 - our own name
            for table in self.tables.values()
        )
        self._cursor = self._load_cursor()

    def _claim_file(self) -> None:
        """A family whose columns changed cannot continue with what an older version wrote."""
        known = dict(self._db.execute("select name, value from meta").fetchall())
        schema = {"schema": str(SCHEMA_VERSION)}
        schema |= {table.name: digest(table.schema.encode()) for table in self.tables.values()}
        if not known:
            self._db.execute("insert into meta values ('mesh', ?)", (self.mesh,))
        elif known.get("mesh") != self.mesh or any(
            known.get(name, value) != value for name, value in schema.items()
        ):
            raise Corrupt(
                f"the replica is of mesh {known.get('mesh')} in schema {known.get('schema')},"
                f" not of {self.mesh} in this version's schema ({SCHEMA_VERSION})",
                hint="move the file away; the replica is rebuilt from the log",
            )
        elif not schema.keys() <= known.keys():
            # For the code that wrote it, records of the new families belonged to no lane.
            self._db.execute("delete from meta where name = 'reads'")
        self._db.executemany("insert or replace into meta values (?, ?)", schema.items())

    def _scalar(self, sql: str, *args: object) -> int:
        row = self._db.execute(sql, args).fetchone()
        return int(row[0]) if row and row[0] is not None else 0

    def _load_cursor(self) -> Cursor:
        row = self._db.execute(
            "select seq, payload from records order by seq desc limit 1"
        ).fetchone()
        return Cursor(row[0], digest(row[1])) if row else Cursor(0, "")

    def close(self) -> None:
        """Close the file; safe twice."""
        self._db.close()

    # --- writing ------------------------------------------------------------------------------

    def begin_anew(self, reads: tuple[str, ...]) -> None:
        """Delete everything and become a replica of what these filters show; one transaction."""
        self._db.execute("begin immediate")
        try:
            lanes = (table.name for table in self.tables.values())
            for table in (*_TABLES, *lanes, *replica_tree.TABLES):
                self._db.execute(f"delete from {table}")  # noqa: S608 - our own names
            self._db.execute("delete from meta where name = 'leaves'")
            self._db.execute("insert or replace into meta values ('reads', ?)", (" ".join(reads),))
            self._db.execute("commit")
        except BaseException:
            self._db.execute("rollback")
            raise
        self._load()
        self.tree.load(0)
        if reads != WHOLE:
            self.tree.keep_none()

    @property
    def cursor(self) -> Cursor:
        """The last record that is in the file."""
        return self._cursor

    def lane(self, key: LaneKey) -> Lane:
        """A lane as of the last record that was noted."""
        return self._hold(key).lane

    def job_lane(self, kind: str, job_id: str) -> JobLane:
        """A job's lane as of the last record that was noted."""
        return cast("JobLane", self.lane(job_key(kind, job_id)))

    def _hold(self, key: LaneKey) -> _Held:
        held = self._lanes.get(key)
        if held is None:
            table = self.tables[key.family]
            row = self._db.execute(table.find, (key.name, key.kind)).fetchone()
            if row is None:
                held = _Held(0, self.protocol.empty(key), table)
            else:
                lane = table.decode(row[1])
                held = _Held(row[0], lane, table, row[2], table.state_of(lane))
                held.named, held.gone = table.blobs(lane)
            self._lanes[key] = held
        return held

    def note(
        self,
        record: Record,
        verdict: Verdict,
        key: LaneKey | None = None,
        lane: Lane | None = None,
    ) -> None:
        """Add one judged record; nothing reaches the file before `flush`."""
        self._pending.append(
            (record.seq, record.stamp_ns, record.subject, verdict.value, key, record.payload)
        )
        if key is None or lane is None:
            return
        held = self._hold(key)
        held.lane = lane
        if held.first_seq == 0:
            held.first_seq = record.seq
        if not held.dirty:
            held.dirty = True
            self._dirty.append((key, held))

    def flush(self) -> None:
        """Write everything noted so far in one transaction."""
        if not self._pending:
            return
        self._db.execute("begin immediate")
        try:
            self._write_lanes()
            rows = [
                (seq, stamp, subject, verdict, self._lanes[key].row if key else None, payload)
                for seq, stamp, subject, verdict, key, payload in self._pending
            ]
            self._db.executemany("insert into records values (?, ?, ?, ?, ?, ?)", rows)
            self.tree.extend((*row[:4], row[5]) for row in rows)
            self._db.execute("commit")
        except BaseException:
            self._db.execute("rollback")
            self.tree.load(self._cursor.seq)
            raise
        last = self._pending[-1]
        self._cursor = Cursor(last[0], digest(last[5]))
        self._pending.clear()
        self._forget()

    def _write_lanes(self) -> None:
        fresh: dict[str, list[Row]] = {}
        known: dict[str, list[Row]] = {}
        moved: Counter[tuple[str, str, str | None]] = Counter()
        for key, held in self._dirty:
            held.dirty = False
            table = held.table
            state = table.state_of(held.lane)
            if state != held.counted_as:
                for kind in {key.kind, ALL_KINDS}:
                    moved[key.family, kind, held.counted_as] -= 1
                    moved[key.family, kind, state] += 1
                held.counted_as = state
            values = table.values(held.lane)
            if held.row == 0:
                held.row = self._next_row
                self._next_row += 1
                row = (held.row, key.kind, key.name, held.first_seq, *values)
                fresh.setdefault(key.family, []).append(row)
            else:
                known.setdefault(key.family, []).append((*values, held.row))
            self._write_needs(held)
        self._dirty.clear()
        for family, rows in fresh.items():
            self._db.executemany(self.tables[family].insert, rows)
        for family, rows in known.items():
            self._db.executemany(self.tables[family].update, rows)
        self._db.executemany(
            "insert into tallies values (?, ?, ?, ?)"
            " on conflict (family, kind, state) do update set lanes = lanes + excluded.lanes",
            [(*which, n) for which, n in moved.items() if n and which[-1] is not None],
        )

    def _write_needs(self, held: _Held) -> None:
        """The bytes that a lane needs; most need none."""
        needs, gone = held.table.blobs(held.lane)
        if needs != held.named:
            over, fresh = set(held.named).difference(needs), set(needs).difference(held.named)
            delete, insert = "delete from named where digest = ? and lane = ?", "insert into named"
            for sql, digests in ((delete, over), (f"{insert} values (?, ?)", fresh)):
                self._db.executemany(sql, [(one, held.row) for one in digests])
        if gone != held.gone:
            # The newest record about it, which an eviction is; the state's own time may be older.
            at_ms = self._pending[-1][1] // NANOSECONDS_PER_MS
            before = frozenset(held.gone)
            rows = [(one.digest, at_ms, one.named_as) for one in gone if one not in before]
            self._db.executemany(
                "insert into evicted values (?, ?, ?) on conflict (digest) do update set"
                " at_ms = excluded.at_ms, named_as ="
                " case when excluded.named_as = 'output' then 'output' else named_as end",
                rows,
            )
        held.named, held.gone = needs, gone

    def settle_eviction(self, digest_: str) -> None:
        """Delete an eviction whose bytes are removed, or needed after all."""
        self._db.execute("delete from evicted where digest = ?", (digest_,))

    def _forget(self) -> None:
        """Keep memory bounded: ended lanes go first, then the oldest."""
        if len(self._lanes) <= LANES_IN_MEMORY:
            return
        for key in [k for k, held in self._lanes.items() if held.table.is_over(held.lane)]:
            del self._lanes[key]
        while len(self._lanes) > LANES_IN_MEMORY:
            del self._lanes[next(iter(self._lanes))]

    def refresh(self) -> Cursor:
        """For read-only opens: see what the writer has flushed since."""
        self._cursor = self._load_cursor()
        self.tree.see(self._cursor.seq)
        return self._cursor

    # --- reading ------------------------------------------------------------------------------

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The kinds that it was made of, as filters; None if it was never begun."""
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
        return StoredRecord(Record(*row[:4]), Verdict(row[4])) if row else None

    def newest(
        self, since_ns: int, *, limit: int
    ) -> Iterator[tuple[int, str, Verdict, int, bytes]]:
        """Of the newest records, newest first: stamp in ms, subject, verdict, size, first bytes."""
        rows = self._db.execute(
            "select stamp_ns, subject, verdict, length(payload), substr(payload, 1, ?)"
            " from records order by seq desc limit ?",
            (_HEAD_BYTES, limit),
        )
        for stamp_ns, subject, verdict, size, head in rows:
            if stamp_ns < since_ns:
                return
            yield stamp_ns // NANOSECONDS_PER_MS, subject, Verdict(verdict), size, head

    def newest_of(self, key: LaneKey, *, verdict: Verdict | None = None) -> StoredRecord | None:
        """The newest record of a lane, with any verdict or with this one."""
        row = self._db.execute(
            "select seq, stamp_ns, subject, payload, verdict from records"
            " where lane = ? and (? is null or verdict = ?) order by seq desc limit 1",
            (self._row_of(key), verdict, verdict),
        ).fetchone()
        return StoredRecord(Record(*row[:4]), Verdict(row[4])) if row else None

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
        return [StoredRecord(Record(*row[:4]), Verdict(row[4])) for row in rows]

    def accepted_before(self, key: LaneKey, seq: int, *, limit: int) -> list[StoredRecord]:
        """The newest records of a lane before a sequence that took effect, newest first."""
        rows = self._db.execute(
            "select seq, stamp_ns, subject, payload, verdict from records"
            " where lane = ? and seq < ? and verdict = 'ok' order by seq desc limit ?",
            (self._row_of(key), seq, limit),
        )
        return [StoredRecord(Record(*row[:4]), Verdict(row[4])) for row in rows]

    def job_records(self, kind: str, job: str) -> list[StoredRecord]:
        """The records of a job's lane."""
        return self.lane_records(job_key(kind, job))

    def _row_of(self, key: LaneKey) -> int:
        """The row of a lane; 0, which no lane has, if there is none."""
        row = self._db.execute(self.tables[key.family].find, (key.name, key.kind)).fetchone()
        return int(row[0]) if row else 0

    def find_lanes(self, prefix: str) -> list[tuple[LaneKey, Lane]]:
        """Lanes of any family whose names begin with this prefix."""
        found: list[tuple[LaneKey, Lane]] = []
        for family, table in self.tables.items():
            rows = self._db.execute(
                f"select kind, name, body from {table.name}"  # noqa: S608 - our own name
                " where name >= ? and name < ? and name != '' limit ?",
                (prefix, prefix + "\uffff", MOST_FOUND - len(found)),
            )
            found += [(LaneKey(family, row[0], row[1]), table.decode(row[2])) for row in rows]
        return found

    def job(self, kind: str, job: str) -> Job | None:
        """The state of this job (M20)."""
        row = self._db.execute(
            "select body from lanes_jobs where name = ? and kind = ?", (job, kind)
        ).fetchone()
        return _decode(row[0]).job if row else None

    def find(self, text: str) -> list[Job]:
        """Jobs whose id begins with these hex digits, or whose alias is this ULID."""
        rows = self._db.execute(
            "select body from lanes_jobs"
            " where (name >= ? and name < ? and state is not null) or alias = ? limit ?",
            (text, text + "g", text.upper(), MOST_FOUND),
        )
        return _jobs(rows)

    def pending(self, kind: str, *, limit: int, after: int = 0) -> list[Job]:
        """Pending jobs of a kind, or below it, oldest first, scheduled after a sequence (M20)."""
        rows = self._db.execute(
            "select body from lanes_jobs where due_ms is not null and state = 'pending'"
            " and (kind = ? or (kind > ? and kind < ?)) and first_seq > ?"
            " order by first_seq limit ?",
            (kind, kind + ".", kind + "/", after, limit),
        )
        return _jobs(rows)

    def pending_by_kind(self) -> dict[str, int]:
        """How many jobs of each kind are pending."""
        rows = self._db.execute(
            "select kind, count(*) from lanes_jobs"
            " where due_ms is not null and state = 'pending' group by kind"
        )
        return dict(rows.fetchall())

    def overdue(self, now_ms: int, *, limit: int = 100) -> list[Job]:
        """Jobs past their deadline, or past the time to start, longest overdue first (M20)."""
        rows = self._db.execute(
            "select body from lanes_jobs where due_ms is not null and due_ms < ?"
            " order by due_ms limit ?",
            (now_ms, limit),
        )
        return _jobs(rows)

    def beginning(self, now_ms: int, *, limit: int, skip: int = 0) -> list[Job]:
        """Jobs that waited for a time that has come, earliest first, without the first `skip`."""
        rows = self._db.execute(
            "select body from lanes_jobs where begins_ms is not null and begins_ms <= ?"
            " order by begins_ms limit ? offset ?",
            (now_ms, limit, skip),
        )
        return _jobs(rows)

    def next_beginning(self, now_ms: int) -> int | None:
        """The earliest time after now for which a job waits."""
        row = self._db.execute(
            "select min(begins_ms) from lanes_jobs where begins_ms is not null and begins_ms > ?",
            (now_ms,),
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def unanswered(self, now_ms: int, *, limit: int = 100) -> list[Job]:
        """Pending jobs that should be offered again, longest waiting first."""
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

    def with_replaced(self, *, limit: int) -> list[Job]:
        """Unfinished jobs with checkpoints that newer ones replaced, those with most first."""
        rows = self._db.execute(
            "select body from lanes_jobs where replaced is not null order by replaced desc limit ?",
            (limit,),
        )
        return _jobs(rows)

    def followers(self, kind: str, job: str, *, limit: int) -> list[Job]:
        """Jobs that wait or waited for this one, oldest first."""
        rows = self._db.execute(
            "select body from lanes_jobs join named on lane = id where digest = ?"
            " order by id limit ?",
            (link((kind, job)), limit),
        )
        return _jobs(rows)

    def is_needed(self, digest: str) -> bool:
        """Whether an unfinished job reads it, or a finished job still keeps it."""
        row = self._db.execute("select 1 from named where digest = ? limit 1", (digest,)).fetchone()
        return row is not None

    def evicted_before(self, at_ms: int, *, limit: int) -> list[Evicted]:
        """What was evicted before this and is not settled yet."""
        rows = self._db.execute(
            "select digest, named_as from evicted where at_ms < ? order by at_ms limit ?",
            (at_ms, limit),
        )
        return [Evicted(*row) for row in rows]

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

    def ended(self, *, before: int | None = None, limit: int) -> list[Job]:
        """Jobs that ended, the latest first; those that ended before a sequence."""
        rows = self._db.execute(
            "select body from lanes_jobs where ended_seq is not null and (? is null or"
            " ended_seq < ?) order by ended_seq desc limit ?",
            (before, before, limit),
        )
        return _jobs(rows)

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state that has any."""
        return self.sizes.by_state()


def _jobs(rows: Iterable[tuple[bytes]]) -> list[Job]:
    found = (_decode(row[0]).job for row in rows)
    return [job for job in found if job is not None]
