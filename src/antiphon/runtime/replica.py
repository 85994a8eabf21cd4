"""The embedded replica: the log and what follows from it, in SQLite beside the node (spec §3).

Reads never leave the machine. The replica is a cache of the log and can be thrown away; what may
never happen is that it disagrees with the log unnoticed, so records, derived lanes and the cursor
move in one transaction, and the cursor names both the sequence and the digest of the last record.

A replica is made of what the log shows within one scope, and knows which: lanes of other kinds
may have begun before the cursor, so with another scope it begins anew.

Writes are batched. Lanes in work are kept in memory, bounded; a lane that is not there is read
from its row, so memory depends on what is alive, not on what ever was.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.core.ids import digest
from antiphon.core.jobs import HELD, OPEN, TERMINAL, State
from antiphon.core.lanes import EMPTY, Lane
from antiphon.core.reasons import Reason
from antiphon.core.scope import EVERY_KIND
from antiphon.errors import Corrupt
from antiphon.ports import Record
from antiphon.runtime import replica_tree
from antiphon.runtime.replica_reads import WITHOUT_RESULT, ReplicaReads, decode_lane

SCHEMA_VERSION: Final = 3
LANES_IN_MEMORY: Final = 50_000
CACHE_KIB: Final = 16 * 1024

_SCHEMA: Final = """
create table if not exists meta (name text primary key, value text not null) without rowid;
create table if not exists lanes (
    id integer primary key,
    kind text not null,
    job text not null,
    state text,
    urgency integer,
    due_ms integer,      -- when anyone may expire it; null once it has ended
    recall_ms integer,   -- when it should be called again; null unless pending
    failed_seq integer,  -- where it ended without a result
    calls integer not null,
    called_ms integer not null,
    first_seq integer not null,
    kept_ms integer,     -- since when what it wrote is kept beside the log; null if nothing is
    body blob not null,
    unique (job, kind)
);
create index if not exists lanes_open on lanes (state, kind, first_seq) where due_ms is not null;
create index if not exists lanes_due on lanes (due_ms) where due_ms is not null;
create index if not exists lanes_recall on lanes (recall_ms) where recall_ms is not null;
create index if not exists lanes_failed on lanes (failed_seq) where failed_seq is not null;
create index if not exists lanes_kept on lanes (kept_ms) where kept_ms is not null;
create table if not exists named (  -- by digest: lanes that still need those bytes
    digest text not null, lane integer not null, primary key (digest, lane)
) without rowid;
create table if not exists evicted (digest text primary key, at_ms integer not null) without rowid;
create table if not exists tallies (state text primary key, jobs integer not null) without rowid;
create table if not exists records (
    seq integer primary key,
    stamp_ns integer not null,
    subject text not null,
    verdict text not null,
    lane integer,
    payload blob not null
);
create index if not exists records_lane on records (lane, seq) where lane is not null;
create index if not exists records_control on records (seq) where lane is null;
"""

_TABLES: Final = ("records", "lanes", "named", "evicted", "tallies")

_encoder = msgspec.msgpack.Encoder()


class Cursor(Struct, frozen=True):
    """How far the replica has come, and what stood there."""

    seq: int
    record_digest: str


class _Held(Struct):
    """A lane in memory; `row` is 0 until it has one."""

    row: int
    lane: Lane
    calls: int
    called_ms: int
    first_seq: int
    counted_as: State | None
    """The state under which the tallies in the file count it."""
    recall_after_ms: int = 0
    dirty: bool = False
    named: tuple[str, ...] = ()
    """The digests under which the file has it, and of which it evicted some."""
    evictions: int = 0


class Replica(ReplicaReads):
    """One mesh's replica in one file. A single writer; readers open it read-only."""

    def __init__(self, path: Path | str, *, mesh: str, read_only: bool = False) -> None:
        """Open or create; `Corrupt` if the file belongs to another mesh."""
        self.mesh = mesh
        target = f"file:{path}?mode=ro" if read_only else str(path)
        self._db = sqlite3.connect(
            target, uri=read_only, isolation_level=None, check_same_thread=False
        )
        self._db.execute(f"pragma cache_size = -{CACHE_KIB}")
        self._db.execute("pragma busy_timeout = 5000")
        if not read_only:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.executescript(_SCHEMA + replica_tree.SCHEMA)
            self._db.execute("begin immediate")
            self._claim_file()
            self._db.execute("commit")
        self.tree = replica_tree.Tree(self._db)
        """The Merkle tree over the records: what seals are compared with."""
        self._load()
        if not read_only:
            self.tree.load(self._cursor.seq)

    def _load(self) -> None:
        """Go on from what is in the file."""
        self._lanes: dict[tuple[str, str], _Held] = {}
        self._dirty: list[tuple[tuple[str, str], _Held]] = []
        self._pending: list[tuple[int, int, str, str, tuple[str, str] | None, bytes]] = []
        self._next_row = self._scalar("select coalesce(max(id), 0) from lanes") + 1
        self._cursor = self._load_cursor()

    def _claim_file(self) -> None:
        known = dict(self._db.execute("select name, value from meta").fetchall())
        if not known:
            rows = [("mesh", self.mesh), ("schema", str(SCHEMA_VERSION))]
            self._db.executemany("insert into meta values (?, ?)", rows)
            return
        if known.get("mesh") != self.mesh or known.get("schema") != str(SCHEMA_VERSION):
            raise Corrupt(
                f"the replica holds mesh {known.get('mesh')} in schema {known.get('schema')},"
                f" not {self.mesh} in {SCHEMA_VERSION}",
                hint="move the file away; the replica is rebuilt from the log",
            )

    def _scalar(self, sql: str, *args: object) -> int:
        row = self._db.execute(sql, args).fetchone()
        return int(row[0]) if row and row[0] is not None else 0

    def _load_cursor(self) -> Cursor:
        row = self._db.execute(
            "select seq, payload from records order by seq desc limit 1"
        ).fetchone()
        return Cursor(row[0], digest(row[1])) if row else Cursor(0, "")

    def close(self) -> None:
        """Let go of the file; safe twice."""
        self._db.close()

    # --- writing ------------------------------------------------------------------------------

    def begin_anew(self, reads: tuple[str, ...]) -> None:
        """Forget everything and be a replica of these kinds; in one transaction."""
        self._db.execute("begin immediate")
        try:
            for table in (*_TABLES, *replica_tree.TABLES):
                self._db.execute(f"delete from {table}")  # noqa: S608 - names of our own
            self._db.execute("delete from meta where name = 'leaves'")
            self._db.execute("insert or replace into meta values ('reads', ?)", (" ".join(reads),))
            self._db.execute("commit")
        except BaseException:
            self._db.execute("rollback")
            raise
        self._load()
        self.tree.load(0)
        if EVERY_KIND not in reads:
            self.tree.keep_none()

    @property
    def cursor(self) -> Cursor:
        """The last record that is in the file."""
        return self._cursor

    def lane(self, key: tuple[str, str]) -> Lane:
        """A lane as of the last record that was noted."""
        return self._hold(key).lane

    def _hold(self, key: tuple[str, str]) -> _Held:
        held = self._lanes.get(key)
        if held is None:
            row = self._db.execute(
                "select id, body, calls, called_ms, first_seq from lanes"
                " where kind = ? and job = ?",
                key,
            ).fetchone()
            if row is None:
                held = _Held(0, EMPTY, 0, 0, 0, None)
            else:
                lane = decode_lane(row[1])
                state = lane.job.state if lane.job is not None else None
                held = _Held(row[0], lane, row[2], row[3], row[4], state)
                held.named, held.evictions = _needs(lane), _evictions(lane)
            self._lanes[key] = held
        return held

    def note(
        self,
        record: Record,
        verdict: Reason,
        key: tuple[str, str] | None = None,
        lane: Lane | None = None,
        recall_after_ms: int = 0,
    ) -> None:
        """Add one judged record; nothing reaches the file before `flush`.

        `recall_after_ms` is the rule for how long a call may stay unanswered.
        """
        self._pending.append(
            (record.seq, record.stamp_ns, record.subject, verdict.value, key, record.payload)
        )
        if key is None or lane is None:
            return
        held = self._hold(key)
        held.lane = lane
        held.recall_after_ms = recall_after_ms
        if held.first_seq == 0:
            held.first_seq = record.seq
        if ".call." in record.subject and verdict.is_accepted:
            held.calls += 1
            held.called_ms = record.commit_ms
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
        fresh, known = [], []
        moved: Counter[State] = Counter()
        for key, held in self._dirty:
            held.dirty = False
            state = held.lane.job.state if held.lane.job is not None else None
            if state is not held.counted_as:
                if held.counted_as is not None:
                    moved[held.counted_as] -= 1
                if state is not None:
                    moved[state] += 1
                held.counted_as = state
            columns = _columns(held)
            if held.row == 0:
                held.row = self._next_row
                self._next_row += 1
                fresh.append((held.row, *key, *columns))
            else:
                known.append((*columns, held.row))
        self._write_needs()
        self._dirty.clear()
        self._db.executemany(
            "insert into lanes (id, kind, job, state, urgency, due_ms, recall_ms, failed_seq,"
            " calls, called_ms, first_seq, kept_ms, body)"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            fresh,
        )
        self._db.executemany(
            "update lanes set state = ?, urgency = ?, due_ms = ?, recall_ms = ?, failed_seq = ?,"
            " calls = ?, called_ms = ?, first_seq = ?, kept_ms = ?, body = ? where id = ?",
            known,
        )
        self._db.executemany(
            "insert into tallies values (?, ?)"
            " on conflict (state) do update set jobs = jobs + excluded.jobs",
            [(state.value, change) for state, change in moved.items()],
        )

    def _write_needs(self) -> None:
        """Which lanes need which bytes; most lanes name none."""
        for _, held in self._dirty:
            job, needs, evictions = held.lane.job, _needs(held.lane), _evictions(held.lane)
            if needs != held.named:
                self._db.execute("delete from named where lane = ?", (held.row,))
                rows = [(digest_, held.row) for digest_ in needs]
                self._db.executemany("insert into named values (?, ?)", rows)
            if job is not None and evictions > held.evictions:
                gone = [(which, job.hlc[0]) for which in job.evicted[held.evictions :]]
                self._db.executemany("insert or replace into evicted values (?, ?)", gone)
            held.named, held.evictions = needs, evictions

    def settle_eviction(self, digest_: str) -> None:
        """Forget an eviction whose bytes are gone, or needed after all."""
        self._db.execute("delete from evicted where digest = ?", (digest_,))

    def _forget(self) -> None:
        """Keep memory bounded: ended lanes leave first, then the oldest."""
        if len(self._lanes) <= LANES_IN_MEMORY:
            return
        for key in [k for k, held in self._lanes.items() if _is_ended(held.lane)]:
            del self._lanes[key]
        while len(self._lanes) > LANES_IN_MEMORY:
            del self._lanes[next(iter(self._lanes))]

    def refresh(self) -> Cursor:
        """For read-only opens: see what the writer has flushed since."""
        self._cursor = self._load_cursor()
        self.tree.see(self._cursor.seq)
        return self._cursor


def _needs(lane: Lane) -> tuple[str, ...]:
    job = lane.job
    return tuple(dict.fromkeys((*job.reads, *job.stored))) if job is not None else ()


def _evictions(lane: Lane) -> int:
    return len(lane.job.evicted) if lane.job is not None else 0


def _is_ended(lane: Lane) -> bool:
    return lane.job is not None and lane.job.state in TERMINAL


def _columns(held: _Held) -> tuple[object, ...]:
    job = held.lane.job
    body = _encoder.encode(held.lane)
    if job is None:
        return None, None, None, None, None, held.calls, held.called_ms, held.first_seq, None, body
    due_ms: int | None = None
    if job.state in HELD:
        due_ms = job.deadline_ms
    elif job.state in OPEN:
        due_ms = job.start_by_ms
    recall_ms: int | None = None
    if job.state is State.PENDING:
        recall_ms = job.recall_ms(held.calls, held.called_ms, held.recall_after_ms)
    failed_seq = job.ended_seq if job.state.value in WITHOUT_RESULT else None
    return (
        job.state.value,
        job.urgency,
        due_ms,
        recall_ms,
        failed_seq,
        held.calls,
        held.called_ms,
        held.first_seq,
        job.ended_ms if job.stored else None,
        body,
    )
