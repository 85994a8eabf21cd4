"""What a node's services could not deal with, beside its replica: `antiphon doctor` lists it.

One row for each item that a service has set aside, with the reason; and one for each that the
coordinator has reported of its own services (`runtime/node/attention_reports.py`), which `antiphon
attention` lists. They do not follow from the log, so a replica that is built again keeps them; a
service deletes its rows when it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.party_turns import shared

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

KEPT: Final = 1_000
"""Rows; of whoever has most, the oldest make room."""
MAX_REASON: Final = 1_000
SCHEMA: Final = """
create table if not exists attention (
    service text not null, item text not null, whose text not null, reason text not null,
    since_ms integer not null, tries integer not null, primary key (service, item)
) without rowid;
create index if not exists attention_since on attention (since_ms);
create table if not exists attention_reports (
    by_node text not null, service text not null, item text not null, whose text not null,
    reason text not null, since_ms integer not null, tries integer not null,
    primary key (by_node, service, item)
) without rowid;
"""


class Attention(Struct, frozen=True):
    """An item that a service of this node has set aside."""

    service: str
    """The service, as people see it: `offers`, `plans`."""
    item: str
    """What it is about, such as a job's kind and id; empty: the service as a whole."""
    whose: str
    """The node that it was done for; empty if there is none."""
    reason: str
    since_ms: int
    tries: int
    by: str = ""
    """The node that says so, with its signature; empty: it follows from what this machine knows."""
    count: int = 1
    """How many jobs it is about."""
    error: str = ""
    """Of dead jobs: how they ended and the error's name, by which all of a group are chosen."""
    command: str = ""
    """What to type about it; empty: what helps with everything of this service."""


class AttentionTable:
    """The table of items: one writer, any number of readers."""

    def __init__(self, db: sqlite3.Connection, *, kept: int = KEPT) -> None:
        self._db = db
        self._kept = kept

    def put(self, one: Attention) -> None:
        """Store an item, or what is known about it now."""
        self._db.execute(
            "insert into attention values (?, ?, ?, ?, ?, ?) on conflict (service, item)"
            " do update set reason = excluded.reason, tries = excluded.tries",
            (one.service, one.item, one.whose, one.reason[:MAX_REASON], one.since_ms, one.tries),
        )
        ((count,),) = self._db.execute("select count(*) from attention")
        if count > self._kept:
            # Whoever has most makes room: the items of one member do not push out others'.
            self._db.execute(
                "delete from attention where (service, item) in (select service, item from"
                " attention where whose = (select whose from attention group by whose"
                " order by count(*) desc limit 1) order by since_ms limit ?)",
                (count - self._kept,),
            )

    def drop(self, service: str, item: str) -> None:
        """The service has dealt with an item, or it is no more."""
        self._db.execute("delete from attention where service = ? and item = ?", (service, item))

    def begin(self, service: str) -> None:
        """The service begins: it will say again what it cannot deal with."""
        self._db.execute("delete from attention where service = ?", (service,))

    def newest(self, *, limit: int) -> list[Attention]:
        """The newest items first; where there is no room for all, members take turns."""
        rows = self._db.execute(
            "select service, item, whose, reason, since_ms, tries from attention"
            " order by since_ms desc, service, item"
        )
        return shared([Attention(*row) for row in rows], lambda one: one.whose, limit)

    def report(self, by: str, items: Sequence[Attention]) -> None:
        """What another node has set aside now, in place of all that was reported before."""
        self._db.execute("delete from attention_reports")
        self._db.executemany(
            "insert or replace into attention_reports values (?, ?, ?, ?, ?, ?, ?)",
            [
                (by, one.service, one.item, one.whose, one.reason, one.since_ms, one.tries)
                for one in items
            ],
        )

    def reported(self) -> list[Attention]:
        """What another node has set aside, the newest first."""
        rows = self._db.execute(
            "select service, item, whose, reason, since_ms, tries, by_node from attention_reports"
            " order by since_ms desc, service, item"
        )
        return [Attention(*row) for row in rows]
