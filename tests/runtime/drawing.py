"""Workers that draw for their jobs, on the memory engine in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from antiphon import assembly
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobClaim
from antiphon.core.families.mesh.ops import MeshRules, RulesBody
from antiphon.core.policy import selection
from antiphon.core.policy.selection import Candidate, Need
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity import genesis
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.presence.worker_presence import Traits
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.worker.worker import Worker, WorkerSettings
from antiphon.testing.engine_suite.harness import whole_lane
from tests.runtime.meshes import call
from tests.runtime.timeless import TimelessMesh

KIND = "test.draw"
WINDOW_S = 1.5
DRAWN = Rules(authority="open", selection=(("test.draw", "rendezvous"),))
QUEUED = Rules(authority="open")


class Ran:
    """One run of a handler."""

    def __init__(self, job_id: str, by: str, at_s: float) -> None:
        self.job_id, self.by, self.at_s = job_id, by, at_s


class DrawingMesh:
    """A mesh, its owner as the caller, and any number of workers."""

    def __init__(self, timeless: TimelessMesh, rules: Rules, stack: AsyncExitStack) -> None:
        self.timeless = timeless
        self.stack = stack
        timeless.signed_genesis = genesis.sign(
            timeless.owner, timeless.wall, name="test", recovery=timeless.owner.did, rules=rules
        )
        self.runs: list[Ran] = []
        self.called: dict[str, float] = {}
        self.takes_s = 0.05

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def open(self) -> None:
        self.owner = await self.timeless.connection("owner", self.timeless.owner)

    async def worker(
        self, *, slots: int = 4, labels: tuple[str, ...] = (), weight: int = 1, kind: str = KIND
    ) -> Worker:
        connection = await self.timeless.connection("worker")

        async def handler(*_: object, ctx: Any) -> str:
            self.runs.append(Ran(ctx.job_id, connection.keyring.did, self.now_s))
            await asyncio.sleep(self.takes_s)
            return "done"

        handlers = Handlers()
        handlers.register(kind, handler)
        settings = WorkerSettings(
            slots=slots, drain_s=1, traits=Traits(labels=labels, weight=weight)
        )
        return await self.stack.enter_async_context(
            assembly.working(connection, handlers.executors(), settings)
        )

    async def node(self) -> FullNode:
        connection = await self.timeless.connection("node")
        replica = Replica(":memory:", mesh=connection.session.mesh)
        self.stack.callback(replica.close)
        return await self.stack.enter_async_context(
            assembly.replicating(connection, replica, caretaking=True)
        )

    async def call(self, *args: object, kind: str = KIND, **fields: Any) -> str:
        called = await call(self.owner.session, *args, kind=kind, **fields)
        self.called[called.id] = self.now_s
        return called.id

    async def set_rules(self, rules: Rules) -> None:
        await asyncio.sleep(1)
        await write_one(self.owner.session, Intent(MeshRules, RulesBody(rules=rules)))

    async def need(self, job: str, kind: str = KIND) -> Need:
        session = self.owner.session
        (record,) = await whole_lane(
            session.log, [job_subjects.call(session.mesh, "normal", kind, job)]
        )
        return Need(kind=kind, job_id=job, seed=selection.seed_of(record.payload))

    async def order(self, job: str, workers: list[Worker]) -> list[str]:
        """Who should claim a job, by the draws alone."""
        candidates = [
            Candidate(
                did=worker.session.author.did,
                kinds=(KIND,),
                weight=worker.settings.traits.weight,
            )
            for worker in workers
        ]
        need = await self.need(job)
        return [drawn.candidate.did for drawn in selection.ranked(need, candidates)]

    async def claims(self, job: str, kind: str = KIND) -> int:
        """How many claims were written for a job."""
        view = await self.owner.session.read_lane(kind, job)
        return sum(isinstance(one.opened.op, JobClaim) for one in view.history)

    async def state(self, job: str, kind: str = KIND) -> str:
        view = await self.owner.session.read_lane(kind, job)
        return view.lane.job.state.value if view.lane.job else "unknown"

    def started_after_s(self, job: str) -> float:
        return next(ran.at_s for ran in self.runs if ran.job_id == job) - self.called[job]

    def who_ran(self, job: str) -> str:
        (ran,) = (ran for ran in self.runs if ran.job_id == job)
        return ran.by


@asynccontextmanager
async def drawing(timeless: TimelessMesh, rules: Rules = DRAWN) -> AsyncIterator[DrawingMesh]:
    async with AsyncExitStack() as stack:
        mesh = DrawingMesh(timeless, rules, stack)
        await mesh.open()
        yield mesh
