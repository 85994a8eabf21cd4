"""How much there is on a replica: jobs by state and kind, bytes, and the oldest waiting job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.families.jobs.state import Job, JobLane

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

ALL_KINDS: Final = ""
"""In a tally, the kind that stands for all of them."""
_decode: Final = msgspec.msgpack.Decoder(JobLane).decode


class ReplicaSizes:
    """Sums over the tables of one replica."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """`db` is the replica's own connection."""
        self._db = db

    def by_state(self) -> dict[str, int]:
        """How many jobs are in each state that has any."""
        return {state: number for (_, state), number in self.of_kinds([ALL_KINDS]).items()}

    def of_kinds(self, kinds: Collection[str]) -> dict[tuple[str, str], int]:
        """How many jobs of each of these kinds are in each state that has any."""
        rows = self._db.execute(
            "select kind, state, lanes from tallies"  # noqa: S608 - only placeholders are joined
            f" where family = 'jobs' and lanes > 0 and kind in ({','.join('?' * len(kinds))})",
            tuple(kinds),
        )
        return {(kind, state): number for kind, state, number in rows}

    def kinds(self, limit: int) -> list[tuple[str, bool]]:
        """Kinds that have jobs, with whether a worker has run any of them: those first."""
        rows = self._db.execute(
            "select kind, max(state in ('claimed', 'running', 'succeeded', 'failed')) as is_run"
            " from tallies where family = 'jobs' and kind != '' and lanes > 0"
            " group by kind order by is_run desc, sum(lanes) desc limit ?",
            (limit,),
        )
        return [(kind, bool(is_run)) for kind, is_run in rows]

    def by_family(self) -> dict[str, int]:
        """How many things there are of each family that has any: jobs, locks, documents."""
        rows = self._db.execute(
            "select family, sum(lanes) from tallies where kind = ? and lanes > 0"
            " group by family order by family",
            (ALL_KINDS,),
        )
        return {family: int(lanes) for family, lanes in rows}

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
            "select body from lanes_jobs where state = 'pending' order by first_seq limit 1"
        ).fetchone()
        return _decode(row[0]).job if row else None
