"""The mesh of `chaos liar`: secured, with members that work, honestly or not.

owner     hosts the server, the gate and the coordinator, and submits jobs
members   machines that may claim `sum.*`, each by a delegation of the owner; one may run several
          workers, which have keys of their own
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import assembly
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.families.jobs.ops import JobComplete, JobSchedule
from antiphon.core.families.jobs.state import Job
from antiphon.core.manifest import job_id
from antiphon.errors import Unavailable
from antiphon.runtime.coordinator.quorum_children import QuorumChildren
from antiphon.runtime.executors.handler_call import call_of
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.worker.worker import WorkerSettings
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh

KIND: Final = "sum.squares"
ROUND_S: Final = 0.02

Answer = Callable[[int], int]


def truth(number: int) -> int:
    """The sum of the first squares, by its formula."""
    return number * (number + 1) * (2 * number + 1) // 6


def lie(number: int) -> int:
    """Plausible, and wrong."""
    return truth(number) + 1


class Crew(Struct, frozen=True):
    """A member and how its workers answer."""

    alias: str
    answer: Answer | None
    """None: they compute nothing, and repeat what another replica's worker has answered."""
    workers: int = 1


class Rounds:
    """Holds the runs of a job until enough of them have begun, so that each worker has one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._began: dict[int, int] = {}
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, alias: str) -> asyncio.Event:
        """Keep the runs of one member from ending until the event is set."""
        self._held[alias] = asyncio.Event()
        return self._held[alias]

    async def wait(self, alias: str, number: int) -> None:
        """Wait for the others."""
        self._began[number] = self._began.get(number, 0) + 1
        while self._began[number] < self.size:
            await asyncio.sleep(ROUND_S)
        if alias in self._held:
            await self._held[alias].wait()


class TargetMesh(Struct, frozen=True):
    """The mesh and its members."""

    owner: Mesh
    node: FullNode
    parties: dict[str, str]
    """The key of each member's machine, by its alias."""

    def children(self, job: str) -> list[Job]:
        """The replicas of a job."""
        view = QuorumChildren(self.node.replica, self.node.session)
        parent = view.parent(KIND, job)
        return view.children(parent) if parent is not None else []


@asynccontextmanager
async def target_mesh(
    directory: Path, crews: list[Crew], rounds: Rounds
) -> AsyncIterator[TargetMesh]:
    """Every member has joined and works."""
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1", "localhost"))
    async with AsyncExitStack() as stack:
        home = directory / "owner"
        hosted = await stack.enter_async_context(
            hosted_mesh.found_and_host(home, name="liar", listen=listen)
        )
        owner = await stack.enter_async_context(Mesh.open(home=home, role="client"))
        node = await stack.enter_async_context(owner.node())
        await hosted.coordinate(node)
        await stack.enter_async_context(hosted.gate(node))
        parties = {}
        for crew in crews:
            member = StateDirectory(directory / crew.alias)
            terms = Terms(can=("claim",), kinds=("sum.*",), alias=crew.alias)
            ticket = hosted_mesh.invite(StateDirectory(home), terms)
            await hosted_mesh.redeem(member, ticket, alias=crew.alias)
            parties[crew.alias] = member.signer("machine").did
            for _ in range(crew.workers):
                await stack.enter_async_context(_working(member, crew, rounds))
        yield TargetMesh(owner, node, parties)


@asynccontextmanager
async def _working(member: StateDirectory, crew: Crew, rounds: Rounds) -> AsyncIterator[None]:
    """A worker with one slot and a key of its own."""
    handlers = Handlers()
    settings = WorkerSettings(slots=1, drain_s=0)
    async with assembly.join(member, "worker", kinds=[KIND]) as connection:

        async def work(number: int) -> int:
            await rounds.wait(crew.alias, number)
            if crew.answer is not None:
                return crew.answer(number)
            return await copied_answer(connection.session, number)

        handlers.register(KIND, work)
        async with assembly.working(connection, handlers.executors(), settings):
            yield


async def copied_answer(session: Session, number: int) -> int:
    """What the first other replica answered, from what a worker of this kind may read."""
    replicas: set[str] = set()
    async with session.log.follow(0) as batches:
        async for batch in batches:
            for op in (session.open(record).op for record in batch):
                if isinstance(op, JobSchedule) and op.body.replica is not None:
                    if call_of(op.body.manifest)[0] == [number]:
                        replicas.add(job_id(op.body.manifest))
                elif isinstance(op, JobComplete) and op.body.job in replicas:
                    return int(json.loads(op.body.outputs[0].text or "0"))
    raise Unavailable("the log ended")
