"""The jobs around a job: those that it waits for, and those that wait for it.

Read from this machine's replica, a bounded number of them in each direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from antiphon.runtime.replica.replica_jobs import ReplicaJobs

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job
    from antiphon.runtime.replica.replica import Replica

DEPTH: Final = 4
SIDE_BY_SIDE: Final = 8
"""Neighbours of one job that are shown; the others are counted."""
MOST: Final = 60
"""Jobs that are shown in one direction."""
COUNTED: Final = 1_100


class Neighbour(Struct, frozen=True):
    """A job near another one, and what is beyond it in the same direction."""

    kind: str
    id: str
    state: str
    """Empty: this machine's replica does not have it."""
    beyond: tuple[Neighbour, ...] = ()
    more: int = 0
    """Further jobs in that direction that are not listed."""
    is_shown: bool = False
    """Whether it was listed before, with what is beyond it."""


class Around(Struct, frozen=True):
    """A job's neighbours in both directions."""

    before: tuple[Neighbour, ...] = ()
    more_before: int = 0
    after: tuple[Neighbour, ...] = ()
    more_after: int = 0

    def __bool__(self) -> bool:
        return bool(self.before or self.after)


class HasReplica(Protocol):
    """A mesh, as far as local reads are concerned."""

    def replica(self) -> AbstractAsyncContextManager[Replica]:
        """The local replica, up to date."""


async def around(mesh: HasReplica, job: Job) -> Around:
    """The graph around a job; empty for a job that stands alone."""
    async with mesh.replica() as replica:
        before, more_before = _walk(job, _predecessors(replica))
        after, more_after = _walk(job, _successors(replica))
    return Around(before, more_before, after, more_after)


Found = tuple[tuple[str, str], "Job | None"]
Look = Callable[["Job"], Iterable[Found]]


def _predecessors(replica: Replica) -> Look:
    def look(job: Job) -> Iterable[Found]:
        for key in dict.fromkeys((*job.after, *job.children)):
            yield key, replica.ask(ReplicaJobs).job(*key)

    return look


def _successors(replica: Replica) -> Look:
    def look(job: Job) -> Iterable[Found]:
        for one in replica.ask(ReplicaJobs).followers(job.kind, job.id, limit=COUNTED):
            yield (one.kind, one.id), one

    return look


def _walk(job: Job, look: Look) -> tuple[tuple[Neighbour, ...], int]:
    shown = {(job.kind, job.id)}

    def level(of: Job, depth: int) -> tuple[tuple[Neighbour, ...], int]:
        listed, more = list[Neighbour](), 0
        for key, one in look(of):
            if len(listed) >= SIDE_BY_SIDE or len(shown) > MOST:
                more += 1
                continue
            is_shown = key in shown
            shown.add(key)
            beyond: tuple[Neighbour, ...] = ()
            further = 0
            if one is not None and not is_shown and depth < DEPTH:
                beyond, further = level(one, depth + 1)
            elif one is not None and not is_shown:
                further = sum(1 for _ in look(one))
            state = one.state.value if one is not None else ""
            listed.append(Neighbour(*key, state, beyond, further, is_shown))
        return tuple(listed), more

    return level(job, 1)


__all__ = ["Around", "Neighbour", "around"]
