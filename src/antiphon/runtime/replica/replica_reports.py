"""The bar reports that a node has made, beside its replica: they outlast a restart (spec §11).

They do not follow from the log, so a replica that is built again keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.tempo.bars.alarms import Alarm
from antiphon.core.tempo.bars.kpis import Tally
from antiphon.core.tempo.messages import BarReport

if TYPE_CHECKING:
    import sqlite3

KEPT: Final = 20_000
"""Bars: a week at the default tempo."""
SCHEMA: Final = """
create table if not exists bar_reports (
    start_ms integer primary key, end_ms integer not null, body blob not null
);
"""


class KeptReport(Struct, frozen=True, kw_only=True):
    """A report, what its figures are made of, and the alarms that were raised at its end."""

    start_ms: int
    end_ms: int
    report: BarReport
    tally: Tally
    alarms: tuple[Alarm, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(KeptReport).decode


class ReplicaReports:
    """The table of reports: one writer, any number of readers."""

    def __init__(self, db: sqlite3.Connection, *, kept: int = KEPT) -> None:
        self._db = db
        self._kept = kept

    def put(self, report: KeptReport) -> None:
        """Store a report, or replace it by what late claims made of it."""
        row = (report.start_ms, report.end_ms, _encode(report))
        self._db.execute("insert or replace into bar_reports values (?, ?, ?)", row)
        self._db.execute(
            "delete from bar_reports where start_ms <="
            " (select start_ms from bar_reports order by start_ms desc limit 1 offset ?)",
            (self._kept,),
        )

    def newest(self, *, limit: int, until_ms: int | None = None) -> list[KeptReport]:
        """The newest reports of bars that began by a time, the oldest of them first."""
        rows = self._db.execute(
            "select body from bar_reports where ? is null or start_ms <= ?"
            " order by start_ms desc limit ?",
            (until_ms, until_ms, limit),
        ).fetchall()
        return [_decode(row[0]) for row in reversed(rows)]

    def between(self, from_ms: int, to_ms: int, *, limit: int) -> list[KeptReport]:
        """Reports of the bars that a stretch of time touches, oldest first."""
        rows = self._db.execute(
            "select body from bar_reports where end_ms > ? and start_ms <= ?"
            " order by start_ms limit ?",
            (from_ms, to_ms, limit),
        )
        return [_decode(row[0]) for row in rows]
