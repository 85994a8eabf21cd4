"""Where in an archive the records of a lane are: derived from its entries, and built again freely.

One row per record, by the beginning of its lane's name. Different lanes may share a beginning, so
whoever looks something up compares the entry itself. Nothing depends on the index being right: what
it misses is not found, and what it finds is checked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.core.record.branches import CONTROL

if TYPE_CHECKING:
    from antiphon.core.record.branches import LaneKey

HEAD: Final = 16
"""Characters of a name that are indexed."""
MOST_FOUND: Final = 4096
"""Places of one lookup by the beginning of a name."""
_SCHEMA: Final = """
create table if not exists built (mesh text, size integer, root blob);
create table if not exists places (
    head text not null, place integer not null, primary key (head, place)
) without rowid;
"""
_CONTROL: Final = "ctl."


class PlaceIndex:
    """The index of one archive, in a file or in memory."""

    def __init__(self, path: Path | str = ":memory:") -> None:
        """A file that is damaged is made anew."""
        try:
            self._db = self._open(path)
        except sqlite3.DatabaseError:
            Path(path).unlink(missing_ok=True)
            self._db = self._open(path)

    def _open(self, path: Path | str) -> sqlite3.Connection:
        if path != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.executescript("pragma synchronous = off;" + _SCHEMA)
        return db

    def close(self) -> None:
        """Close the file; safe twice."""
        self._db.close()

    def built(self) -> tuple[str, int, bytes]:
        """Which mesh it is of, how many records it has, and the root over them."""
        row = self._db.execute("select mesh, size, root from built").fetchone()
        return (row[0], row[1], row[2]) if row else ("", 0, b"")

    def begin_anew(self) -> None:
        """Forget everything."""
        self._db.executescript("begin; delete from built; delete from places; commit;")

    def add(
        self, mesh: str, size: int, root: bytes, found: Iterable[tuple[LaneKey | None, int]]
    ) -> None:
        """Add places up to this size, of which the root is known or still empty."""
        self._db.execute("begin")
        rows = ((_head(key), place) for key, place in found if key is not None)
        self._db.executemany("insert or ignore into places values (?, ?)", rows)
        self._db.execute("delete from built")
        self._db.execute("insert into built values (?, ?, ?)", (mesh, size, root))
        self._db.execute("commit")

    def of_lane(self, key: LaneKey) -> list[int]:
        """The places of a lane's records, and perhaps of others."""
        rows = self._db.execute(
            "select place from places where head = ? order by place", (_head(key),)
        )
        return [row[0] for row in rows]

    def of_control(self) -> list[int]:
        """The places of all control records."""
        rows = self._db.execute("select place from places where head = ?", (_CONTROL,))
        return sorted(row[0] for row in rows)

    def beginning_with(self, name: str) -> list[int]:
        """The places of lanes whose names may begin so."""
        head = name[:HEAD]
        end = head if len(head) == HEAD else f"{head}\uffff"
        rows = self._db.execute(
            "select place from places where head >= ? and head <= ? limit ?",
            (head, end, MOST_FOUND),
        )
        return sorted(row[0] for row in rows)


def _head(key: LaneKey) -> str:
    return _CONTROL if key.family == CONTROL else key.name[:HEAD]
