"""What a replica knows about jobs: the queries of workers, services and people (spec §3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from antiphon.core.families.jobs.columns import follows
from antiphon.core.families.jobs.state import Job, JobLane, State, job_key
from antiphon.runtime.replica.job_pages import EVERYTHING, JobFilter, JobPages, kinds_clause
from antiphon.runtime.replica.replica import MOST_FOUND, Queries
from antiphon.runtime.replica.replica_table import link

if TYPE_CHECKING:
    from antiphon.runtime.replica.replica import Replica, StoredRecord

_decode = msgspec.msgpack.Decoder(JobLane).decode


def job_lane(replica: Replica, kind: str, job_id: str) -> JobLane:
    """A job's lane as of the last record that was noted."""
    return cast("JobLane", replica.lane(job_key(kind, job_id)))


def job_records(replica: Replica, kind: str, job_id: str) -> list[StoredRecord]:
    """The records of a job's lane with their verdicts, oldest first."""
    return replica.lane_records(job_key(kind, job_id))


MEMBERS_AT_ONCE: Final = 64
Moment = Literal["due", "begins", "recall"]
"""When a job may be expired, begins, or should be offered again."""


class ReplicaJobs(Queries):
    """Jobs by their state, their kind and their times."""

    def job(self, kind: str, job: str) -> Job | None:
        """The state of this job (M20)."""
        row = self._db.execute(
            "select body from lanes_jobs where name = ? and kind = ?", (job, kind)
        ).fetchone()
        return _decode(row[0]).job if row else None

    def find(self, text: str, *, kinds: Sequence[str] = EVERYTHING) -> list[Job]:
        """Jobs whose id begins with these hex digits, or whose alias is this ULID, of some kinds.

        Anybody may submit a job again under another kind, with the same id.
        """
        where, args = kinds_clause("", kinds)
        rows = self._db.execute(
            "select body from lanes_jobs"  # noqa: S608 - our own words and placeholders
            f" where ((name >= ? and name < ? and state is not null) or alias = ?) and {where}"
            " limit ?",
            (text, text + "g", text.upper(), *args, MOST_FOUND),
        )
        return _jobs(rows)

    def pending(self, kind: str, *, limit: int, after: int = 0) -> list[Job]:
        """Pending jobs of a kind, or below it, oldest first, scheduled after a sequence (M20).

        Without a kind, of all kinds. Questions are none: people answer them.
        """
        rows = self._db.execute(
            "select body from lanes_jobs where state = 'pending' and recall_ms is not null"
            " and (? = '' or kind = ? or (kind > ? and kind < ?)) and first_seq > ?"
            " order by first_seq limit ?",
            (kind, kind, kind + ".", kind + "/", after, limit),
        )
        return _jobs(rows)

    def pending_by_kind(self) -> dict[str, int]:
        """How many jobs of each kind are pending."""
        rows = self._db.execute(
            "select kind, lanes from tallies"
            " where family = 'jobs' and kind != '' and state = 'pending' and lanes > 0"
        )
        return dict(rows.fetchall())

    def overdue(self, now_ms: int, *, kind: str = "", limit: int = 100) -> list[Job]:
        """Jobs past their deadline, or past the time to start, longest overdue first (M20)."""
        rows = self._db.execute(
            "select body from lanes_jobs where due_ms is not null and due_ms < ?"
            " and (? = '' or kind = ? or (kind > ? and kind < ?)) order by due_ms limit ?",
            (now_ms, kind, kind, kind + ".", kind + "/", limit),
        )
        return _jobs(rows)

    def beginning(self, now_ms: int, *, limit: int, skip: int = 0) -> list[Job]:
        """Jobs that waited for a time that has come, earliest first, without the first `skip`."""
        rows = self._db.execute(
            "select body from lanes_jobs where begins_ms is not null and begins_ms <= ?"
            " order by begins_ms limit ? offset ?",
            (now_ms, limit, skip),
        )
        return _jobs(rows)

    def first_of_each(
        self, moment: Moment, now_ms: int, *, after: str, limit: int = MEMBERS_AT_ONCE
    ) -> tuple[list[Job], str]:
        """Of every member that has jobs whose time has come, the earliest.

        So many members are looked at, from those behind `after`: what the last answer ended with.
        """
        column, where = f"{moment}_ms", f"{moment}_ms is not null and whose"
        holders = self._db.execute(
            "with recursive holders(one) as ("  # noqa: S608 - one of three names of ours
            f" select min(whose) from lanes_jobs where {where} > ? union all"
            f" select (select min(whose) from lanes_jobs where {where} > one) from holders"
            " where one is not null) select one from holders where one is not null limit ?",
            (after, limit),
        ).fetchall()
        found: list[Job] = []
        for (holder,) in holders:
            found += _jobs(
                self._db.execute(
                    f"select body from lanes_jobs where {where} = ? and {column} <= ?"  # noqa: S608
                    f" order by {column} limit 1",
                    (holder, now_ms),
                )
            )
        return found, holders[-1][0] if len(holders) == limit else ""

    def next_beginning(self, now_ms: int) -> int | None:
        """The earliest time after now for which a job waits."""
        row = self._db.execute(
            "select min(begins_ms) from lanes_jobs where begins_ms is not null and begins_ms > ?",
            (now_ms,),
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def unanswered(self, now_ms: int, *, limit: int = 100) -> list[Job]:
        """Pending jobs that should be offered again, longest waiting first."""
        rows = self._db.execute(
            "select body from lanes_jobs where recall_ms is not null and recall_ms < ?"
            " order by recall_ms limit ?",
            (now_ms, limit),
        )
        return _jobs(rows)

    def kept_before(self, ended_ms: int, *, limit: int) -> list[Job]:
        """Jobs that ended before this and whose outputs are still kept, longest ago first."""
        rows = self._db.execute(
            "select body from lanes_jobs where kept_ms is not null and kept_ms < ?"
            " order by kept_ms limit ?",
            (ended_ms, limit),
        )
        return _jobs(rows)

    def with_replaced(self, *, limit: int) -> list[Job]:
        """Unfinished jobs with checkpoints that newer ones replaced, those with most first."""
        rows = self._db.execute(
            "select body from lanes_jobs where replaced is not null order by replaced desc limit ?",
            (limit,),
        )
        return _jobs(rows)

    def followers(self, kind: str, job: str, *, limit: int) -> list[Job]:
        """Jobs that wait or waited for this one, oldest first."""
        rows = self._db.execute(
            "select body from lanes_jobs join follows on lane = id where before = ? order by id",
            (link((kind, job)),),
        )
        found = (one for row in rows if (one := _decode(row[0]).job) is not None)
        return [*islice((one for one in found if (kind, job) in follows(one)), limit)]

    def jobs(self, *, states: Iterable[State] = (), kind: str = "", limit: int = 50) -> list[Job]:
        """Jobs, newest first, filtered by state and kind prefix."""
        wanted = JobFilter(states=tuple(states), kind=kind)
        return list(JobPages(self._db).every(wanted, limit=limit))

    def ended(self, *, before: int | None = None, limit: int) -> list[Job]:
        """Jobs that ended, the latest first; those that ended before a sequence."""
        rows = self._db.execute(
            "select body from lanes_jobs where ended_seq is not null and (? is null or"
            " ended_seq < ?) order by ended_seq desc limit ?",
            (before, before, limit),
        )
        return _jobs(rows)


def _jobs(rows: Iterable[tuple[bytes]]) -> list[Job]:
    found = (_decode(row[0]).job for row in rows)
    return [job for job in found if job is not None]
