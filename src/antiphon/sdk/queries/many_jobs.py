"""Acts on many jobs: which ones, and each of them, a bounded number at the same time.

What was done stays done. Jobs that were cancelled are no longer open, and jobs that were retried
are not retried again, so whoever is interrupted does the same again to go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct

from antiphon.core.authority.parties import party_behind, whose
from antiphon.core.families.jobs.state import State
from antiphon.core.party_turns import by_party, in_turns
from antiphon.errors import AntiphonError
from antiphon.runtime.attention.dismissals import has_words
from antiphon.runtime.caller.holdings import holdings_of
from antiphon.runtime.replica.job_pages import EVERYTHING, JobPages
from antiphon.runtime.replica.lane_lists import Lists, kind_and_below
from antiphon.sdk.dead_letters import DEAD_JOBS, letters_of
from antiphon.sdk.defaults import DEAD_LETTERS_MAX
from antiphon.sdk.jobs.job_lookup import handle_on
from antiphon.sdk.queries.job_query import JobQuery, job_filter
from antiphon.sdk.queries.namespace import Queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Unpack

    from antiphon.core.authority.control import Control
    from antiphon.core.families.jobs.state import Job
    from antiphon.runtime.replica.job_pages import JobFilter
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.connection.namespace import Connected
    from antiphon.sdk.queries.job_query import JobFilters

AT_ONCE: Final = 16
LOOKED_AT: Final = 200
"""Jobs of which it is found out together whether they were retried."""

T = TypeVar("T")


class Chosen(Struct, frozen=True):
    """The jobs that something is to be done with, newest first."""

    jobs: list[Job]
    has_more: bool
    """Whether there are more than that."""


class Done(Struct, Generic[T], frozen=True):
    """What became of one of them."""

    job: Job
    result: T | None
    problem: AntiphonError | None


async def cancellable(mesh: Connected, *, limit: int, **filters: Unpack[JobFilters]) -> Chosen:
    """Jobs that have not ended."""
    filters.setdefault("state", [one.value for one in State if not one.is_terminal])
    page = await Queries(mesh.connection).jobs(limit=limit, **filters)
    return Chosen([job for job in page if not job.is_terminal], bool(page.next))


async def retryable(
    mesh: Connected, *, limit: int, error: str = "", **filters: Unpack[JobFilters]
) -> Chosen:
    """Jobs that failed or expired and were not retried yet.

    With `error`, those whose outcome and error have these words one after the other. For those that
    were retried, their retry is checked instead. Cancelled jobs are left out: their result is not
    wanted. Of more than the limit, each party's newest are taken in turn.
    """
    filters.setdefault("state", [State.FAILED.value, State.ABORTED.value])
    connection, found = mesh.connection, list["Job"]()
    control = connection.session.control

    def party(job: Job) -> str:
        return party_behind(control, whose(job.call_auth, job.scheduler))

    name = holdings_of(connection.session).name
    async with connection.replica() as replica:
        wanted = await job_filter(connection, JobQuery(**filters), replica, EVERYTHING)
        dead = _dead(replica, control, wanted)
        turns = in_turns(by_party(dead, party), len(dead))
        for at in range(0, len(turns), LOOKED_AT):
            letters = letters_of(replica, turns[at : at + LOOKED_AT], name)
            found += [
                letter.job
                for letter in letters
                if letter.retried_as is None and (not error or has_words(letter.why, error))
            ]
            if len(found) > limit:
                break
            await asyncio.sleep(0)
    chosen = sorted(found[:limit], key=lambda job: -job.scheduled_seq)
    return Chosen(chosen, len(found) > limit or len(dead) == DEAD_LETTERS_MAX)


def _dead(replica: Replica, control: Control, wanted: JobFilter) -> list[Job]:
    """Jobs without a result that are wanted, newest first; where there are too many, in turns."""
    if wanted.text or wanted.graph is not None:  # they are found by that, and are few
        found = replica.ask(JobPages).every(wanted, limit=DEAD_LETTERS_MAX)
        return [job for job in found if job.is_dead_letter]
    part = Lists(replica, control).shared(
        DEAD_JOBS,
        among=kind_and_below(wanted.kind),
        only=wanted.is_met_by,
        limit=DEAD_LETTERS_MAX,
    )
    return [one.state for one in part.rows]


async def cancel_each(mesh: Connected, jobs: Sequence[Job], reason: str) -> list[Done[Job]]:
    """Cancel these jobs; one that cannot be cancelled does not stop the others."""
    connection = mesh.connection
    return await _each(jobs, lambda job: handle_on(connection, job.kind, job.id).cancel(reason))


async def retry_each(mesh: Connected, jobs: Sequence[Job]) -> list[Done[Any]]:
    """Submit these jobs again; the handles of the new ones."""
    return await _each(jobs, lambda job: handle_on(mesh.connection, job.kind, job.id).retry())


async def _each(jobs: Sequence[Job], act: Callable[[Job], Awaitable[T]]) -> list[Done[T]]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(job: Job) -> Done[T]:
        async with slots:
            try:
                return Done(job, await act(job), None)
            except AntiphonError as problem:
                return Done(job, None, problem)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(job)) for job in jobs]
    return [task.result() for task in tasks]


__all__ = ["Chosen", "Done", "cancel_each", "cancellable", "retry_each", "retryable"]
