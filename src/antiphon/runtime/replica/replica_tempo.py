"""The changes of the tempo that leaders made, beside a replica: they outlast a restart (spec §11).

They do not follow from the log, so a replica that is built again keeps them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.tempo.tempo_history import TempoSpan

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

KEPT: Final = 50_000
"""Changes: those of a month, if the tempo moved every minute."""
SCHEMA: Final = """
create table if not exists tempo_spans (from_ms integer primary key, body blob not null);
"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TempoSpan).decode


class ReplicaTempo:
    """The table of changes: one writer, any number of readers."""

    def __init__(self, db: sqlite3.Connection, *, kept: int = KEPT) -> None:
        self._db = db
        self._kept = kept

    def put(self, spans: Iterable[TempoSpan]) -> None:
        """Store what held from some downbeats on."""
        rows = [(one.from_ms, _encode(one)) for one in spans]
        self._db.executemany("insert or replace into tempo_spans values (?, ?)", rows)
        self._db.execute(
            "delete from tempo_spans where from_ms <="
            " (select from_ms from tempo_spans order by from_ms desc limit 1 offset ?)",
            (self._kept,),
        )

    def spans(self) -> list[TempoSpan]:
        """All of them, oldest first."""
        rows = self._db.execute("select body from tempo_spans order by from_ms")
        return [_decode(row[0]) for row in rows]

    def newest(self) -> TempoSpan | None:
        """The last change that is known."""
        query = "select body from tempo_spans order by from_ms desc limit 1"
        row = self._db.execute(query).fetchone()
        return None if row is None else _decode(row[0])


def spans_in(file: Path) -> list[TempoSpan]:
    """What a replica's file has of them; nothing where there is no replica."""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
            return ReplicaTempo(db).spans()
    except sqlite3.Error:
        return []
