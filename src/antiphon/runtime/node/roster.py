"""The work roster: the three queries from which a worker loop can be built (M20, M30).

They are answered from the replica, so they cost the mesh nothing. What a worker may claim also
depends on the routes in force, which the replica does not know; the session does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.chain_choice import acts_for
from antiphon.core.families.jobs.state import Job
from antiphon.core.families.jobs.table import standing
from antiphon.runtime.replica.replica_jobs import ReplicaJobs

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import FullNode


FOUND: Final = 100
"""Claimable jobs that one answer lists."""
PAGES: Final = 100
"""Pages of pending jobs, the oldest first, among which claimable ones are looked for."""


class Roster:
    """One full node's view of the work."""

    def __init__(self, node: FullNode) -> None:
        """Reads from the node's replica."""
        self._node = node

    def state_of(self, kind: str, job_id: str) -> Job | None:
        """The state of one job, or None if there is no such job."""
        node = self._node
        found = node.replica.ask(ReplicaJobs).job(kind, job_id)
        return standing(node.session.control, found, node.applied + 1)

    def claimable(self, kind: str, *, by: str) -> list[Job]:
        """Pending jobs of this kind, or below it, that `by` could claim now, oldest first."""
        session = self._node.session
        now_ms = session.author.now().wall_ms
        routes = session.control.route_for
        nodes = {None, *acts_for(session.control.grants, by, before=self._node.applied + 1)}
        found: list[Job] = []
        after = 0
        for _ in range(PAGES):
            page = self._node.replica.ask(ReplicaJobs).pending(kind, limit=FOUND, after=after)
            found += [
                job for job in page if routes(job.kind) in nodes and job.is_claimable(now_ms, by)
            ]
            if len(page) < FOUND or len(found) >= FOUND:
                break
            after = page[-1].scheduled_seq
        return found[:FOUND]

    def overdue(self, *, limit: int = 100) -> list[Job]:
        """Jobs past their deadline, by the hybrid clock of the node."""
        now_ms = self._node.session.author.now().wall_ms
        return self._node.replica.ask(ReplicaJobs).overdue(now_ms, limit=limit)
