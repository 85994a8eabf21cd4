"""The composition root: the only place where an engine meets the runtime.

A `Station` is one process's place on a mesh: an engine connection, a key in use, and a `Peer`
over both. Everything that runs (worker, full node, client) is put together here from stations.

What only some processes need is imported where it is used: a command line that submits one job
should not first load an engine in memory and the worker.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from antiphon.core.rules import Rules
from antiphon.errors import Held, Misconfigured, Unavailable
from antiphon.runtime import founding
from antiphon.runtime.author import Author, Mark, NoMark
from antiphon.runtime.home import Access, Home, MeshFile
from antiphon.runtime.host import SystemClock, SystemEntropy
from antiphon.runtime.keys import SEED_BYTES, SeedKeyring
from antiphon.runtime.node import FullNode
from antiphon.runtime.peer import Peer
from antiphon.runtime.presence import Card, Presence
from antiphon.runtime.replica import Replica
from antiphon.runtime.services import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antiphon.engines.nats import LocalServer
    from antiphon.ports import Engine, EngineInfo, Keyring
    from antiphon.runtime.handlers import Handlers
    from antiphon.runtime.worker import Worker, WorkerSettings

Role = Literal["worker", "node", "dev"]


def installed_version() -> str:
    """The version of this installation."""
    try:
        return version("antiphon")
    except PackageNotFoundError:
        return "0+unknown"


class Station(Struct, frozen=True):
    """One process's place on a mesh."""

    peer: Peer
    keyring: Keyring
    alias: str

    @property
    def engine(self) -> Engine:
        """The engine connection."""
        return self.peer.engine


def _station(engine: Engine, mesh: str, keyring: Keyring, alias: str, mark: Mark) -> Station:
    wall = SystemClock()
    author = Author(mesh, keyring, wall, max_drift_ms=Rules().max_drift_ms, mark=mark)
    return Station(Peer(engine, author, wall, SystemEntropy()), keyring, alias)


# --- in memory --------------------------------------------------------------------------------


class MemoryMesh:
    """A mesh inside this process: nothing to install, nothing to clean up."""

    def __init__(self, *, name: str = "memory", rules: Rules | None = None) -> None:
        """Found it with a fresh owner key."""
        from antiphon.engines.memory import MemoryServer

        entropy = SystemEntropy()
        self._clock = SystemClock()
        self._server = MemoryServer(self._clock)
        self.owner = SeedKeyring(entropy.token(SEED_BYTES))
        recovery = SeedKeyring(entropy.token(SEED_BYTES))
        self.foundation = founding.found(
            self.owner,
            self._clock,
            name=name,
            recovery=recovery.did,
            rules=rules or Rules(authority="open"),
        )

    @asynccontextmanager
    async def station(self, alias: str, keyring: Keyring | None = None) -> AsyncIterator[Station]:
        """A place on this mesh with a key of its own (or the one given)."""
        from antiphon.engines.memory import MemoryEngine

        engine = MemoryEngine(self._server, self.foundation.mesh)
        try:
            await founding.lay(engine.log, self.foundation)
            own = keyring or SeedKeyring(SystemEntropy().token(SEED_BYTES))
            yield _station(engine, self.foundation.mesh, own, alias, NoMark())
        finally:
            await engine.close()


# --- on a server ------------------------------------------------------------------------------


@asynccontextmanager
async def join(home: Home, role: str, *, key: str | None = None) -> AsyncIterator[Station]:
    """A place on the mesh that a state directory describes.

    Takes the named key, or the first free one of the role: one process per key.
    """
    described, access = home.mesh(), home.access()
    entropy = SystemEntropy()
    held = home.key(key, entropy) if key else home.free_key(role, entropy)
    try:
        engine = await _connect(described, access, name=held.name)
        station = _station(engine, described.mesh, held.keyring, held.name, held.mark)
        try:
            yield station
        finally:
            await engine.close()
            station.peer.author.settle()
    finally:
        held.release()


async def engine_info(home: Home) -> EngineInfo:
    """What the engine says of itself, its durability included: that takes a moment to ask."""
    engine = await _connect(home.mesh(), home.access(), name="doctor", inspect=True)
    try:
        return await engine.info()
    finally:
        await engine.close()


async def _connect(
    described: MeshFile, access: Access, *, name: str, create: bool = False, inspect: bool = False
) -> Engine:
    from antiphon.engines.nats import Credentials, NatsEngine

    system = (
        Credentials(user=access.system_user, password=access.system_password)
        if inspect and access.system_user
        else None
    )
    return await NatsEngine.connect(
        described.engine,
        described.mesh,
        user=access.user,
        password=access.password,
        system=system,
        create=create,
        replicas=described.replicas,
        name=name,
    )


