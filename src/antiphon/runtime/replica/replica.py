"""The embedded replica: the log and the state derived from it, in SQLite beside the node (spec §3).

Reads never leave the machine. The replica is a cache of the log and can be thrown away. It must
never disagree with the log unnoticed, so records, derived lanes and the cursor change in one
transaction, and the cursor names both the sequence and the digest of the last record.

A replica is made of what the log shows within one scope, and records which. Lanes of other kinds
may have begun before the cursor, so another scope means building it again.

There is one table of records, and one of lanes for each family, with the columns that the family
declares. Writes are batched. Active lanes are kept in memory, bounded; any other lane is read
from its row, so memory depends on what is active, not on everything that ever was.

It knows no family by name: the queries of each are a class of its own (`Queries`).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec
from msgspec import Struct

from antiphon.core.archive.snapshot import Snapshot
from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.family import Evicted, Lane
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record import subjects
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.ports import NANOSECONDS_PER_MS, Record
from antiphon.runtime.attention import attention_table
from antiphon.runtime.presence import known_nodes, presence_changes
from antiphon.runtime.replica import (
    replica_reports,
    replica_schema,
    replica_tempo,
    replica_texts,
    replica_tree,
)
from antiphon.runtime.replica.replica_sizes import ALL_KINDS, ReplicaSizes
from antiphon.runtime.replica.replica_table import LaneTable, Row, link
from antiphon.runtime.replica.replica_tree import Gone
from antiphon.telemetry import LazyLogger

LANES_IN_MEMORY: Final = 50_000
LANE_BYTES: Final = 256
"""A lane that takes more in the file counts as several: a job may wait for a thousand others."""
CACHE_KIB: Final = 16 * 1024
MOST_FOUND: Final = 16
"""How many lanes are listed for an ambiguous prefix."""

_BESIDE: Final = (
    *(replica_tree, replica_reports, replica_tempo, attention_table),
    *(presence_changes, known_nodes),
)

_log = LazyLogger(__name__)


class Cursor(Struct, frozen=True):
    """How far the replica has come, and the digest of the record there."""

    seq: int
    record_digest: str


class StoredRecord(Struct, frozen=True):
    """A record with the verdict that this node gave it."""

    record: Record
    verdict: Verdict
    after: int = 0
    """Of a rejected record: the last one before it that its lane accepted."""
    erased: Gone | None = None
    """What is left of it, if its bytes were removed."""

    @property
    def digest(self) -> str:
        """The digest of its bytes, also of those that were removed."""
        return digest(self.record.payload) if self.erased is None else self.erased.digest

    def is_of(self, found: Record) -> bool:
        """Whether it is, or was, this record of the log."""
        if self.erased is None:
            return self.record == found
        return (self.record.seq, self.erased.digest) == (found.seq, digest(found.payload))


class _Held(Struct):
    """A lane in memory; `row` is 0 until it has one."""

    row: int
    lane: Lane
    table: LaneTable
    first_seq: int = 0
    """The record that gave it its state; while it has none, its newest."""
    counted_as: str | None = None
    """The state under which the tallies in the file count it."""
    dirty: bool = False
    named: tuple[str, ...] = ()
    """The digests that the file lists for it, and what it no longer needed at that time."""
    gone: tuple[Evicted, ...] = ()
    follows: tuple[tuple[str, str], ...] = ()
    """The lanes that the file lists it for, which it waits for."""
    weight: int = 1
    fixed: list[object] = []
    """What the columns of its row have that stay the same."""


class Queries:
    """What a family, or a service, asks of a replica, beside what all lanes have.

    Each has a class of its own: `replica.ask(ReplicaPlans).oldest(limit=10)`.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        """Made by `Replica.ask`."""
        self._db = db


