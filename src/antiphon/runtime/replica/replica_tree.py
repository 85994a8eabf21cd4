"""The replica's Merkle tree: what a seal is compared with, and where paths come from (spec §7.5).

One leaf per record, in sequence order. The file keeps the full subtrees of 16 leaves and more, a
tenth of a row per record. What is below is hashed again from the records when it is needed, which
is seldom.

A replica that began with a snapshot has the records that counted there, and of all others only the
hashes that the snapshot holds, of subtrees of any size. While the records are read, the tree is
*being filled*; at the snapshot's place it must have the snapshot's root.

The tree changes in the transaction of its records. It remembers what the records *were*: `mark_at`
reads those since the last seal again, and some older ones in turn, so that a row that was lost or
changed in the file shows at the next seal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final, NamedTuple

from antiphon.core.archive.snapshot import Head, Snapshot
from antiphon.core.families.seals.state import leaf, leaf_of
from antiphon.core.family import Mark
from antiphon.core.proof import merkle
from antiphon.core.proof.merkle import Frontier, leaf_hash, node_hash
from antiphon.errors import Corrupt, Unavailable
from antiphon.ports import NANOSECONDS_PER_MS

KEPT_FROM: Final = 4
"""The lowest level whose subtrees are in the file."""
REREAD_LEVEL: Final = 10
"""At each seal one older subtree of this level is read again."""

SCHEMA: Final = """
create table if not exists subtrees (
    level integer not null,
    place integer not null,
    hash blob not null,
    primary key (level, place)
) without rowid;
create table if not exists gaps (seq integer primary key, missing integer not null);
create table if not exists erased (  -- records without their bytes, by whose order, and since when
    seq integer primary key, digest text not null, by text not null, at_ms integer not null
);
"""
TABLES: Final = ("subtrees", "gaps", "erased")


class Gone(NamedTuple):
    """What is left of a record whose bytes were removed."""

    digest: str
    by: str
    at_ms: int


Row = tuple[int, int, str, str, bytes | Gone, int]
"""seq, stamp_ns, subject, verdict, payload, after"""


class Tree:
    """The tree over one replica's records."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """Nothing is read before `load`; queries about the past do not need it."""
        self._db = db
        self.is_kept = True
        """False where the log shows only some records: such a replica cannot know a root."""
        self._frontier = Frontier()
        self._last_seq = 0
        self._reread = 0
        self.base = 0
        """The leaves that a snapshot stands for; 0 if the replica began with the first record."""
        self._filled: dict[int, bytes] | None = None
        """The hashes of its leaves that were read so far; None unless the tree is being filled."""
        self._goal: Head

    # --- growing ------------------------------------------------------------------------------

    def load(self, last_seq: int) -> None:
        """Continue where the file ends; `Corrupt` if the tree and the records disagree."""
        self._last_seq = last_seq
        self._reread, self._filled = 0, None
        self._frontier = Frontier()
        known = self._db.execute("select value from meta where name = 'leaves'").fetchone()
        size = int(known[0]) if known else 0
        self.see_base()
        self.is_kept = known is not None or last_seq == 0
        if not self.is_kept:
            return
        if size != self.size_at(last_seq):
            raise Corrupt(
                f"the replica ends at record {last_seq}, but its tree has {size} leaves",
                hint="move the file away; the replica is rebuilt from the log",
            )
        bits = [level for level in reversed(range(size.bit_length())) if size >> level & 1]
        parts = [self._full(level, (size >> level) - 1) for level in bits]
        self._frontier = Frontier(size, parts)

    def see(self, last_seq: int) -> None:
        """For read-only opens: what the writer has added since."""
        self._last_seq = last_seq
        self.is_kept = bool(self._db.execute("select 1 from meta where name = 'leaves'").fetchone())
        self.see_base()

    def see_base(self) -> None:
        """Where the snapshot ended with which the replica began."""
        base = self._db.execute("select value from meta where name = 'base'").fetchone()
        self.base = int(base[0]) if base else 0

    def begin_at(self, snapshot: Snapshot) -> None:
        """Begin with a snapshot, inside the caller's transaction; the tree is to be filled."""
        head = snapshot.head
        self._db.executemany("insert into gaps values (?, ?)", head.gaps)
        self._db.executemany("insert into subtrees values (?, ?, ?)", snapshot.nodes())
        self._db.execute("insert or replace into meta values ('base', ?)", (str(head.size),))

    def fill(self, snapshot: Snapshot) -> None:
        """Take in leaves that were kept, until the snapshot's place."""
        self._filled, self._goal = {}, snapshot.head
        self.is_kept = True

    def is_before_snapshot(self, seq: int) -> bool:
        """Whether the replica began with a snapshot behind that record."""
        return self.base > 0 and seq <= self.seq_at(self.base - 1)

    @property
    def is_filling(self) -> bool:
        """Whether records from before a snapshot's place are still to be read."""
        return self._filled is not None

    @property
    def is_unfinished(self) -> bool:
        """Whether whoever filled it stopped before the snapshot's place: it has to begin again."""
        return self.base > 0 and not self.is_kept

    def _take_in(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Those of some rows that come behind the snapshot; the others are taken in."""
        for row in rows:
            if self._filled is None:
                yield row
                continue
            self._filled[self._goal.leaf(row[0])] = leaf_hash(leaf_of_row(row))
            if row[0] == self._goal.at:
                self._finish(self._filled, self._goal)

    def _finish(self, filled: dict[int, bytes], goal: Head) -> None:
        """Everything that was kept is there: the root must be that of the snapshot."""
        fresh: list[tuple[int, int, bytes]] = []

        def hashed(level: int, place: int) -> bytes:
            if level == 0 and place in filled:
                return filled[place]
            known = self._stored(level, place)
            if known is None and level == 0:
                raise Unavailable(
                    f"record {self.seq_at(place)}, which a snapshot counts on, is gone",
                    hint="a newer snapshot takes its place",
                )
            if known is None:
                known = node_hash(hashed(level - 1, 2 * place), hashed(level - 1, 2 * place + 1))
                if level >= KEPT_FROM:
                    fresh.append((level, place, known))
            return known

        size = goal.size
        bits = [level for level in reversed(range(size.bit_length())) if size >> level & 1]
        frontier = Frontier(size, [hashed(level, (size >> level) - 1) for level in bits])
        if frontier.root().hex() != goal.root:
            raise Corrupt(
                f"the log and the snapshot at record {goal.at} do not lead to the same root",
                hint="the snapshot, or the log, was changed: compare with 'antiphon doctor'",
            )
        self._db.executemany("insert into subtrees values (?, ?, ?)", fresh)
        self._frontier, self._last_seq, self.base, self._filled = frontier, goal.at, size, None
        self._db.execute("insert or replace into meta values ('leaves', ?)", (str(size),))

    def keep_none(self) -> None:
        """The log shows only some records, so no root can be known, and none is kept."""
        self.is_kept = False
        self._db.execute("delete from meta where name = 'leaves'")

    def extend(self, rows: Iterable[Row]) -> None:
        """Add records, inside the caller's transaction."""
        if not self.is_kept:
            return
        full = list[tuple[int, int, bytes]]()

        def note(level: int, place: int, hashed: bytes) -> None:
            if level >= KEPT_FROM:
                full.append((level, place, hashed))

        for row in self._take_in(rows):
            frontier, seq = self._frontier, row[0]
            if seq != self._last_seq + 1:
                missing = seq - frontier.size - 1
                self._db.execute("insert into gaps values (?, ?)", (seq, missing))
            self._last_seq = seq
            frontier.append(leaf_of_row(row), note)
        self._db.executemany("insert into subtrees values (?, ?, ?)", full)
        if not self.is_filling:
            leaves = str(self._frontier.size)
            self._db.execute("insert or replace into meta values ('leaves', ?)", (leaves,))

    # --- reading ----------------------------------------------------------------------------------

    def size_at(self, seq: int) -> int:
        """How many records there are up to a sequence that the replica has reached."""
        row = self._db.execute(
            "select missing from gaps where seq <= ? order by seq desc limit 1", (seq,)
        ).fetchone()
        following = self._db.execute(
            "select seq - missing - 1 from gaps where seq > ? order by seq limit 1", (seq,)
        ).fetchone()
        size = seq - (row[0] if row else 0)
        # Within a gap nothing is added until the record that ends it.
        return min(size, following[0]) if following else size

    def inclusion(self, seq: int, size: int) -> list[str]:
        """The path from a record to the root over the first `size`."""
        return self.inclusion_at(self.size_at(seq) - 1, size)

    def inclusion_at(self, leaf: int, size: int) -> list[str]:
        """The same for a leaf."""
        self._require()
        return [node.hex() for node in merkle.inclusion(leaf, size, self._full)]

    def root_at(self, size: int) -> bytes:
        """The root over the first `size` leaves."""
        self._require()
        return merkle.root_of(size, self._full)

    def consistency(self, old: int, new: int) -> list[bytes]:
        """What shows that the tree of `old` leaves is the beginning of that of `new`."""
        self._require()
        return merkle.consistency(old, new, self._full)

    def subtree(self, level: int, place: int) -> bytes:
        """The hash of a full subtree."""
        self._require()
        return self._full(level, place)

    def rows(self, first: int, count: int) -> list[Row]:
        """The records of some leaves, which there are."""
        rows = self._db.execute(
            "select seq, stamp_ns, subject, verdict, payload, after from records"
            " where seq >= ? order by seq limit ?",
            (self.seq_at(first), count),
        ).fetchall()
        found: list[Row] = [
            row if row[4] else (*row[:4], gone(self._db, row[0]) or b"", row[5]) for row in rows
        ]
        if first < self.base and [row[0] for row in found] != [
            self.seq_at(first + at) for at in range(count)
        ]:
            raise self._before_snapshot()
        if len(found) != count:
            raise Corrupt(f"the replica lost a record after leaf {first}", hint=_REBUILD)
        return found

    def _before_snapshot(self) -> Unavailable:
        return Unavailable(
            f"this replica began with a snapshot, and does not have all of the first {self.base:,}"
            " records",
            hint="ask the archive, or a machine that has been there for longer",
        )

    def mark_at(self, upto: int, *, since: int = 0) -> Mark:
        """Size and root up to a sequence, everything after `since` read from the records again.

        Where records are gone or changed, the root is empty and matches no seal.
        """
        self._require()
        size = self.size_at(min(upto, self._last_seq))
        fresh_from = max(self.size_at(since) if since else 0, self.base)
        try:
            root = merkle.root_of(size, lambda level, at: self._full(level, at, fresh_from))
            known = self._known_root(size)
            if root == known and self._is_older_part_whole():
                return Mark(size, root.hex())
        except Corrupt:
            pass  # the empty root shows it
        return Mark(size, "")

    def _known_root(self, size: int) -> bytes:
        if size == self._frontier.size:
            return self._frontier.root()
        return merkle.root_of(size, self._full)

    def _is_older_part_whole(self) -> bool:
        """Read one more of the large subtrees again, so that in time every record is checked."""
        first = -(-self.base >> REREAD_LEVEL)
        count = (self._frontier.size >> REREAD_LEVEL) - first
        if count <= 0:
            return True
        place = first + self._reread % count
        self._reread = place - first + 1
        return self._full(REREAD_LEVEL, place, 0) == self._full(REREAD_LEVEL, place)

    def _require(self) -> None:
        if not self.is_kept:
            raise Unavailable(
                "this replica has only some kinds, so it cannot compute a root of the whole log",
                hint="ask on a machine that reads everything, such as the one with 'antiphon up'",
            )

    # --- hashes -------------------------------------------------------------------------------

    def _full(self, level: int, place: int, fresh_from: float = inf) -> bytes:
        """The hash of a full subtree; one that ends after leaf `fresh_from` is hashed again."""
        if place << level < self.base:
            return self._old(level, place)
        if level >= KEPT_FROM and (place + 1) << level <= fresh_from:
            stored = self._stored(level, place)
            if stored is None:
                raise Corrupt("a part of the replica's tree is missing", hint=_REBUILD)
            return stored
        if level > KEPT_FROM:
            left = self._full(level - 1, 2 * place, fresh_from)
            return node_hash(left, self._full(level - 1, 2 * place + 1, fresh_from))
        return self._hashed(place << level, 1 << level)

    def _stored(self, level: int, place: int) -> bytes | None:
        row = self._db.execute(
            "select hash from subtrees where level = ? and place = ?", (level, place)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def _old(self, level: int, place: int) -> bytes:
        """The hash of a full subtree that begins before the snapshot's place."""
        stored = self._stored(level, place)
        if stored is not None:
            return stored
        if level > 0:
            left = self._old(level - 1, 2 * place)
            return node_hash(left, self._full(level - 1, 2 * place + 1))
        (row,) = self.rows(place, 1)
        return leaf_hash(leaf_of_row(row))

    def _hashed(self, first: int, count: int) -> bytes:
        """The root over some leaves, from the records themselves."""
        below = Frontier()
        for row in self.rows(first, count):
            below.append(leaf_of_row(row))
        return below.root()

    def seq_at(self, leaf: int) -> int:
        """The sequence of the record that a leaf is of."""
        row = self._db.execute(
            "select missing from gaps where seq - missing <= ? order by seq desc limit 1",
            (leaf + 1,),
        ).fetchone()
        return leaf + 1 + (row[0] if row else 0)


_REBUILD: Final = "move the replica's file away; it is rebuilt from the log"


def gone(db: sqlite3.Connection, seq: int) -> Gone | None:
    """What is left of a record without bytes; None if it never had any."""
    found = db.execute("select digest, by, at_ms from erased where seq = ?", (seq,)).fetchone()
    return None if found is None else Gone(*found)


def leaf_of_row(row: Row) -> bytes:
    """The leaf of a record in the file."""
    seq, stamp_ns, subject, verdict, payload, after = row
    commit_ms = stamp_ns // NANOSECONDS_PER_MS
    if isinstance(payload, Gone):
        return leaf(seq, commit_ms, subject, payload.digest, verdict, after)
    return leaf_of(seq, commit_ms, subject, payload, verdict, after)
