"""Which jobs are wanted, as people say it, and as a replica is asked for it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict

from msgspec import Struct

from antiphon.core.families.jobs.state import State
from antiphon.core.families.plans.state import plan_key
from antiphon.errors import Misconfigured
from antiphon.runtime.replica.job_pages import NO_END, JobFilter
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from antiphon.sdk.authority.holdings import find_node, who
from antiphon.sdk.defaults import MOST_LISTED
from antiphon.sdk.durations import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.connection.connection import Connection

VERSIONS: Final = 64
"""Versions of one plan whose jobs are found."""


class JobFilters(TypedDict, total=False):
    """What `Mesh.jobs` can be asked for; all of it has to be true of a job."""

    state: str | Iterable[str]
    """`waiting`, `pending`, `claimed`, `running`, `succeeded`, `failed`, `aborted`, or several."""
    kind: str
    """This kind and the kinds below it."""
    since: datetime | timedelta | float | str
    """Submitted then or later: a time, or how long ago (`"2h"`)."""
    until: datetime | timedelta | float | str
    """Submitted before then."""
    by: str
    """Who submitted it: a did:key, an alias."""
    worker: str
    """Who holds it, or ran it last."""
    label: str
    """The label that limits it."""
    plan: str
    """The name of the plan that it was derived from."""
    text: str
    """Words of its newest error; the last one may be the beginning of a word."""
    graph: str
    """A job's id: the jobs that it waited for and that waited for it, and so on."""


class JobQuery(Struct, frozen=True, kw_only=True):
    """Which jobs are wanted, in people's words; see `JobFilters`."""

    state: Any = ()
    kind: str = ""
    since: Any = None
    until: Any = None
    by: str = ""
    worker: str = ""
    label: str = ""
    plan: str = ""
    text: str = ""
    graph: str = ""

    @property
    def states(self) -> tuple[State, ...]:
        """The states that are wanted; `Misconfigured` if there is no such state."""
        names = [self.state] if isinstance(self.state, str) else list(self.state or ())
        known = {state.value: state for state in State}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise Misconfigured(
                f"{unknown[0]!r} is not a state of a job", hint=f"states are {', '.join(known)}"
            )
        return tuple(known[name] for name in dict.fromkeys(names))

    @property
    def is_all(self) -> bool:
        """Whether it asks for nothing in particular."""
        return self == JobQuery()


def checked_limit(limit: int, most: int = MOST_LISTED) -> int:
    """`limit`, or `Misconfigured` if a list cannot be that long."""
    if not 1 <= limit <= most:
        raise Misconfigured(f"a limit is between 1 and {most:,}, not {limit}")
    return limit


async def job_filter(
    connection: Connection, query: JobQuery, replica: Replica, visible: Sequence[str]
) -> JobFilter:
    """The same as a replica is asked for it: names are looked up, times are counted."""
    now_ms = connection.session.wall.now_ms()
    submitter = worker = ""
    if query.by or query.worker:
        held = await who(connection)
        submitter = find_node(held, query.by) if query.by else ""
        worker = find_node(held, query.worker) if query.worker else ""
    if query.text:
        replica.texts.require()
    return JobFilter(
        states=query.states,
        kind=query.kind,
        since_ms=_moment_ms(query.since, now_ms),
        until_ms=_moment_ms(query.until, now_ms),
        submitter=submitter,
        worker=worker,
        label=query.label,
        plans=_versions(connection, replica, query.plan) if query.plan else None,
        text=query.text,
        graph=_root(replica, query.graph, visible) if query.graph else None,
    )


def _moment_ms(moment: Any, now_ms: int) -> int:
    """A time in milliseconds, given as itself or as how long ago it was; 0 for None."""
    if moment is None:
        return 0
    if isinstance(moment, datetime):
        return round(moment.timestamp() * 1000)
    return max(1, now_ms - round(seconds(moment) * 1000))


def _versions(connection: Connection, replica: Replica, name: str) -> tuple[str, ...]:
    """The op ids of all plans of a name, those that were replaced or dropped included."""
    found: list[str] = []
    for kind in replica.ask(ReplicaPlans).kinds_named(name, limit=VERSIONS):
        records = replica.accepted_before(plan_key(kind, name), NO_END, limit=VERSIONS)
        found += [connection.session.open(one.record).op_id for one in records]
    return tuple(found)


def _root(replica: Replica, text: str, visible: Sequence[str]) -> tuple[str, str]:
    from antiphon.sdk.jobs.job_lookup import one_job

    job = one_job(replica, text, kinds=visible)
    return job.kind, job.id


__all__ = ["JobFilters", "JobQuery", "checked_limit", "job_filter"]
