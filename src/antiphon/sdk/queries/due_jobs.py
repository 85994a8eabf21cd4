"""Jobs that somebody should look at now: past their deadline, or free to be claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.errors import Misconfigured
from antiphon.runtime.node.roster import Roster
from antiphon.sdk.authority.holdings import find_node, who
from antiphon.sdk.queries.job_query import JobFilters, checked_limit
from antiphon.sdk.queries.page import Page

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job
    from antiphon.sdk.connection.connection import Connection


async def due_jobs(
    connection: Connection,
    filters: JobFilters,
    *,
    claimable_by: str,
    overdue: bool,
    limit: int,
) -> Page[Job]:
    """`Mesh.jobs` with `overdue` or `claimable_by`: one page."""
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
        roster = Roster(connection.session, replica)
        if overdue:
            return Page(roster.overdue(kind=kind, limit=limit))
        return Page(roster.claimable(kind, by=node, limit=limit))
