"""The tables that every replica has, and whether a file is one that this code can go on with."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from antiphon.core.record.ids import digest
from antiphon.errors import Corrupt

if TYPE_CHECKING:
    import sqlite3

    from antiphon.runtime.replica.replica_table import LaneTable

SCHEMA_VERSION: Final = 10
TABLES: Final = (
    *("records", "named", "follows", "evicted", "tallies", "former", "purged", "names", "hot"),
    "accepted",
)
SCHEMA: Final = """
create table if not exists meta (name text primary key, value text not null) without rowid;
create table if not exists named (  -- lanes that still need those bytes
    digest text not null, lane integer not null, primary key (digest, lane)
) without rowid;
create table if not exists follows (  -- lanes that wait, or waited, for a lane with this number
    before integer not null, lane integer not null, primary key (before, lane)
) without rowid;
create table if not exists purged (  -- up to where records of a lane are gone from the log
    lane integer primary key, upto integer not null
);
create table if not exists hot (lane integer primary key);  -- lanes with records on the log
create table if not exists names (  -- lanes whose ops name a record of another lane
    named integer not null, lane integer not null, primary key (named, lane)
) without rowid;
create table if not exists former (  -- what a lane was about before it was archived and began again
    family text not null, kind text not null, name text not null, body blob not null,
    primary key (family, kind, name)
) without rowid;
create table if not exists accepted (  -- the last accepted record of lanes without their records
    lane integer primary key, seq integer not null
);
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
    payload blob not null,
    after integer not null  -- of a rejected record: the last accepted one of its lane
);
create index if not exists records_lane on records (lane, seq) where lane is not null;
create index if not exists records_control on records (seq) where lane is null;
create index if not exists records_refused on records (seq) where verdict != 'ok';
"""


def claim_file(
    db: sqlite3.Connection, mesh: str, tables: Collection[LaneTable], *, has_texts: bool
) -> None:
    """A family whose columns changed cannot continue with what an older version wrote."""
    known = dict(db.execute("select name, value from meta").fetchall())
    schema = {"schema": str(SCHEMA_VERSION)}
    texts = {"texts": str(has_texts)}
    schema |= {table.name: digest(table.schema.encode()) for table in tables}
    if not known:
        db.execute("insert into meta values ('mesh', ?)", (mesh,))
    elif known.get("mesh") != mesh or any(
        known.get(name, value) != value for name, value in schema.items()
    ):
        raise Corrupt(
            f"the replica is of mesh {known.get('mesh')} in schema {known.get('schema')},"
            f" not of {mesh} in this version's schema ({SCHEMA_VERSION})",
            hint="move the file away; the replica is rebuilt from the log",
        )
    elif not schema.keys() <= known.keys() or known.get("texts") != texts["texts"]:
        # For the code that wrote it, records of the new families belonged to no lane, and if its
        # SQLite had no full-text search, errors were not written down.
        db.execute("delete from meta where name = 'reads'")
    db.executemany("insert or replace into meta values (?, ?)", (schema | texts).items())
