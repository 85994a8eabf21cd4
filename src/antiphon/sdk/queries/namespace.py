"""`mesh.queries`: pages of everything that this machine can read (docs/do/queries.md).

    wanted = {"state": "failed", "text": "connection refused", "since": "2h"}
    page = await mesh.queries.jobs(**wanted)
    more = await mesh.queries.jobs(**wanted, after=page.next)

Every list ends at a limit and goes on at a cursor. An interface that answers for somebody else
makes an object of its own with the kinds that this party may read: nothing that it returns is
about other kinds, neither rows nor counts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.scope import EVERY_KIND
from antiphon.core.authority.subject_rights import kinds_shown
from antiphon.core.families.jobs.ops import JOB
from antiphon.errors import Rejected
from antiphon.ports import NANOSECONDS_PER_MS
from antiphon.runtime.log.lane_reader import Judged
from antiphon.runtime.replica.job_pages import (
    EVERYTHING,
    JobPages,
    is_below,
    is_visible,
)
from antiphon.runtime.replica.replica_records import ReplicaRecords
from antiphon.sdk.queries.job_query import JobFilters, JobQuery, checked_limit, job_filter
from antiphon.sdk.queries.page import Page, Query

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Unpack

    from antiphon.core.families.jobs.state import Job
    from antiphon.runtime.attention.attention_table import Attention
    from antiphon.runtime.caller.model_calls import ModelCall
    from antiphon.runtime.presence.live_nodes import LiveNode
    from antiphon.runtime.replica.replica_reports import KeptReport
    from antiphon.sdk.authority.limits import LimitStatus
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.costs.cost_report import CostBy, CostReport
    from antiphon.sdk.locks.namespace import LockStatus
    from antiphon.sdk.messages.namespace import DeadMessage
    from antiphon.sdk.plans.namespace import PlanStatus
    from antiphon.sdk.queries.log_status import LogStatus
    from antiphon.sdk.questions.namespace import OpenQuestion

LIMIT: Final = 50
LOOKS: Final = 200
"""At a million jobs, all of them are examined for one page."""
MOST: Final = 500
"""Rows of one page of anything but jobs."""
LATEST: Final = 2_000
REFUSALS_EXAMINED: Final = 5_000
CALLING_JOBS: Final = 200
"""Jobs with model calls that are read for one page."""
NO_END: Final = 2**62


def _newest_call(call: ModelCall) -> str:
    return f"{NO_END - call.at_ms:020} {call.kind} {call.job_id} {NO_END - call.number:020}"


class KindCounts(Struct, frozen=True):
    """How many jobs of a kind are in each state that has any."""

    kind: str
    jobs: dict[str, int]


class Refusal(Struct, frozen=True, kw_only=True):
    """A record that took no effect, and why."""

    seq: int
    at_ms: int
    family: str
    """What it was about: `jobs`, `locks`; empty if that cannot be told."""
    kind: str
    name: str
    """The job's id, or whatever it was about."""
    verdict: str


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

    def __init__(self, connection: Connection, *, visible: Sequence[str] = EVERYTHING) -> None:
        """Use `mesh.queries`. `visible` are the kinds that may be seen, as kind filters."""
        self._connection = connection
        self._visible = tuple(visible)

    def _sees(self, kind: str) -> bool:
        return is_visible(kind, self._visible)

    def _require_everything(self, what: str) -> None:
        if EVERY_KIND not in self._visible:
            raise Rejected(
                f"{what} are about every kind of job, and you may read some of them",
                reason="project",
                hint="ask with a right to read every kind",
            )

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
        query = JobQuery(**filters)
        said = Query("jobs", query, self._visible)
        before, found = said.number(after), list["Job"]()
        async with self._connection.replica() as replica:
            wanted = await job_filter(self._connection, query, replica, self._visible)
            pages = replica.ask(JobPages)
            for _ in range(looks):
                left = limit - len(found)
                page = pages.page(wanted, visible=self._visible, before=before, limit=left)
                found += page.jobs
                before = page.next
                if not before or len(found) >= limit:
                    break
                await asyncio.sleep(0)
        return Page(found, next=said.cursor(before) if before else "")

    async def job(self, text: str) -> Job:
        """The one job with this id, alias or beginning of an id; `Rejected` if there is none."""
        from antiphon.sdk.jobs.job_lookup import one_job

        async with self._connection.replica() as replica:
            return one_job(replica, text, visible=self._visible)

    async def counts(self, *, kind: str = "") -> dict[str, int]:
        """How many jobs are in each state that has any; of a kind and those below it, or of all."""
        async with self._connection.replica() as replica:
            return replica.ask(JobPages).counts(visible=self._visible, kind=kind)

    async def kinds(self, *, limit: int = LIMIT, after: str = "") -> Page[KindCounts]:
        """The same for each kind that has jobs, by name."""
        checked_limit(limit, MOST)
        said = Query("kinds", self._visible)
        async with self._connection.replica() as replica:
            found = replica.ask(JobPages).counts_by_kind(
                visible=self._visible, after=said.text(after), limit=limit + 1
            )
        shown = [KindCounts(kind, jobs) for kind, jobs in found[:limit]]
        return Page(shown, next=said.cursor(shown[-1].kind) if len(found) > limit else "")

    # --- the rest of the mesh ---------------------------------------------------------------------

    async def nodes(self, *, limit: int = LIMIT, after: str = "") -> Page[LiveNode]:
        """The nodes that are online, by their ids."""
        from antiphon.sdk.presence.namespace import Presence

        found = await Presence(self._connection).live()
        said, limit = Query("nodes"), checked_limit(limit, MOST)
        return said.cut(
            found, lambda one: f"{one.card.node} {one.card.agent}", after=after, limit=limit
        )

    async def plans(self, *, limit: int = LIMIT, after: str = "") -> Page[PlanStatus]:
        """The plans that stand, by name and kind."""
        from antiphon.sdk.plans.namespace import Plans

        found = [one for one in await Plans(self._connection).list() if self._sees(one.kind)]
        said = Query("plans", self._visible)
        limit = checked_limit(limit, MOST)
        return said.cut(found, lambda one: f"{one.name} {one.kind}", after=after, limit=limit)

    async def locks(
        self, *, scope: str = "", limit: int = LIMIT, after: str = ""
    ) -> Page[LockStatus]:
        """The locks that are held, by scope and key."""
        from antiphon.sdk.locks.namespace import Locks

        found = [one for one in await Locks(self._connection).list(scope) if self._sees(one.scope)]
        said = Query("locks", scope, self._visible)
        limit = checked_limit(limit, MOST)
        return said.cut(found, lambda one: f"{one.scope} {one.key}", after=after, limit=limit)

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

        The newest 200 jobs that made any are looked at, of a kind or below it.
        """
        from antiphon.runtime.caller.model_calls import calls_on
        from antiphon.runtime.replica.replica_erasures import ReplicaErasures
        from antiphon.runtime.replica.replica_jobs import ReplicaJobs

        said = Query("model_calls", model, kind, self._visible)
        since_ms = 0 if since is None else round(since.timestamp() * 1000)
        async with self._connection.replica() as replica:
            jobs = replica.ask(ReplicaJobs).with_model_calls(kind=kind, limit=CALLING_JOBS)
            jobs = [one for one in jobs if replica.ask(ReplicaErasures).about(one) is None]
        found: list[ModelCall] = []
        for job in filter(lambda one: self._sees(one.kind), jobs):
            view = await self._connection.session.read_lane(job.kind, job.id)
            calls = await calls_on(view, self._connection.artifacts)
            found += [one for one in calls if one.at_ms >= since_ms and one.model.startswith(model)]
        found.sort(key=_newest_call)
        return said.cut(found, _newest_call, after=after, limit=checked_limit(limit, MOST))

    async def documents(
        self, space: str, *, prefix: str = "", limit: int = LIMIT, after: str = ""
    ) -> Page[DocumentLine]:
        """The documents of a space, by key."""
        from antiphon.sdk.memory.memory_space import ReplicaDocuments

        checked_limit(limit, MOST)
        said = Query("documents", space, prefix, self._visible)
        begin = said.text(after)
        if not self._sees(space):
            return Page()
        async with self._connection.replica() as replica:
            found = replica.ask(ReplicaDocuments).standing(
                space, prefix=prefix, after=begin, limit=limit + 1
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
            for one in found[:limit]
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

        Open questions, jobs without a result that were not retried, conflicts of documents, alarms,
        a coordinator that does not answer, and what services of this machine's node, or of the
        coordinator's, have set aside. Who may read some kinds sees the first three of those kinds.
        """
        from antiphon.sdk.queries.attention import derived

        sees_all = EVERY_KIND in self._visible
        async with self._connection.replica() as replica:
            found = derived(self._connection, replica, self._visible)
            if sees_all:
                found += [*replica.attention.newest(limit=MOST), *replica.attention.reported()]
        found.sort(key=lambda one: (-one.since_ms, one.service, one.item, one.by))
        said = Query("attention", self._visible)
        limit = checked_limit(limit, MOST)
        return said.cut(
            found,
            lambda one: f"{NO_END - one.since_ms:020} {one.service} {one.item} {one.by}",
            after=after,
            limit=limit,
        )

    async def questions(
        self, *, kind: str = "", limit: int = LIMIT, after: str = ""
    ) -> Page[OpenQuestion]:
        """Questions that nobody has answered, the oldest first; of a kind and those below it."""
        from antiphon.sdk.questions.namespace import ReplicaQuestions, shown_questions

        checked_limit(limit, MOST)
        said = Query("questions", kind, self._visible)
        begin_ms, _, begin_id = said.text(after).partition(" ")
        place = (int(begin_ms) if begin_ms.isdecimal() else 0, begin_id)
        found: list[Job] = []
        has_more = True
        async with self._connection.replica() as replica:
            for _ in range(LOOKS):
                rows = replica.ask(ReplicaQuestions).open(limit=MOST, after=place)
                for job in rows:
                    place = (job.scheduled_ms, job.id)
                    if is_below(job.kind, kind) and self._sees(job.kind):
                        found.append(job)
                        if len(found) == limit:
                            break
                else:
                    has_more = len(rows) == MOST
                    if has_more:
                        await asyncio.sleep(0)
                        continue
                break
        shown = shown_questions(self._connection, found)
        return Page(shown, next=said.cursor(f"{place[0]} {place[1]}") if has_more else "")

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
        checked_limit(limit, MOST)
        said = Query("refusals", kind, self._visible)
        before = said.number(after) or NO_END
        place_of = self._connection.session.protocol.place_of
        found: list[Refusal] = []
        async with self._connection.replica() as replica:
            rows = replica.ask(ReplicaRecords).refused(before, limit=REFUSALS_EXAMINED)
        for seq, at_ms, subject, verdict in rows:
            place = place_of(subject)
            about = place.key if place is not None else None
            its_kind = about.kind if about is not None else ""
            if not is_below(its_kind, kind) or not self._sees(its_kind):
                continue
            one = Refusal(
                seq=seq,
                at_ms=at_ms,
                family=about.family if about is not None else "",
                kind=its_kind,
                name=about.name if about is not None else "",
                verdict=verdict.value,
            )
            found.append(one)
            if len(found) == limit:
                return Page(found, next=said.cursor(seq))
        is_cut = len(rows) == REFUSALS_EXAMINED
        return Page(found, next=said.cursor(rows[-1][0]) if is_cut else "")

    async def latest(self, *, since_ms: int, limit: int = MOST) -> list[Judged]:
        """The newest records since a time with their verdicts, oldest first; at most 2,000."""
        checked_limit(limit, LATEST)
        session = self._connection.session
        async with self._connection.replica() as replica:
            rows = replica.ask(ReplicaRecords).latest(since_ms * NANOSECONDS_PER_MS, limit=limit)
        opened = (Judged(session.open(record), verdict) for record, verdict in rows)
        places = ((one, one.opened.place) for one in opened)
        return [one for one, place in places if self._sees(place.key.kind if place else "")]

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
            self._connection.replica(), by=by, since_ms=since_ms, kind=kind, visible=self._visible
        )


__all__ = ["DocumentLine", "KindCounts", "Queries", "Refusal"]
