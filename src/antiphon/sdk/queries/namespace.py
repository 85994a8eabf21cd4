"""`mesh.queries`: pages of everything that this machine can read (docs/do/queries.md).

    wanted = {"state": "failed", "text": "connection refused", "since": "2h"}
    page = await mesh.queries.jobs(**wanted)
    more = await mesh.queries.jobs(**wanted, after=page.next)

Every list ends at a limit and goes on at a cursor. An interface that answers for somebody else
makes an object of its own with what this party may do. Nothing that it returns is about other
kinds than those for which the party holds a command that such rows are read by, neither rows nor
counts. Where a list cannot have all rows, parties share it (decision 0093).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.core.authority.parties import party_of_key
from antiphon.core.authority.scope import EVERY_KIND, EVERYTHING, Scope
from antiphon.core.authority.subject_rights import kinds_shown
from antiphon.core.families.jobs.ops import JOB
from antiphon.core.families.jobs.state import Job, JobLane
from antiphon.core.families.locks.ops import LOCK
from antiphon.core.families.memory.ops import MEMO
from antiphon.core.families.plans.ops import PLAN
from antiphon.core.presence.presence_table import Level
from antiphon.core.record.branches import READS_ALL
from antiphon.errors import Rejected
from antiphon.runtime.replica.job_pages import EVERYTHING as EVERY_ONE
from antiphon.runtime.replica.job_pages import JobPages
from antiphon.runtime.replica.lane_lists import LaneList, Listed, Lists, kind_and_below
from antiphon.sdk.queries.job_query import JobFilters, JobQuery, checked_limit, job_filter
from antiphon.sdk.queries.page import Page, Query, digest_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Unpack

    from antiphon.core.record.branches import Branch
    from antiphon.runtime.attention.attention_table import Attention
    from antiphon.runtime.caller.model_calls import ModelCall
    from antiphon.runtime.log.lane_reader import Judged
    from antiphon.runtime.presence.live_nodes import LiveNode
    from antiphon.runtime.replica.replica import Replica
    from antiphon.runtime.replica.replica_reports import KeptReport
    from antiphon.sdk.authority.limits import LimitStatus
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.costs.cost_report import CostBy, CostReport
    from antiphon.sdk.locks.namespace import LockStatus
    from antiphon.sdk.messages.namespace import DeadMessage
    from antiphon.sdk.plans.namespace import PlanStatus
    from antiphon.sdk.queries.log_status import LogStatus
    from antiphon.sdk.queries.record_lists import Refusal
    from antiphon.sdk.questions.namespace import OpenQuestion

LIMIT: Final = 50
LOOKS: Final = 200
"""At a million jobs, all of them are examined for one page."""
MOST: Final = 500
"""Rows of one page of anything but jobs."""
CALLING_JOBS: Final = 200
"""Jobs with model calls that are read for one page."""
NO_END: Final = 2**62
JOBS: Final = "jobs"
CALLING: Final = LaneList[Job]("jobs", JobLane, JOB, "snapshots", is_newest_first=True)
"""Jobs whose runs have stored model calls, the newest first."""


def _behind(said: Query, found: Sequence[Listed[Any]], limit: int) -> str:
    """The cursor behind the rows of a page, which has a limit; empty if no row is left."""
    last = found[limit - 1] if len(found) > limit else None
    return "" if last is None else said.cursor(f"{last.kind} {last.name}")


def _newest_call(call: ModelCall) -> str:
    return f"{NO_END - call.at_ms:020} {call.kind} {call.job_id} {NO_END - call.number:020}"


class KindCounts(Struct, frozen=True):
    """How many jobs of a kind are in each state that has any."""

    kind: str
    jobs: dict[str, int]


class DocumentLine(Struct, frozen=True, kw_only=True):
    """A document, without its value."""

    space: str
    key: str
    revision: int
    author: str
    agent: str
    conflicts: int
    """Values that wait for a decision."""


class Queries:
    """Pages of what is on the mesh, as one party may see it."""

    def __init__(self, connection: Connection, *, scope: Scope = EVERYTHING) -> None:
        """Use `mesh.queries`. `scope` is what whoever asks may do, for which kinds."""
        self._connection = connection
        self._scope = scope

    def _kinds(self, branch: Branch, what: str) -> tuple[str, ...]:
        """The kinds whose rows may be seen; `Rejected` if none can be."""
        found = self._scope.of(*branch.read_by)
        if not found:
            raise Rejected(
                f"to see {what} takes one of the rights {', '.join(branch.read_by)}",
                reason="role",
                hint="ask with a right that includes one of them",
            )
        return found

    def _require_everything(self, what: str) -> None:
        if EVERY_KIND not in self._scope.of(READS_ALL):
            raise Rejected(
                f"{what} are about every kind of job, and you may read some of them",
                reason="project",
                hint="ask with a right to read every kind",
            )

    def _lists(self, replica: Replica) -> Lists:
        return Lists(replica, self._connection.session.control, self._scope)

    async def readable(self) -> tuple[str, ...]:
        """The kinds of jobs that this machine can read, as kind filters: `render.>`; `>`: all."""
        async with self._connection.replica() as replica:
            shown = replica.reads or ()
        return kinds_shown(JOB, shown)

    # --- jobs -------------------------------------------------------------------------------------

    async def jobs(
        self,
        *,
        limit: int = LIMIT,
        after: str = "",
        looks: int = LOOKS,
        **filters: Unpack[JobFilters],
    ) -> Page[Job]:
        """Jobs, newest first: by state, kind, time, submitter, worker, label, plan, error, graph.

        A look examines some thousand jobs; after `looks` of them the page is what was found.
        """
        checked_limit(limit)
        query, kinds = JobQuery(**filters), self._kinds(JOB, JOBS)
        said = Query("jobs", query, kinds)
        before, found = said.number(after), list["Job"]()
        async with self._connection.replica() as replica:
            wanted = await job_filter(self._connection, query, replica, kinds)
            pages = replica.ask(JobPages)
            for _ in range(looks):
                left = limit - len(found)
                page = pages.page(wanted, visible=kinds, before=before, limit=left)
                found += page.jobs
                before = page.next
                if not before or len(found) >= limit:
                    break
                await asyncio.sleep(0)
        return Page(found, next=said.cursor(before) if before else "")

    async def job(self, text: str, *, to: str = "") -> Job:
        """The one job with this id, alias or beginning of an id; `Rejected` if there is none.

        `to` is a command that is to be used on it: whoever holds it for a kind may name its jobs.
        """
        from antiphon.sdk.jobs.job_lookup import one_job

        kinds = self._scope.of(*JOB.read_by, *((to,) if to else ()))
        async with self._connection.replica() as replica:
            return one_job(replica, text, kinds=kinds)

    async def counts(self, *, kind: str = "") -> dict[str, int]:
        """How many jobs are in each state that has any; of a kind and those below it, or of all."""
        kinds = self._kinds(JOB, JOBS)
        async with self._connection.replica() as replica:
            return replica.ask(JobPages).counts(visible=kinds, kind=kind)

    async def kinds(self, *, limit: int = LIMIT, after: str = "") -> Page[KindCounts]:
        """The same for each kind that has jobs, by name."""
        checked_limit(limit, MOST)
        visible = self._kinds(JOB, JOBS)
        said = Query("kinds", visible)
        async with self._connection.replica() as replica:
            found = replica.ask(JobPages).counts_by_kind(
                visible=visible, after=said.text(after), limit=limit + 1
            )
        shown = [KindCounts(kind, jobs) for kind, jobs in found[:limit]]
        return Page(shown, next=said.cursor(shown[-1].kind) if len(found) > limit else "")

    # --- the rest of the mesh ---------------------------------------------------------------------

    async def nodes(self, *, limit: int = LIMIT, after: str = "") -> Page[LiveNode]:
        """The nodes that are online, or died within a day: by their ids; parties share a page.

        Those that died have the level `dead`, unless somebody dismissed them.
        """
        from antiphon.sdk.presence.namespace import Presence

        live, dead = await Presence(self._connection).live_and_dead()
        found, control = [*live, *dead], self._connection.session.control
        said, limit = Query("nodes"), checked_limit(limit, MOST)
        page = said.in_turns(
            found,
            lambda one: digest_key(
                f"{one.card.node} {one.card.agent}", b"\1" if one.level == Level.DEAD else b"\0"
            ),
            lambda one: party_of_key(control, one.card.node),
            after=after,
            limit=limit,
        )
        return Page(sorted(page, key=lambda one: (one.card.node, one.card.agent)), next=page.next)

    async def plans(self, *, limit: int = LIMIT, after: str = "") -> Page[PlanStatus]:
        """The plans that stand, by kind and name."""
        from antiphon.sdk.plans.namespace import STANDING_PLANS, statuses

        checked_limit(limit, MOST)
        said = Query("plans", self._kinds(PLAN, "plans"))
        session = self._connection.session
        await session.sync_control()
        async with self._connection.replica() as replica:
            found = self._lists(replica).named(
                STANDING_PLANS, after=said.named(after), limit=limit + 1
            )
            views = statuses(session, replica, [one.state for one in found[:limit]])
        return Page(views, next=_behind(said, found, limit))

    async def locks(
        self, *, scope: str = "", limit: int = LIMIT, after: str = ""
    ) -> Page[LockStatus]:
        """The locks that are held, by scope and key."""
        from antiphon.sdk.locks.namespace import HELD_LOCKS, statuses

        checked_limit(limit, MOST)
        said = Query("locks", scope, self._kinds(LOCK, "locks"))
        session, among = self._connection.session, (scope,) if scope else EVERY_ONE
        await session.sync_control()
        async with self._connection.replica() as replica:
            found = self._lists(replica).named(
                HELD_LOCKS, among=among, after=said.named(after), limit=limit + 1
            )
        shown = [one.state for one in found[:limit]]
        return Page(statuses(session, shown), next=_behind(said, found, limit))

    async def model_calls(
        self,
        *,
        model: str = "",
        kind: str = "",
        since: datetime | None = None,
        limit: int = LIMIT,
        after: str = "",
    ) -> Page[ModelCall]:
        """Model calls of audited jobs, newest first, of models whose name begins so.

        The newest 200 jobs that made any are looked at, of a kind or below it; parties share them.
        """
        from antiphon.runtime.caller.model_calls import calls_on
        from antiphon.runtime.replica.replica_erasures import ReplicaErasures

        said = Query("model_calls", model, kind, self._kinds(JOB, "model calls"))
        since_ms = 0 if since is None else round(since.timestamp() * 1000)
        async with self._connection.replica() as replica:
            calling = self._lists(replica).shared(
                CALLING, among=kind_and_below(kind), limit=CALLING_JOBS
            )
            jobs = [one.state for one in calling.rows]
            jobs = [one for one in jobs if replica.ask(ReplicaErasures).about(one) is None]
        found: list[ModelCall] = []
        for job in jobs:
            view = await self._connection.session.read_lane(job.kind, job.id)
            calls = await calls_on(view, self._connection.artifacts)
            found += [one for one in calls if one.at_ms >= since_ms and one.model.startswith(model)]
        found.sort(key=_newest_call)
        return said.cut(found, _newest_call, after=after, limit=checked_limit(limit, MOST))

    async def documents(
        self, space: str, *, prefix: str = "", limit: int = LIMIT, after: str = ""
    ) -> Page[DocumentLine]:
        """The documents of a space, by key."""
        from antiphon.sdk.memory.memory_space import DOCUMENTS

        checked_limit(limit, MOST)
        said = Query("documents", space, prefix, self._kinds(MEMO, "documents"))
        place = (space, said.text(after))
        async with self._connection.replica() as replica:
            found = self._lists(replica).named(
                DOCUMENTS, among=(space,), prefix=prefix, after=place, limit=limit + 1
            )
        shown = [
            DocumentLine(
                space=space,
                key=one.key,
                revision=one.revision,
                author=one.author,
                agent=one.agent,
                conflicts=len(one.siblings),
            )
            for one in (row.state for row in found[:limit])
        ]
        return Page(shown, next=said.cursor(shown[-1].key) if len(found) > limit else "")

    async def messages(
        self, *, agent: str | None = None, limit: int = LIMIT, after: str = ""
    ) -> Page[DeadMessage]:
        """Messages to this agent that nobody handled, by id."""
        from antiphon.sdk.messages.namespace import Messages

        found = await Messages(self._connection).dead(agent=agent, limit=MOST)
        said = Query("messages", agent)
        return said.cut(found, lambda one: one.id, after=after, limit=checked_limit(limit, MOST))

    async def limits(self, *, limit: int = LIMIT, after: str = "") -> Page[LimitStatus]:
        """Limits and labels in use, by label. A label may be on jobs of any kind."""
        from antiphon.sdk.authority.limits import limits

        self._require_everything("limits")
        async with self._connection.replica() as replica:
            found = limits(self._connection.session, replica, shown=1)
        said = Query("limits")
        return said.cut(found, lambda one: one.label, after=after, limit=checked_limit(limit, MOST))

    async def attention(self, *, limit: int = LIMIT, after: str = "") -> Page[Attention]:
        """What needs somebody's attention, newest first: docs/do/attention.md.

        Open questions, jobs without a result that were neither retried nor dismissed, kinds whose
        jobs wait and that nobody runs, conflicts of documents, alarms, a coordinator that does not
        answer, and what services of this machine's node, or of the coordinator's, have set aside.
        Who may read some kinds sees the first four of those kinds.
        Parties share each page.
        """
        from antiphon.sdk.queries.attention import needed

        said = Query("attention", self._scope)
        limit = checked_limit(limit, MOST)
        async with self._connection.replica() as replica:
            found = await needed(self._connection, replica, self._scope)
        page = said.in_turns(
            found, lambda one: one.key, lambda one: one.party, after=after, limit=limit
        )
        return page.mapped(lambda one: one.item)

    async def questions(
        self, *, kind: str = "", limit: int = LIMIT, after: str = ""
    ) -> Page[OpenQuestion]:
        """Questions that nobody has answered, the oldest first; of a kind and those below it."""
        from antiphon.sdk.questions.namespace import OPEN_QUESTIONS, shown_questions

        checked_limit(limit, MOST)
        said = Query("questions", kind, self._kinds(JOB, "questions"))
        place, among = said.number(after), kind_and_below(kind)
        async with self._connection.replica() as replica:
            found, last = self._lists(replica).in_order(
                OPEN_QUESTIONS, among=among, after=place, limit=limit
            )
        shown = shown_questions(self._connection, [one.state for one in found])
        return Page(shown, next=said.cursor(last) if last else "")

    async def reports(self, *, limit: int = LIMIT, after: str = "") -> Page[KeptReport]:
        """Bar reports of this machine's node, newest first."""
        self._require_everything("reports")
        checked_limit(limit, MOST)
        said = Query("reports")
        before = said.number(after)
        async with self._connection.replica() as replica:
            found = replica.reports.newest(limit=limit + 1, until_ms=before - 1 if before else None)
        shown = found[::-1][:limit]
        return Page(shown, next=said.cursor(shown[-1].start_ms) if len(found) > limit else "")

    async def refusals(
        self, *, kind: str = "", limit: int = LIMIT, after: str = ""
    ) -> Page[Refusal]:
        """Records that took no effect, newest first; of a kind and those below it, or of all."""
        from antiphon.sdk.queries.record_lists import refusals

        checked_limit(limit, MOST)
        said = Query("refusals", kind, self._scope)
        found, last = await refusals(
            self._connection, self._scope, kind, before=said.number(after), limit=limit
        )
        return Page(found, next=said.cursor(last) if last else "")

    async def latest(self, *, since_ms: int, limit: int = MOST) -> list[Judged]:
        """The newest records since a time with their verdicts, oldest first; at most 2,000.

        Parties share them, as far as they are among the newest 10,000 of the log.
        """
        from antiphon.sdk.queries.record_lists import LATEST, latest

        checked_limit(limit, LATEST)
        return await latest(self._connection, self._scope, since_ms, limit)

    async def log(self) -> LogStatus:
        """How much was written in the last hour, the newest seals, and what was refused."""
        from antiphon.sdk.queries.log_status import log_status

        self._require_everything("figures of the log")
        return await log_status(self._connection)

    async def cost(
        self, *, by: CostBy = "kind", since: datetime | None = None, kind: str = ""
    ) -> CostReport:
        """What the jobs that ended cost, as far as they may be seen."""
        from antiphon.sdk.costs.cost_report import cost_report

        since_ms = 0 if since is None else round(since.timestamp() * 1000)
        return await cost_report(
            self._connection.replica(),
            by=by,
            since_ms=since_ms,
            kind=kind,
            visible=self._kinds(JOB, "what jobs cost"),
        )


__all__ = ["DocumentLine", "KindCounts", "Queries"]
