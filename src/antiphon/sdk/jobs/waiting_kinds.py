"""Kinds with jobs that a worker could claim: which there are, since when, and who ran one last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from antiphon.core.families.jobs.state import HELD, TERMINAL, Job, JobLane
from antiphon.runtime.replica.job_pages import kinds_clause
from antiphon.runtime.replica.replica import Queries

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_KINDS: Final = 4_096
"""Kinds with pending jobs that are looked at."""
EXAMINED: Final = 1_000
"""Rows of one kind and state."""

_decode: Final = msgspec.msgpack.Decoder(JobLane).decode


class LastRun(NamedTuple):
    """The worker that ran a job of some kind last, as far as its newest jobs tell."""

    worker: str
    at_ms: int
    """When it ended that job, or last said that it holds it."""


class WaitingKinds(Queries):
    """Pending jobs by kind. Questions are none: people answer them."""

    def kinds(self, visible: Sequence[str]) -> list[tuple[str, int]]:
        """Kinds that have pending jobs, and how many; of those that may be seen."""
        where, args = kinds_clause("", visible)
        return self._db.execute(
            "select kind, lanes from tallies where family = 'jobs' and kind != ''"  # noqa: S608 - our own words and placeholders
            f" and state = 'pending' and lanes > 0 and {where} limit {MOST_KINDS}",
            args,
        ).fetchall()

    def oldest(self, kind: str, *, limit: int) -> list[Job]:
        """The pending jobs of a kind that were submitted first."""
        rows = self._db.execute(
            "select body from (select body, recall_ms from lanes_jobs where state = 'pending'"  # noqa: S608 - a number of ours
            f" and kind = ? order by first_seq limit {EXAMINED}) where recall_ms is not null"
            " limit ?",
            (kind, limit),
        )
        return list(_jobs(rows))

    def last_run(self, kind: str) -> LastRun | None:
        """Who ran one of its newest jobs last."""
        found: list[LastRun] = []
        for state in (*TERMINAL, *HELD):
            rows = self._db.execute(
                "select body from (select body, worker from lanes_jobs where state = ?"  # noqa: S608 - a number of ours
                f" and kind = ? order by first_seq desc limit {EXAMINED}) where worker is not null"
                " limit 1",
                (state.value, kind),
            )
            found += [LastRun(job.claimer, job.ended_ms or job.hlc[0]) for job in _jobs(rows)]
        for job in self.oldest(kind, limit=1):  # whose worker was lost is pending again
            found += [LastRun(who, job.hlc[0]) for who, _ in job.cooling[-1:]]
        return max(found, key=lambda one: one.at_ms, default=None)


def _jobs(rows: Iterable[tuple[bytes]]) -> Iterable[Job]:
    return (job for (body,) in rows if (job := _decode(body).job) is not None)
