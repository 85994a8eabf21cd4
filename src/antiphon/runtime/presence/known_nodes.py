"""The last heartbeat of every node that a full node knows, beside its replica (spec §10).

A row is written when a node's level changes, and not at each heartbeat. Until when the full node
listened is written once a minute: what was alive then was last heard then. So a full node that
starts again lists the nodes that died meanwhile. Nodes that left, or whose authority ended, have
no row. Rows do not follow from the log, so a replica that is built again keeps them.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.presence.presence_table import DEAD_KEPT_MS, MAX_NODES, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA: Final = """
create table if not exists known_nodes (
    node text primary key, alias text not null, user text not null, heartbeat blob not null,
    at_ms integer not null, heard_ms integer not null, level text not null
);
create table if not exists nodes_watched (id integer primary key, until_ms integer not null);
"""


class StoredNode(Struct, frozen=True):
    """A node as it was when its level last changed."""

    node: str
    alias: str
    user: str
    """The engine user on whose subject its heartbeat was."""
    heartbeat: bytes
    at_ms: int
    """Of the heartbeat, by the node's clock."""
    heard_ms: int
    """By this machine's wall clock."""
    level: str


class KnownNodes:
    """The table of nodes: one writer, any number of readers."""

    def __init__(self, db: sqlite3.Connection, *, kept: int = MAX_NODES) -> None:
        self._db = db
        self._kept = kept

    def put(self, one: StoredNode) -> None:
        """Store what is known of a node now; those that were heard longest ago make room."""
        self._db.execute(
            "insert or replace into known_nodes values (?, ?, ?, ?, ?, ?, ?)",
            (one.node, one.alias, one.user, one.heartbeat, one.at_ms, one.heard_ms, one.level),
        )
        ((count,),) = self._db.execute("select count(*) from known_nodes")
        if count > self._kept:
            self._db.execute(
                "delete from known_nodes where node in"
                " (select node from known_nodes order by heard_ms limit ?)",
                (count - self._kept,),
            )

    def drop(self, node: str) -> None:
        """It left, or has no right on this mesh any more."""
        self._db.execute("delete from known_nodes where node = ?", (node,))

    def watched(self, until_ms: int) -> None:
        """Somebody listened until now; what died a day ago is forgotten."""
        self._db.execute("insert or replace into nodes_watched values (1, ?)", (until_ms,))
        self._db.execute(
            "delete from known_nodes where level = ? and heard_ms < ?",
            (Level.DEAD, until_ms - DEAD_KEPT_MS),
        )

    def all(self) -> Iterator[StoredNode]:
        """Every node; one that was alive when somebody last listened was heard until then."""
        rows = self._db.execute("select until_ms from nodes_watched").fetchall()
        until_ms = rows[0][0] if rows else 0
        for row in self._db.execute(
            "select node, alias, user, heartbeat, at_ms, heard_ms, level from known_nodes"
        ).fetchall():
            one = StoredNode(*row)
            was_alive = one.level != Level.DEAD
            yield replace(one, heard_ms=max(one.heard_ms, until_ms)) if was_alive else one

    def aliases(self) -> dict[str, str]:
        """What these nodes call themselves."""
        with suppress(sqlite3.OperationalError):  # a file that an older version wrote
            return dict(self._db.execute("select node, alias from known_nodes"))
        return {}
