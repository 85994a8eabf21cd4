"""The tables that every replica has, and whether a file is one that this code can go on with."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from antiphon.core.record.ids import digest
from antiphon.errors import Corrupt

if TYPE_CHECKING:
    import sqlite3

    from antiphon.runtime.replica.replica_table import LaneTable

SCHEMA_VERSION: Final = 11
TABLES: Final = (
    *("records", "named", "follows", "evicted", "tallies", "former", "purged", "names", "hot"),
    *("accepted", "live"),
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
create table if not exists live (lane integer primary key);  -- lanes not known to be archived
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
    """Note whose replica it is, and in which form."""
    known = dict(db.execute("select name, value from meta").fetchall())
    schema, texts = _schema(tables), {"texts": str(has_texts)}
    if not known:
        db.execute("insert into meta values ('mesh', ?)", (mesh,))
    elif not schema.keys() <= known.keys() or known.get("texts") != texts["texts"]:
        # For the code that wrote it, records of the new families belonged to no lane, and if its
        # SQLite had no full-text search, errors were not written down.
        db.execute("delete from meta where name = 'reads'")
    db.executemany("insert or replace into meta values (?, ?)", (schema | texts).items())


def drop_outdated(db: sqlite3.Connection, mesh: str, tables: Collection[LaneTable]) -> bool:
    """Delete everything that another version wrote in another form; whether there was such.

    A replica is made again from the log, and from a snapshot that takes little. `Corrupt` if the
    file belongs to another mesh.
    """
    if not db.execute("select 1 from sqlite_master where name = 'meta'").fetchone():
        return False
    known = dict(db.execute("select name, value from meta").fetchall())
    if known and known.get("mesh") != mesh:
        raise Corrupt(
            f"the replica is of mesh {known.get('mesh')}, not of {mesh}",
            hint="move the file away; the replica is rebuilt from the log",
        )
    if all(known.get(name, value) == value for name, value in _schema(tables).items()):
        return False
    made = "select name, sql from sqlite_master where type = 'table' and name not like 'sqlite_%'"
    found = db.execute(made).fetchall()
    db.execute("begin immediate")
    # What is virtual goes first, and takes tables of its own with it.
    for name, _ in sorted(found, key=lambda one: "virtual" not in one[1].lower()):
        db.execute(f'drop table if exists "{name}"')
    db.execute("commit")
    return True


def _schema(tables: Collection[LaneTable]) -> dict[str, str]:
    forms = {table.name: digest(table.schema.encode()) for table in tables}
    return {"schema": str(SCHEMA_VERSION)} | forms