Q = TypeVar("Q", bound=Queries)


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
            if replica_schema.drop_outdated(self._db, mesh, self.tables.values()):
                _log.warning("replica_outdated", file=str(path))
            self._db.executescript(replica_schema.SCHEMA + "".join(one.SCHEMA for one in _BESIDE))
            self._db.execute("begin immediate")
            has_texts = replica_texts.create(self._db)
            replica_schema.claim_file(self._db, mesh, self.tables.values(), has_texts=has_texts)
            self._db.execute("commit")
            self._db.executescript("".join(table.schema for table in self.tables.values()))
        self.tree = replica_tree.Tree(self._db)
        """The Merkle tree over the records: what seals are compared with."""
        self._queries: dict[type[Queries], Queries] = {}
        self.sizes = ReplicaSizes(self._db)
        self.texts = replica_texts.ReplicaTexts(self._db)
        """The errors of lanes, by their words."""
        self.reports = replica_reports.ReplicaReports(self._db)
        self.tempo = replica_tempo.ReplicaTempo(self._db)
        self.attention = attention_table.AttentionTable(self._db)
        self.presence = presence_changes.PresenceChanges(self._db)
        self.known_nodes = known_nodes.KnownNodes(self._db)
        self._load()
        if read_only:
            self.tree.see(self._cursor.seq)
        else:
            self.tree.load(self._cursor.seq)

    def _load(self) -> None:
        """Continue from what is in the file."""
        self._lanes: dict[LaneKey, _Held] = {}
        self._weight = 0
        """Of all lanes in memory."""
        self._dirty: list[tuple[LaneKey, _Held]] = []
        self._texts: dict[LaneKey, str] = {}
        """The newest error of each lane that has one, not written yet."""
        self._pending: list[tuple[int, int, str, str, LaneKey | None, bytes, bool]] = []
        self._next_row = 1 + max(
            self._scalar(f"select coalesce(max(id), 0) from {table.name}")  # noqa: S608 - our own name
            for table in self.tables.values()
        )
        self._put_ms = 0
        self._accepted: dict[LaneKey, int] = {}
        self._begun: list[_Held] = []
        """Lanes that had no records on the log, perhaps."""
        self._named: list[tuple[int, LaneKey]] = []
        self._former: dict[LaneKey, Lane] = {}
        """Not in the file yet."""
        self._cursor = self._load_cursor()

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

    def begin_anew(self, reads: tuple[str, ...], snapshot: Snapshot | None = None) -> None:
        """Delete everything and become a replica of what these filters show; one transaction.

        With a snapshot, of the records that count there, which are noted next, and what follows.
        """
        self._db.execute("begin immediate")
        try:
            lanes = (table.name for table in self.tables.values())
            for table in (*replica_schema.TABLES, *lanes, *replica_tree.TABLES):
                self._db.execute(f"delete from {table}")  # noqa: S608 - our own names
            self.texts.delete_all()
            self._db.execute("delete from meta where name in ('leaves', 'base')")
            self._db.execute("insert or replace into meta values ('reads', ?)", (" ".join(reads),))
            if snapshot is not None and reads == WHOLE:
                self.tree.begin_at(snapshot)
            self._db.execute("commit")
        except BaseException:
            self._db.execute("rollback")
            raise
        self._load()
        self.tree.load(0)
        if reads != WHOLE:
            self.tree.keep_none()
        elif snapshot is not None:
            self.tree.fill(snapshot)

    def put_lane(
        self, key: LaneKey, lane: Lane, *, at_ms: int = 0, accepted: int | None = None
    ) -> None:
        """Set a lane's state without a record; what it evicts is noted with that time.

        `accepted` is the last record that it accepted, if its records are not here.
        """
        held = self._hold(key)
        if accepted is not None:
            self._accepted[key] = accepted
        held.lane, self._put_ms = lane, at_ms
        if not held.dirty:
            held.dirty = True
            self._dirty.append((key, held))

    @property
    def cursor(self) -> Cursor:
        """The last record that is in the file."""
        return self._cursor

    def lane(self, key: LaneKey) -> Lane:
        """A lane as of the last record that was noted."""
        return self._hold(key).lane

    def former(self, key: LaneKey) -> Lane | None:
        """What a lane was about before it was archived and began again; None if it did not.

        No verdict needs it, but jobs may wait for what it was.
        """
        if key in self._former:
            return self._former[key]
        sql = "select body from former where family = ? and kind = ? and name = ?"
        row = self._db.execute(sql, key).fetchone()
        return None if row is None else self.tables[key.family].decode(row[0])

    def held(self, key: LaneKey) -> Lane | None:
        """The same if it is in memory; every lane is that is newer than in the file."""
        found = self._lanes.get(key)
        return None if found is None else found.lane

    def ask(self, of: type[Q]) -> Q:
        """A family's own queries, over this replica."""
        made = self._queries.get(of)
        if made is None:
            made = self._queries[of] = of(self._db)
        return cast("Q", made)

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
                held.follows, held.weight = table.follows(lane), _weight(row[1])
                held.fixed = [row[2], *table.fixed(lane)]
            self._lanes[key] = held
            self._weight += held.weight
        return held

    def note(
        self,
        record: Record,
        verdict: Verdict,
        key: LaneKey | None = None,
        lane: Lane | None = None,
        error_text: str = "",
        named: tuple[int, ...] = (),
    ) -> None:
        """Add one judged record; nothing reaches the file before `flush`.

        `named` are the sequences that its op names.
        """
        is_empty = lane is None or lane.state is None
        at = (record.seq, record.stamp_ns, record.subject)
        self._pending.append((*at, verdict.value, key, record.payload, is_empty))
        if key is None or lane is None:
            return
        self._named += [(seq, key) for seq in named]
        held = self._hold(key)
        is_again = held.lane.state is not None and (
            lane.state is None or lane.floor > held.lane.floor
        )
        if is_again:
            self._former[key] = held.lane
        if held.lane.state is None or is_again:
            held.first_seq = record.seq
            self._begun.append(held)
        held.lane = lane
        if error_text:
            self._texts[key] = error_text
        if not held.dirty:
            held.dirty = True
            self._dirty.append((key, held))

    def flush(self) -> None:
        """Write everything noted so far in one transaction."""
        if not self._pending and not self._dirty:
            return
        self._db.execute("begin immediate")
        try:
            self._write_lanes()
            self._db.executemany(
                "insert or replace into former values (?, ?, ?, ?)",
                [(*key, msgspec.msgpack.encode(lane)) for key, lane in self._former.items()],
            )
            begun = [(held.row,) for held in self._begun]
            self._db.executemany("insert or ignore into hot values (?)", begun)
            self._db.executemany("insert or ignore into live values (?)", begun)
            self._db.executemany(
                "insert or replace into accepted values (?, ?)",
                [(self._lanes[key].row, seq) for key, seq in self._accepted.items()],
            )
            rows = list(self._pending_rows())
            self._db.executemany("insert into records values (?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.executemany(
                "insert or ignore into names select lane, ? from records"
                " where seq = ? and lane is not null",
                [(self._lanes[key].row, seq) for seq, key in self._named],
            )
            self.tree.extend((*row[:4], *row[5:]) for row in rows)
            self._db.execute("commit")
        except BaseException:
            self._db.execute("rollback")
            self.tree.load(self._cursor.seq)
            raise
        if self._pending:
            last = self._pending[-1]
            self._cursor = Cursor(last[0], digest(last[5]))
        self._pending.clear()
        self._former.clear()
        self._begun.clear()
        self._accepted.clear()
        self._named.clear()
        self._forget()

    def _pending_rows(self) -> Iterator[tuple[int, int, str, str, int | None, bytes, int]]:
        """What was noted, as rows: each rejected record with the last accepted of its lane.

        A lane without a state has none, whatever was on it before.
        """
        accepted: dict[int, int] = {}
        for seq, stamp, subject, verdict, key, payload, is_empty in self._pending:
            lane, after = self._lanes[key].row if key else None, 0
            if lane is not None and verdict == Verdict.OK:
                accepted[lane] = seq
            elif lane is not None:
                known = 0 if is_empty else accepted.get(lane)
                after = accepted[lane] = self._accepted_in(lane) if known is None else known
            yield seq, stamp, subject, verdict, lane, payload, after

    def _accepted_in(self, lane: int) -> int:
        """The last accepted record of a lane; 0 if there is none."""
        return self._scalar(
            "select case verdict when 'ok' then seq else after end from records"
            " where lane = ? order by seq desc limit 1",
            lane,
        ) or self._scalar("select seq from accepted where lane = ?", lane)

    def accepted_upto(self, key: LaneKey, upto: int) -> int:
        """The last record up to a sequence that a lane accepted; 0 if there is none."""
        found = self.accepted_before(key, upto + 1, limit=1)
        if found:
            return found[0].record.seq
        return self._scalar("select seq from accepted where lane = ?", self.row_of(key))

    def _write_lanes(self) -> None:
        fresh: dict[str, list[Row]] = {}
        known: dict[str, list[Row]] = {}
        changed: dict[str, list[Row]] = {}
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
            fixed = [held.first_seq, *table.fixed(held.lane)]
            values = table.values(held.lane, is_moving=fixed == held.fixed)
            before, held.weight = held.weight, _weight(values[0])
            self._weight += held.weight - before
            if held.row == 0:
                held.row = self._next_row
                self._next_row += 1
                row = (held.row, key.kind, key.name, held.first_seq, *values)
                fresh.setdefault(key.family, []).append(row)
            elif fixed == held.fixed:
                known.setdefault(key.family, []).append((*values, held.row))
            else:
                row = (held.first_seq, *values, held.row)
                changed.setdefault(key.family, []).append(row)
            held.fixed = fixed
            self._write_needs(held)
            self._write_follows(held)
        self._dirty.clear()
        for family, rows in fresh.items():
            self._db.executemany(self.tables[family].insert, rows)
        for family, rows in known.items():
            self._db.executemany(self.tables[family].update, rows)
        for family, rows in changed.items():
            self._db.executemany(self.tables[family].update_all, rows)
        if self._texts:
            self.texts.put((self._lanes[key].first_seq, one) for key, one in self._texts.items())
            self._texts.clear()
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
            stamps_ns = [one[1] for one in self._pending[-1:]]
            at_ms = max([self._put_ms, *(one // NANOSECONDS_PER_MS for one in stamps_ns)])
            before = frozenset(held.gone)
            rows = [(one.digest, at_ms, one.named_as) for one in gone if one not in before]
            self._db.executemany(
                "insert into evicted values (?, ?, ?) on conflict (digest) do update set"
                " at_ms = excluded.at_ms, named_as ="
                " case when excluded.named_as = 'output' then 'output' else named_as end",
                rows,
            )
        held.named, held.gone = needs, gone

    def _write_follows(self, held: _Held) -> None:
        """The lanes that a lane waits for. What is no longer true stays: readers look again."""
        follows = held.table.follows(held.lane)
        if follows is held.follows or follows == held.follows:
            return
        fresh = set(map(link, follows)).difference(map(link, held.follows))
        # In order, so that neighbours in the file are written together.
        rows = [(before, held.row) for before in sorted(fresh)]
        self._db.executemany("insert or ignore into follows values (?, ?)", rows)
        held.follows = follows

    def _forget(self) -> None:
        """Keep memory bounded: ended lanes go first, then the oldest."""
        if self._weight <= LANES_IN_MEMORY:
            return
        for key in [k for k, held in self._lanes.items() if held.table.is_over(held.lane)]:
            self._weight -= self._lanes.pop(key).weight
        # A little more than needed: looking for ended lanes takes a while.
        while self._weight > LANES_IN_MEMORY * 7 // 8:
            key = next(iter(self._lanes))
            self._weight -= self._lanes.pop(key).weight

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
        return next(self._stored("seq = ?", seq), None)

    def newest_of(self, key: LaneKey, *, verdict: Verdict | None = None) -> StoredRecord | None:
        """The newest record of a lane, with any verdict or with this one."""
        where = "lane = ? and (? is null or verdict = ?) order by seq desc limit 1"
        return next(self._stored(where, self.row_of(key), verdict, verdict), None)

    def lane_records(
        self, key: LaneKey, *, verdict: Verdict | None = None, after: int = 0, limit: int = -1
    ) -> list[StoredRecord]:
        """A lane's records with their verdicts, oldest first; all, or those with this one.

        Those behind a sequence, and so many at most.
        """
        where = "lane = ? and seq > ? and (? is null or verdict = ?) order by seq limit ?"
        return list(self._stored(where, self.row_of(key), after, verdict, verdict, limit))

    def accepted_before(self, key: LaneKey, seq: int, *, limit: int) -> list[StoredRecord]:
        """The newest records of a lane before a sequence that took effect, newest first."""
        where = "lane = ? and seq < ? and verdict = 'ok' order by seq desc limit ?"
        return list(self._stored(where, self.row_of(key), seq, limit))

    def _stored(self, where: str, *args: object) -> Iterator[StoredRecord]:
        found = self._db.execute(
            f"select seq, stamp_ns, subject, payload, verdict, after from records where {where}",  # noqa: S608 - our own words
            args,
        )
        for row in found.fetchall():
            gone = None if row[3] else replica_tree.gone(self._db, row[0])
            yield StoredRecord(Record(*row[:4]), Verdict(row[4]), row[5], gone)

    def row_of(self, key: LaneKey) -> int:
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


def _weight(body: object) -> int:
    """How many lanes one counts as that takes so much in the file."""
    return 1 + len(cast("bytes", body)) // LANE_BYTES
