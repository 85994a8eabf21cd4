"""The mesh of `chaos extremes`: as `antiphon init` makes it, on one server or on three.

owner      hosts the gate and a full node, which coordinates and seals
observer   a member that may do everything; its full node reads through the gate
writers    members that may submit, claim, cancel, lock, remember and send below `x`
worker     a member that works on `x.work`

Everything but the servers runs in this process. Each part has a task of its own, so that it shows
which one was ended.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly import MeshConnection
from antiphon.assembly.hosted_mesh import coordinate, gatekeeping
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.engines.nats import Accounts, UserKey, server_files
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import Access, StateDirectory
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.worker.worker import WorkerSettings
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh
from bench.meshes.local_cluster import ClusterServer, found_mesh, free_ports
from chaos.cluster.participant import BroughtDown, Participant
from chaos.extremes.known import WORKED

HOST: Final = "owner's machine"
NAME: Final = "local"
"""What `found_mesh` calls a mesh."""
PATIENCE_S: Final = 240.0
RULES: Final = Rules(
    max_drift_ms=500,
    lease_min_ms=1_000,
    lease_ms=3_600_000,
    lease_ms_max=3_600_000,
    lease_max_ms=3_600_000,
    offer_after_ms=2_000,
    attempts=100,
)
"""Leases from a second to an hour; what a worker missed is offered again soon."""
BAR_S: Final = 1.0
"""At most one seal in this time, so that a run has many."""
WORKING: Final = ("claim", "schedule", "cancel", "memory", "lock", "message")
WRITERS: Final = (
    WORKING,
    WORKING,
    ("schedule", "memory", "lock", "break-lock", "message", "tempo"),
)
"""The rights of each writer. Of the delegations of one issuer to one key only eight are used."""

T = TypeVar("T")


class Host(Struct, frozen=True):
    """The owner's machine."""

    home: StateDirectory
    mesh: Mesh
    node: FullNode


class Target:
    """The mesh and its parts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = StateDirectory(directory / "owner")
        self.host: Host
        self.observer: FullNode
        self.writers: list[MeshConnection] = []
        self._participants: list[Participant[Any]] = []

    @property
    def nodes(self) -> tuple[FullNode, FullNode]:
        """The owner's full node, and the observer's."""
        return self.host.node, self.observer

    async def set_up(self) -> None:
        """Everybody has joined and works."""
        self.host = await self._start(HOST, lambda: _hosting(self.home))
        observer = await self.join("observer", ("all",), "*")
        self.observer = await self._start("observer's node", lambda: _replicating(observer))
        worker = await self.join("worker", ("claim", "schedule"), "x.*")
        await self._start("worker", lambda: _working(worker))
        for number, rights in enumerate(WRITERS):
            home = await self.join(f"writer{number}", rights, "x.*")
            writer = await self._start(
                f"connection of writer {number}", partial(assembly.join, home, "client")
            )
            await writer.session.sync_control()
            self.writers.append(writer)

    async def join(self, alias: str, can: tuple[str, ...], kinds: str) -> StateDirectory:
        """One more member."""
        home = StateDirectory(self.directory / alias)
        ticket = hosted_mesh.invite(self.home, Terms(can=can, kinds=(kinds,), alias=alias))
        await hosted_mesh.redeem(home, ticket, alias=alias)
        return home

    @asynccontextmanager
    async def newcomer(self, home: StateDirectory | None = None) -> AsyncIterator[MeshConnection]:
        """A light reader that has read nothing yet."""
        place = home or StateDirectory(self.directory / "observer")
        async with assembly.join(place, "client") as connection:
            await connection.session.sync_control()
            yield connection

    async def _start(self, called: str, place: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        participant = Participant(called, place, patience_s=PATIENCE_S)
        self._participants.append(participant)
        return await participant.start()

    def check(self) -> None:
        """`BroughtDown` if a part of the mesh ended."""
        for one in self._participants:
            one.check()

    @property
    def is_host_gone(self) -> bool:
        """Whether the owner's machine was brought down, and with it the gate."""
        return any(HOST in one for one in self.ended())

    def ended(self) -> list[str]:
        """The parts that were brought down, and by what."""
        told: list[str] = []
        for one in self._participants:
            try:
                one.check()
            except BroughtDown as down:
                told.append(str(down))
        return told

    async def tear_down(self) -> None:
        """Stop all parts, the last one first."""
        for participant in reversed(self._participants):
            await participant.stop()


@asynccontextmanager
async def _hosting(home: StateDirectory) -> AsyncIterator[Host]:
    """The owner's full node and gate, over a connection with all permissions."""
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(Mesh.open(home=home.path, role="client"))
        connection = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(home.replica, home, connection)
        )
        node = await stack.enter_async_context(
            assembly.replicating(connection, replica, caretaking=True, bar_s=BAR_S)
        )
        await coordinate(home, node.session)
        await stack.enter_async_context(gatekeeping(home, node.session))
        yield Host(home, mesh, node)


@asynccontextmanager
async def _replicating(home: StateDirectory) -> AsyncIterator[FullNode]:
    async with (
        assembly.join(home, "node") as connection,
        assembly.owned_replica(home.replica, home, connection) as replica,
        assembly.replicating(connection, replica, caretaking=True) as node,
    ):
        yield node


@asynccontextmanager
async def _working(home: StateDirectory) -> AsyncIterator[None]:
    async def work(*args: object, **_: object) -> int:
        return len(args)

    handlers = Handlers()
    handlers.register(WORKED, work)
    settings = WorkerSettings(slots=8, drain_s=0)
    async with (
        assembly.join(home, "worker", kinds=[WORKED]) as connection,
        assembly.working(connection, handlers.executors(), settings),
    ):
        yield


@asynccontextmanager
async def _secured_servers(home: StateDirectory, replicas: int) -> AsyncIterator[None]:
    """Servers with accounts and TLS, and a mesh on them with as many copies of its log."""
    home.make()
    accounts = Accounts.open(home.server, NAME)
    tls = server_files(home.server / "tls", ["127.0.0.1"])
    routes = free_ports(replicas) if replicas > 1 else []
    async with AsyncExitStack() as stack:
        servers = []
        for number in range(replicas):
            place = home.server if not number else home.server / f"server-{number + 1}"
            server = ClusterServer(place, routes, number, accounts=accounts, tls=tls)
            servers.append(await stack.enter_async_context(server))
        user = UserKey.new()
        jwt = accounts.user_jwt(
            user.public, None, expires_s=None, name="owner", issued_s=int(time.time())
        )
        access = Access(user=user.public, user_seed=user.seed, jwt=jwt)
        await found_mesh(home, servers, RULES, access=access, ca=tls.authority.read_text())
        yield


@asynccontextmanager
async def target_mesh(directory: Path, replicas: int) -> AsyncIterator[Target]:
    """The mesh, ready."""
    target = Target(directory)
    async with _secured_servers(target.home, replicas):
        try:
            await target.set_up()
            yield target
        finally:
            await target.tear_down()
