"""The mesh of `chaos hostile`: secured, with one honest worker and one hostile, same rights.

owner     hosts the server, the gate and a full node, and calls jobs
honest    a machine that may claim `render.*`, and works
hostile   another that may claim `render.*`, with a real login and a key of its own
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly import MeshConnection
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.worker.worker import WorkerSettings
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh

KIND: Final = "render.frame"
WORK_S: Final = 0.05
SLOTS: Final = 8
RULES: Final = Rules(
    max_drift_ms=500,
    lease_min_ms=1_000,
    lease_ms=1_000,
    lease_ms_max=2_000,
    offer_after_ms=2_000,
)
"""Short leases and early repeats, so that a run can wait for them; attempts are the default."""


class TargetMesh(Struct, frozen=True):
    """The mesh and its members."""

    owner: Mesh
    node: FullNode
    hostile: MeshConnection
    home: StateDirectory
    """The owner's, which may read everything."""
    hostile_home: StateDirectory

    def has_ended(self, job: str) -> bool:
        known = self.node.replica.ask(ReplicaJobs).job(KIND, job)
        return known is not None and known.is_terminal


async def work(number: int) -> int:
    await asyncio.sleep(WORK_S)
    return number


@asynccontextmanager
async def target_mesh(directory: Path) -> AsyncIterator[TargetMesh]:
    """Every member has joined and works."""
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1", "localhost"))
    async with AsyncExitStack() as stack:
        home = directory / "owner"
        hosted = await stack.enter_async_context(
            hosted_mesh.found_and_host(home, name="hostile", listen=listen, rules=RULES)
        )
        owner = await stack.enter_async_context(Mesh.open(home=home, role="client"))
        node = await stack.enter_async_context(owner.node())
        await hosted.coordinate(node)
        await stack.enter_async_context(hosted.gate(node))
        stations = []
        for alias in ("honest", "hostile"):
            member = StateDirectory(directory / alias)
            terms = Terms(can=("claim",), kinds=("render.*",), alias=alias)
            await hosted_mesh.redeem(
                member, hosted_mesh.invite(StateDirectory(home), terms), alias=alias
            )
            stations.append(
                await stack.enter_async_context(assembly.join(member, "worker", kinds=[KIND]))
            )
        honest, hostile = stations
        handlers = Handlers()
        handlers.register(KIND, work)
        await stack.enter_async_context(
            assembly.working(honest, handlers.executors(), WorkerSettings(slots=SLOTS, drain_s=0))
        )
        await hostile.session.sync_control()
        yield TargetMesh(
            owner, node, hostile, StateDirectory(home), StateDirectory(directory / "hostile")
        )