@asynccontextmanager
async def development_server(home: Home, *, port: int = 0) -> AsyncIterator[LocalServer]:
    """A server of our own on a loopback port (0: a free one), its files in the state directory."""
    from antiphon.engines.nats import LocalServer

    async with LocalServer(home.server, port=port) as server:
        yield server


async def found_on(home: Home, server: LocalServer, *, name: str, rules: Rules) -> MeshFile:
    """Found a mesh on a server, or come back to the one that this directory already has."""
    access = Access(
        user=server.user,
        password=server.password,
        system_user=server.system_credentials.user,
        system_password=server.system_credentials.password,
    )
    try:
        known = home.mesh()
    except Misconfigured:
        known = None
    if known is not None:
        described = MeshFile(mesh=known.mesh, name=known.name, engine=server.url)
        home.write(described, access)
        return described
    entropy = SystemEntropy()
    owner, recovery = home.key("owner", entropy), home.key("recovery", entropy)
    try:
        foundation = founding.found(
            owner.keyring, SystemClock(), name=name, recovery=recovery.keyring.did, rules=rules
        )
        described = MeshFile(mesh=foundation.mesh, name=name, engine=server.url)
        engine = await _connect(described, access, name="founder", create=True)
        try:
            await founding.lay(engine.log, foundation)
        finally:
            await engine.close()
        home.write(described, access)
    finally:
        owner.release()
        recovery.release()
    return described


# --- what runs on a station -------------------------------------------------------------------


@asynccontextmanager
async def working(
    station: Station, handlers: Handlers, settings: WorkerSettings
) -> AsyncIterator[Worker]:
    """A light worker beside a block; drained when the block ends."""
    from antiphon.runtime.worker import Worker

    if not handlers.kinds:
        raise Misconfigured(
            "no task is registered, so there is nothing to work on",
            hint='decorate a function with @mesh.task("example.add")',
        )
    worker = Worker(station.peer, handlers, settings)

    def card() -> Card:
        return _card(
            station,
            "worker",
            kinds=tuple(handlers.kinds),
            slots=settings.slots,
            busy=worker.busy,
            done=worker.done,
        )

    presence = Presence(station.peer, station.keyring, card)
    async with beside(worker.run(), presence.run(), ready=worker.ready, drain=worker.drain):
        yield worker


def _card(station: Station, role: Role, **fields: object) -> Card:
    return Card(
        mesh=station.peer.mesh,
        node=station.keyring.did,
        alias=station.alias,
        role=role,
        version=installed_version(),
        at_ms=station.peer.wall.now_ms(),
        **fields,  # type: ignore[arg-type]
    )


@asynccontextmanager
async def replicating(
    station: Station, replica: Replica, *, caretaking: bool
) -> AsyncIterator[FullNode]:
    """A full node beside a block, ready once it has caught up."""
    node = FullNode(station.peer, replica)

    def card() -> Card:
        return _card(station, "node", applied=node.applied)

    services = [node.run()]
    if caretaking:
        from antiphon.runtime.caretaker import Caretaker

        services += [
            Caretaker(node).run(),
            Presence(station.peer, station.keyring, card).run(),
        ]
    async with beside(*services, ready=node.ready):
        yield node


@asynccontextmanager
async def local_replica(home: Home, station: Station) -> AsyncIterator[Replica]:
    """The machine's replica, up to date: kept by whoever keeps it, or caught up right here."""
    mesh = station.peer.mesh
    try:
        lock = home.lock_replica()
    except Held:
        replica = Replica(home.replica, mesh=mesh, read_only=True)
        try:
            await _wait_for_writer(station, replica)
            yield replica
        finally:
            replica.close()
        return
    try:
        replica = Replica(home.replica, mesh=mesh)
        try:
            async with replicating(station, replica, caretaking=False):
                pass
            yield replica
        finally:
            replica.close()
    finally:
        os.close(lock)


async def _wait_for_writer(station: Station, replica: Replica, *, within_s: float = 5.0) -> None:
    newest = await station.peer.log.last()
    goal = newest.seq if newest else 0
    try:
        async with asyncio.timeout(within_s):
            while replica.refresh().seq < goal:  # noqa: ASYNC110 - the writer is another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise Unavailable(
            f"the replica stands at {replica.cursor.seq}, the log at {goal}",
            hint="another antiphon process keeps the replica and is behind; try again",
        ) from None


@asynccontextmanager
async def owned_replica(path: Path | str, home: Home | None, mesh: str) -> AsyncIterator[Replica]:
    """A replica that this process alone writes."""
    lock = home.lock_replica() if home is not None else -1
    try:
        replica = Replica(path, mesh=mesh)
        try:
            yield replica
        finally:
            replica.close()
    finally:
        if lock >= 0:
            os.close(lock)
