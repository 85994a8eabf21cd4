"""The work roster: the three queries from which a worker loop can be built (M20, M30).

They are answered from the replica, so they cost the mesh nothing. What a worker may claim also
depends on the routes in force, which the replica does not know; the session does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.chain_choice import acts_for
from antiphon.core.families.jobs.ops import JOB
from antiphon.core.families.jobs.state import Job, JobLane
from antiphon.core.families.jobs.table import standing
from antiphon.runtime.replica.job_pages import is_below
from antiphon.runtime.replica.lane_lists import LaneList, Lists
from antiphon.runtime.replica.replica_jobs import ReplicaJobs

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica import Replica

FOUND: Final = 100
"""Claimable jobs that one answer lists."""
PENDING_JOBS: Final = LaneList[Job]("jobs", JobLane, JOB, "recall_ms", order="recall_ms")
"""Jobs that a worker could claim, those first that should be offered again first."""


class Roster:
    """What one replica and the newest control state say about the work."""

    def __init__(self, session: Session, replica: Replica) -> None:
        """The session knows routes and delegations, the replica the jobs."""
        self._session = session
        self._replica = replica

    def state_of(self, kind: str, job_id: str) -> Job | None:
        """The state of one job, or None if there is no such job."""
        found = self._replica.ask(ReplicaJobs).job(kind, job_id)
        return standing(self._session.control, found, self._next_seq())

    def claimable(self, kind: str, *, by: str, limit: int = FOUND) -> list[Job]:
        """Pending jobs of this kind, or below it, that `by` could claim now, oldest first.

        Without a kind, of all kinds. Routes decide, and not whether it holds the kind's permission.
        Where there are more, parties share the list.
        """
        session = self._session
        now_ms, control = session.author.now().wall_ms, session.control
        nodes = {None, *acts_for(control.grants, by, before=self._next_seq())}

        def is_free(job: Job) -> bool:
            may = is_below(job.kind, kind) and control.route_for(job.kind) in nodes
            return may and job.is_claimable(now_ms, by)

        found = Lists(self._replica, control).shared(PENDING_JOBS, only=is_free, limit=limit)
        return sorted((one.state for one in found.rows), key=lambda job: job.scheduled_seq)

    def overdue(self, *, kind: str = "", limit: int = FOUND) -> list[Job]:
        """Jobs past their deadline, by the hybrid clock of the node; the longest overdue first."""
        now_ms = self._session.author.now().wall_ms
        return self._replica.ask(ReplicaJobs).overdue(now_ms, kind=kind, limit=limit)

    def _next_seq(self) -> int:
        return self._replica.cursor.seq + 1
