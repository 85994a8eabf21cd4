"""`mesh.dismissals`: takes dead jobs off the list of what needs somebody (docs/do/attention.md).

    await mesh.dismissals.group(kind="report", error="failed: ConnectionError")

The jobs stay on the log as they are. What is dismissed is kept in the engine, where all nodes of
the owner see it; members cannot, and `Rejected` says who can.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.state import Job
from antiphon.errors import Rejected
from antiphon.runtime.attention.dismissals import MOST_CHARACTERS, Dismissal, has_words
from antiphon.runtime.caller.holdings import holdings_of
from antiphon.runtime.replica.lane_lists import Lists, kind_and_below
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.dead_letters import DEAD_JOBS, end_of, letters_of
from antiphon.sdk.defaults import DEAD_LETTERS_MAX
from antiphon.sdk.presence.namespace import Presence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.sdk.connection.connection import Connection

MIN_END: Final = 6
"""Characters of the end of an id that name a node."""
LOOKED_AT: Final = 200
"""Jobs of which it is found out together whether they were retried."""


class Dismissals:
    """What people have dismissed."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.dismissals`."""
        self._connection = connection
        self._store = connection.dismissals

    @property
    def can_be_made(self) -> bool:
        """Whether this process reaches the place where dismissals are kept: members do not."""
        return self._connection.session.engine.messages is not None

    async def listed(self) -> list[Dismissal]:
        """Everything that is dismissed, the newest first."""
        found = (await self._store.read()).all
        return sorted(found, key=lambda one: -one.at_ms)

    async def jobs(self, jobs: Sequence[tuple[str, str]]) -> None:
        """Dismiss jobs, by kind and id; `Rejected` if one is no dead job."""
        self._store.require()
        async with self._connection.replica() as replica:
            replica.flush()
            for kind, job_id in jobs:
                job = replica.ask(ReplicaJobs).job(kind, job_id)
                if job is None or not job.is_dead_letter:
                    how = "is not known here" if job is None else f"is {job.state.value}"
                    raise Rejected(
                        f"{kind} {job_id[:8]} {how}: only jobs that failed, or that nobody ran in"
                        " time, can be dismissed",
                        reason="not_dead",
                        hint="antiphon jobs --failed lists them",
                    )
        await self._store.add([self._made(kind=kind, job=job_id) for kind, job_id in jobs])

    async def undo_jobs(self, jobs: Sequence[tuple[str, str]]) -> None:
        """List these jobs again; `Rejected` if one was not dismissed by itself."""
        self._store.require()
        dismissed = await self._store.read()
        for kind, job_id in jobs:
            if not any((one.kind, one.job) == (kind, job_id) for one in dismissed.all):
                raise Rejected(
                    f"{kind} {job_id[:8]} was not dismissed, or only with others of its kind",
                    reason="not_dismissed",
                    hint="antiphon dismiss lists what is dismissed, as it was typed",
                )
        await self._store.remove([self._made(kind=kind, job=job_id) for kind, job_id in jobs])

    async def group(self, *, kind: str = "", error: str = "") -> int:
        """Dismiss the dead jobs of a kind and those below it, with an error; how many there were.

        `error` is words that their outcome and error have one after the other, as `attention`
        shows them. What fails from now on is listed. Without such jobs nothing is dismissed.
        """
        self._store.require()
        rule = self._rule(kind, error)
        count = await self._count(rule)
        if count:
            await self._store.add([rule])
        return count

    async def undo_group(self, *, kind: str = "", error: str = "") -> None:
        """List the jobs of a group again that was dismissed with just this kind and error."""
        self._store.require()
        rule, dismissed = self._rule(kind, error), await self._store.read()
        if all(one.key != rule.key for one in dismissed.all):
            raise Rejected(
                "no group was dismissed with just this kind and error",
                reason="not_dismissed",
                hint="antiphon dismiss lists what is dismissed, as it was typed",
            )
        await self._store.remove([rule])

    async def node(self, node: str) -> str:
        """Dismiss a node that died, by its alias or its id; its alias."""
        self._store.require()
        _, dead = await Presence(self._connection).live_and_dead()
        found = [
            one.card for one in dead if one.card.alias == node or _is_called(one.card.node, node)
        ]
        if not found:
            raise Rejected(
                f"no node that died is called {node!r}",
                reason="no_node",
                hint="antiphon nodes lists those that died within the last day",
            )
        await self._store.add([self._made(node=card.node) for card in found])
        return found[0].alias

    async def undo_node(self, node: str) -> str:
        """List a node again that was dismissed; its alias."""
        self._store.require()
        async with self._connection.replica() as replica:
            aliases = replica.known_nodes.aliases()
        dismissed = [one for one in (await self._store.read()).all if one.node]
        found = [
            one for one in dismissed if aliases.get(one.node) == node or _is_called(one.node, node)
        ]
        if not found:
            raise Rejected(
                f"no node {node!r} was dismissed",
                reason="not_dismissed",
                hint="antiphon dismiss lists what is dismissed",
            )
        await self._store.remove(found)
        return aliases.get(found[0].node, node)

    def _rule(self, kind: str, error: str) -> Dismissal:
        if not kind and not error:
            raise Rejected("a group needs a kind or an error", reason="group")
        if max(len(kind), len(error)) > MOST_CHARACTERS:
            raise Rejected(
                f"a kind or an error has at most {MOST_CHARACTERS} characters", reason="text"
            )
        return self._made(kind=kind, error=error)

    def _made(self, *, kind: str = "", error: str = "", job: str = "", node: str = "") -> Dismissal:
        session = self._connection.session
        return Dismissal(
            at_ms=session.wall.now_ms(),
            by=session.author.did,
            kind=kind,
            error=error,
            job=job,
            node=node,
        )

    async def _count(self, rule: Dismissal) -> int:
        """How many dead jobs a rule takes off the list."""
        session, dismissed = self._connection.session, await self._store.read()
        name = holdings_of(session).name
        async with self._connection.replica() as replica:
            replica.flush()

            def why(job: Job) -> str:
                return end_of(replica, job, name).why

            def is_new(job: Job) -> bool:
                has_error = not rule.error or has_words(why(job), rule.error)
                return job.ended_ms <= rule.at_ms and has_error and not dismissed.covers(job, why)

            part = Lists(replica, session.control).shared(
                DEAD_JOBS, among=kind_and_below(rule.kind), only=is_new, limit=DEAD_LETTERS_MAX
            )
            jobs, count = [row.state for row in part.rows], 0
            for at in range(0, len(jobs), LOOKED_AT):
                letters = letters_of(replica, jobs[at : at + LOOKED_AT], name)
                count += sum(letter.retried_as is None for letter in letters)
                await asyncio.sleep(0)
        return count


def _is_called(did: str, text: str) -> bool:
    """Whether somebody means this node by its id, or by the end of it."""
    return len(text) >= MIN_END and did.endswith(text)


__all__ = ["Dismissal", "Dismissals"]
