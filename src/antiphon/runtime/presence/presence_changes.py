"""When nodes came, fell silent and went, beside a full node's replica (spec §10).

Heartbeats are not stored: they grow with the fleet and tell nothing new. Changes of a level are.
They do not follow from the log, so a replica that is built again keeps them.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.core.presence.presence_table import PresenceChange

KEPT: Final = 10_000
SCHEMA: Final = """
create table if not exists presence_changes (
    id integer primary key, at_ms integer not null, body blob not null
);
"""


class KeptChange(Struct, frozen=True):
    """A change, and when the node that kept it noticed."""

    at_ms: int
    change: PresenceChange


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PresenceChange).decode


class PresenceChanges:
    """The table of changes: one writer, any number of readers."""

    def __init__(self, db: sqlite3.Connection, *, kept: int = KEPT) -> None:
        self._db = db
        self._kept = kept

    def add(self, at_ms: int, change: PresenceChange) -> None:
        """Store a change; the oldest beyond the bound goes."""
        row = self._db.execute(
            "insert into presence_changes (at_ms, body) values (?, ?)", (at_ms, _encode(change))
        )
        newest = row.lastrowid or 0
        self._db.execute("delete from presence_changes where id <= ?", (newest - self._kept,))

    def newest(self, *, limit: int) -> list[KeptChange]:
        """The newest changes, the oldest of them first."""
        rows: list[tuple[int, bytes]] = []
        with suppress(sqlite3.OperationalError):  # a file that an older version wrote
            rows = self._db.execute(
                "select at_ms, body from presence_changes order by id desc limit ?", (limit,)
            ).fetchall()
        return [KeptChange(at_ms, _decode(body)) for at_ms, body in reversed(rows)]
