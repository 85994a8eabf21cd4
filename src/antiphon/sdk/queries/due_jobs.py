"""Jobs that somebody should look at now: past their deadline, or free to be claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.ops import JOB
from antiphon.core.families.jobs.state import Job, JobLane
from antiphon.errors import Misconfigured
from antiphon.runtime.node.roster import Roster
from antiphon.runtime.replica.job_pages import is_below
from antiphon.runtime.replica.lane_lists import LaneList, Lists
from antiphon.sdk.authority.holdings import find_node, who
from antiphon.sdk.queries.job_query import JobFilters, checked_limit
from antiphon.sdk.queries.page import Page

if TYPE_CHECKING:
    from antiphon.sdk.connection.connection import Connection


DUE_JOBS: Final = LaneList[Job]("jobs", JobLane, JOB, "due_ms", order="due_ms")
"""Jobs that have not ended, by the time at which they are overdue."""


async def due_jobs(
    connection: Connection,
    filters: JobFilters,
    *,
    claimable_by: str,
    overdue: bool,
    limit: int,
) -> Page[Job]:
    """`Mesh.jobs` with `overdue` or `claimable_by`: one page, which parties share."""
    checked_limit(limit)
    others = [name for name, value in filters.items() if value and name != "kind"]
    if others or (overdue and claimable_by):
        with_ = others[0] if others else "claimable_by"
        first = "overdue" if overdue else "claimable_by"
        raise Misconfigured(
            f"{first} and {with_} cannot be combined", hint="leave out all but one; kind may stay"
        )
    node = find_node(await who(connection), claimable_by) if claimable_by else ""
    kind = filters.get("kind", "")
    async with connection.replica() as replica:
        session = connection.session
        if not overdue:
            return Page(Roster(session, replica).claimable(kind, by=node, limit=limit))
        found = Lists(replica, session.control).shared(
            DUE_JOBS,
            until=session.author.now().wall_ms,
            only=lambda job: is_below(job.kind, kind),
            limit=limit,
        )
        return Page(one.state for one in found.rows)
