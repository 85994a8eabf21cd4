"""How much there is on a replica: jobs by state and kind, bytes, and the oldest waiting job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.families.jobs.state import Job, JobLane

if TYPE_CHECKING:
    import sqlite3

_decode: Final = msgspec.msgpack.Decoder(JobLane).decode


class ReplicaSizes:
    """Sums over the tables of one replica."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """`db` is the replica's own connection."""
        self._db = db

    def by_state(self) -> dict[str, int]:
        """How many jobs are in each state that has any."""
        rows = self._db.execute(
            "select state, lanes from tallies where family = 'jobs' and lanes > 0"
        )
        return dict(rows.fetchall())

    def by_kind_and_state(self) -> dict[tuple[str, str], int]:
        """The same for each kind. Looks at every job."""
        rows = self._db.execute(
            "select kind, state, count(*) from lanes_jobs where state is not null group by 1, 2"
        )
        return {(kind, state): number for kind, state, number in rows}

    def log_bytes(self) -> int:
        """The bytes of all records. Looks at every record."""
        found = self._db.execute("select sum(length(payload)) from records").fetchone()
        return int(found[0] or 0)

    def file_bytes(self) -> int:
        """The size of the replica itself."""
        pages = self._db.execute("pragma page_count").fetchone()[0]
        return int(pages * self._db.execute("pragma page_size").fetchone()[0])

    def oldest_pending(self) -> Job | None:
        """Of the jobs that a worker could claim, the one that was submitted first."""
        row = self._db.execute(
            "select body from lanes_jobs where due_ms is not null and state = 'pending'"
            " order by first_seq limit 1"
        ).fetchone()
        return _decode(row[0]).job if row else None
