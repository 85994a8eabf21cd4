"""A mesh on the memory engine in virtual time: minutes of silence cost nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from antiphon.assembly import MeshConnection
from antiphon.core.authority.rules import Rules
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.presence.cards import Card
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.presence.roll_call import OwnPresence
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.services import beside
from antiphon.testing.host_clock import HostClock, SeededEntropy
from antiphon.testing.virtual_time import new_loop
from tests.runtime.meshes import EPOCH_MS


class TimelessMesh:
    """One mesh with its owner; `wall` is everybody's clock."""

    def __init__(self, loop: Any) -> None:
        self.wall = HostClock(loop, epoch_ms=EPOCH_MS)
        self.entropy = SeededEntropy("timeless")
        self.server = MemoryServer(self.wall)
        self.owner = SeedKeyring(self.entropy.token(32))
        rules = Rules(authority="open")
        self.signed_genesis = genesis.sign(
            self.owner, self.wall, name="test", recovery=self.owner.did, rules=rules
        )

    async def connection(self, alias: str, keyring: SeedKeyring | None = None) -> MeshConnection:
        engine = MemoryEngine(self.server, self.signed_genesis.mesh)
        await genesis.write(engine.log, self.signed_genesis)
        key = keyring or SeedKeyring(self.entropy.token(32))
        author = Author(self.signed_genesis.mesh, key, self.wall, max_drift_ms=2_000, mark=NoMark())
        session = Session(engine, author, self.wall, self.entropy)
        await session.sync_control()
        return MeshConnection(session, key, alias)

    async def designate(self, owner: MeshConnection, node: str) -> None:
        """A second later: no author signs two ops with one timestamp."""
        await asyncio.sleep(1)
        session, body = owner.session, CoordinatorBody(node=node)
        await write_one(session, Intent(MeshCoordinator, body))


@asynccontextmanager
async def following(connection: MeshConnection) -> AsyncIterator[FullNode]:
    """A full node with no chores."""
    replica = Replica(":memory:", mesh=connection.session.mesh)
    try:
        node = FullNode(connection.session, replica)
        async with beside(node.run(), ready=node.ready):
            yield node
    finally:
        replica.close()


@asynccontextmanager
async def answering(connection: MeshConnection) -> AsyncIterator[None]:
    """Answer roll calls while the block runs."""

    def card() -> Card:
        return Card(
            node=connection.keyring.did,
            alias=connection.alias,
            role="node",
            version="0",
            at_ms=connection.session.wall.now_ms(),
        )

    async with beside(OwnPresence(connection.session, connection.keyring, card).run()):
        await asyncio.sleep(0)
        yield


def in_no_time(story: Callable[[TimelessMesh], Awaitable[None]]) -> None:
    """Run a story to its end, whatever time it takes in there."""
    loop = new_loop()
    try:
        loop.run_until_complete(story(TimelessMesh(loop)))
    finally:
        loop.close()
    assert loop.problems == []
