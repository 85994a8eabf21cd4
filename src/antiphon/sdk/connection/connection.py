"""What the SDK's own parts share: the session, the key, the replica, the artifacts, the beats.

`Mesh` opens and closes it, and every namespace is made with it. It outlives a block of
`async with mesh`: it is there before the mesh is opened, and what needs the log raises until then.
Programs use `Mesh`.
"""

from __future__ import annotations

import asyncio
import copy
import os
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from antiphon.assembly import mesh_connection
from antiphon.core.record.ids import DEFAULT_AGENT
from antiphon.errors import Held, Misconfigured, Unavailable, is_away
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.log.acting import is_for_others
from antiphon.runtime.log.breaker_guard import guarding
from antiphon.sdk.connection.connection_outbox import ConnectionOutbox
from antiphon.sdk.environment import read_environment
from antiphon.sdk.handle import MOVE_INTO_BLOCK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from antiphon.assembly import MemoryMesh, MeshConnection
    from antiphon.assembly.mesh_connection import KeyInUse
    from antiphon.core.policy.circuit_breaker import CircuitBreaker
    from antiphon.core.presence.cards import Card
    from antiphon.ports import Engine, Keyring
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.attention.dismissals import DismissalStore
    from antiphon.runtime.identity.state_directory import StateDirectory
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.outbox.outbox_sender import Archived
    from antiphon.runtime.presence.live_nodes import RecentCards
    from antiphon.runtime.replica.replica import Replica
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.tempo.tempo_metrics import TempoMetrics
    from antiphon.sdk.environment import Environment

EngineName = Literal["nats", "memory", "http"]
NO_CLAIM: Final = (
    "a worker needs a connection: only the log says who has a job, so claiming one does not wait in"
    " the outbox"
)


class HttpNode(NamedTuple):
    """The node through which a mesh is reached over HTTP."""

    url: str
    mesh: str
    ca: Path | None = None


async def _in_no_archive(_kind: str, _job_id: str) -> bool:
    return False


class Declared:
    """What a program declared, open or not: its tasks, their options, what it planned."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.handlers = Handlers()
        self.options: dict[str, dict[str, Any]] = {}
        """The options of each task, by its kind."""
        self.planned: list[Any] = []
        """What decorators planned; of the type that `mesh.plans` keeps here."""


class Connection:
    """One process's connection to a mesh."""

    def __init__(  # noqa: PLR0913 - what a program may say
        self,
        *,
        engine: EngineName,
        home: Path | None,
        role: str,
        key: str | None,
        agent: str,
        offline: bool = False,
        node: HttpNode | None = None,
    ) -> None:
        """Nothing connects before `open`. `node` is where the engine is HTTP."""
        self.engine_name: EngineName = engine
        self._node = node
        self.agent = agent
        """The name of this process's agent on its node."""
        self.declared = Declared()
        self.on_open: list[Callable[[], None]] = []
        """Called whenever it was opened."""
        self.memory: MemoryMesh | None = None
        self.given_memory: MemoryMesh | None = None  # a test's
        self.memory_replica: Replica | None = None
        self.node_replica: Replica | None = None
        self._explicit_home = home
        self._role = role
        self._key = key
        self._stack = AsyncExitStack()
        self._opened: MeshConnection | None = None
        self._artifacts: Artifacts | None = None
        self._clock: BeatClock | None = None
        self._dismissals: DismissalStore | None = None
        self._recent: RecentCards | None = None
        self._was_open = False
        self._breaker: CircuitBreaker | None = None
        self.is_offline_allowed = offline
        """Whether it opens, and keeps what is written, while the engine is unreachable."""
        self.archived: Archived = _in_no_archive
        """What the outbox asks about jobs that may be archived; `Mesh` knows."""
        self.outbox: ConnectionOutbox | None = None
        """What waits on this machine; None for a mesh in memory."""
        self._in_use: KeyInUse | None = None
        self._sending: asyncio.Task[None] | None = None
        self._pid = os.getpid()
        self._of_parent: tuple[object, ...] = ()

    def twin(self) -> Connection:
        """A connection of its own to the same mesh, with the same tasks; not open yet."""
        twin = Connection(
            engine=self.engine_name,
            home=self._explicit_home,
            role=self._role,
            key=self._key,
            agent=self.agent,
            offline=self.is_offline_allowed,
            node=self._node,
        )
        twin.declared, twin.archived = self.declared, self.archived
        return twin

    def beside(self, replica: Replica) -> Connection:
        """The same connection, while it is open, for reading from a node's own replica."""
        found = copy.copy(self)
        found.node_replica = replica
        return found

    # --- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect."""
        self._leave_to_parent()
        if self._opened is not None:
            raise Misconfigured("this mesh is already open; use 'async with' once")
        chosen = read_environment()
        try:
            if self._node is not None:
                await self._open_http(self._node)
            elif self.engine_name == "memory":
                await self._open_memory()
                self.session.breaker = chosen.make_breaker()
                await self.session.sync_control()
                await self._announce(self._stack)
            else:
                await self._open_server(chosen)
        except BaseException:
            await self._leave()
            raise
        for begin in self.on_open:
            begin()

    async def _open_http(self, node: HttpNode) -> None:
        by = mesh_connection.connect_by_http
        opening = by(self.home, node.url, node.mesh, key=self._key, ca=node.ca)
        self._opened = self._named(await self._stack.enter_async_context(opening))
        self.session.breaker = read_environment().make_breaker()
        await self.session.sync_control()

    async def _open_server(self, chosen: Environment) -> None:
        """Connect to the mesh's server; its breaker outlives the connection."""
        chosen.require_only_mesh(self.home)
        self._breaker = (self._breaker or chosen.make_breaker()) if chosen.breaker else None
        self.outbox = ConnectionOutbox(self, self.home.path, self.archived)
        try:
            await self._connect(self._key or chosen.node)
        except Unavailable as problem:
            if not self.is_offline_allowed or not is_away(problem):
                raise
            await self._open_offline(self._key or chosen.node, problem)
        self._sending = self.outbox.begin()

    async def _connect(self, key: str | None) -> None:
        async with AsyncExitStack() as stack:
            with guarding(self._breaker, SystemClock.boot_s):
                opened = await self.join(stack, self._role, key, in_use=self._in_use)
                opened.session.breaker = self._breaker
                await opened.session.sync_control()
            self._opened, before = opened, self._opened
            self._artifacts = self._clock = self._dismissals = self._recent = None
            try:
                await self._announce(stack)
            except BaseException:
                self._opened = before
                raise
            self._stack.push_async_exit(stack.pop_all())

    async def _announce(self, stack: AsyncExitStack) -> None:
        if self.agent != DEFAULT_AGENT:  # one that names no agent is nobody to look for
            from antiphon.assembly import announcing

            await stack.enter_async_context(announcing(self.opened))

    async def _open_offline(self, key: str | None, why: Unavailable) -> None:
        from antiphon.assembly.offline_connection import offline

        opening = offline(self.home, self._role, key=key, why=why)
        opened, self._in_use = await self._stack.enter_async_context(opening)
        opened.session.breaker = self._breaker
        self._opened = self._named(opened)

    @property
    def keeping(self) -> ConnectionOutbox | None:
        """What keeps writes while the engine cannot be reached, if that was asked for."""
        return self.outbox if self.is_offline_allowed and not is_for_others() else None

    async def reconnect(self) -> None:
        """Connect, if it was opened without an engine; `Unavailable` if there is still none."""
        if self._in_use is not None and not self.is_connected:
            await self._connect(None)

    @property
    def is_connected(self) -> bool:
        """Whether it has an engine, which may be unreachable for a while."""
        return self._in_use is None or self.session.confirmed > 0

    async def join(
        self,
        stack: AsyncExitStack,
        role: str,
        key: str | None,
        kinds: Collection[str] = (),
        *,
        in_use: KeyInUse | None = None,
    ) -> MeshConnection:
        """Connect to the mesh's server with a key of a role, for as long as the stack."""
        if self._node is not None:
            raise Misconfigured(
                "workers and nodes need the mesh's server, and this mesh is reached over HTTP",
                hint="run it on a machine of the mesh: antiphon join TICKET",
            )
        try:
            joined = await stack.enter_async_context(
                mesh_connection.join(
                    self.home,
                    role,
                    key=key,
                    kinds=sorted(kinds),
                    token=read_environment().token,
                    in_use=in_use,
                )
            )
        except Held as held:
            if key is None:
                raise
            hint = "give each process its own name in ANTIPHON_NODE, or unset it"
            if key == self._key:
                hint = "leave out key=, so that each process takes a key of its own"
            raise Held(held.message, hint=hint) from held
        return self._named(joined)

    async def join_worker(self, stack: AsyncExitStack, kinds: Collection[str]) -> MeshConnection:
        """The connection of a worker, which signs with a key of its own."""
        if self.memory is not None:
            worker = self.memory.connection("worker")
            return self._named(await stack.enter_async_context(worker))
        try:
            return await self.join(stack, "worker", read_environment().key_for("worker"), kinds)
        except Unavailable as problem:
            if self.is_offline_allowed and is_away(problem):
                problem.hint = f"{NO_CLAIM}; {problem.hint}" if problem.hint else NO_CLAIM
            raise

    def _named(self, connection: MeshConnection) -> MeshConnection:
        return replace(connection, agent=self.agent)

    async def _open_memory(self) -> None:
        from antiphon.assembly import MemoryMesh, owned_replica, replicating

        self.memory = self.given_memory or MemoryMesh()
        owner = self.memory.connection("owner", self.memory.owner)
        self._opened = self._named(await self._stack.enter_async_context(owner))
        # In one process there is no other node to expire leases, offer jobs again or coordinate.
        replica = await self._stack.enter_async_context(
            owned_replica(":memory:", None, self._opened)
        )
        self.memory_replica = replica
        node = replicating(self._opened, replica, caretaking=True, metrics=self.tempo_metrics)
        await self._stack.enter_async_context(node)

    def on_close(self, call: Callable[[], Awaitable[None]]) -> None:
        """Await a call when the mesh is closed, before it disconnects."""
        self._stack.push_async_callback(call)

    async def close(self) -> None:
        """Disconnect."""
        self._leave_to_parent()
        if self._opened is not None:
            self._opened.session.is_over = self._was_open = True
        await self._leave()

    async def _leave(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
            await asyncio.wait([sending])
        self._opened = self._artifacts = self._clock = self._in_use = self.outbox = None
        self._dismissals = self._recent = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    def _leave_to_parent(self) -> None:
        """In a forked child: forget what is open. Ending it would touch the parent's sockets."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._of_parent += (self._stack, self._opened, self.memory)
            self._stack = AsyncExitStack()
            self._opened = self._artifacts = self.memory = self._clock = None
            self._dismissals = self._recent = None
            self._in_use = self.outbox = self._sending = None

    # --- who and where ------------------------------------------------------------------------

    @property
    def home(self) -> StateDirectory:
        """The state directory; only meshes on a server have one."""
        return read_environment().state_directory(self._explicit_home)

    @property
    def home_of_files(self) -> StateDirectory | None:
        """The state directory; None for a mesh in memory."""
        return None if self.memory is not None else self.home

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._opened is not None

    @property
    def opened(self) -> MeshConnection:
        """The session, the key and the engine; `Misconfigured` unless the mesh is open."""
        if self._opened is None:
            if self._was_open:
                raise Misconfigured("the mesh is closed: its block has ended", hint=MOVE_INTO_BLOCK)
            raise Misconfigured(
                "the mesh is not open",
                hint="use it inside 'async with mesh:'; in a test, say mesh.use(MODULE.mesh) first",
            )
        return self._opened

    @property
    def session(self) -> Session:
        """The session that reads and writes the log."""
        return self.opened.session

    @property
    def keyring(self) -> Keyring:
        """The key that this process signs with."""
        return self.opened.keyring

    @property
    def did(self) -> str:
        """That key's public half."""
        return self.opened.keyring.did

    @property
    def engine(self) -> Engine:
        """The engine connection."""
        return self.opened.engine

    # --- what is read -------------------------------------------------------------------------

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[Replica]:
        """The local replica, up to date; of a node beside it, as far as that has come.

        Without a connection it is as far as it came before.
        """
        if self.node_replica is not None:
            yield self.node_replica
            return
        from antiphon.assembly import caught_up, local_replica

        if self.memory_replica is not None and self.memory is not None:
            yield await caught_up(self.opened, self.memory_replica)
            return
        if not self.is_connected:
            from antiphon.assembly.offline_connection import known_replica

            with known_replica(self.home, self.opened) as replica:
                yield replica
            return
        async with local_replica(self.home, self.opened) as replica:
            yield replica

    @property
    def artifacts(self) -> Artifacts:
        """The store of artifacts, by content."""
        from antiphon.assembly.artifact_store import artifacts_of

        opened = self.opened
        if self._artifacts is None:
            waiting = None if self.keeping is None else self.keeping.store.blobs
            self._artifacts = artifacts_of(opened, self.home_of_files, waiting)
        return self._artifacts

    @property
    def clock(self) -> BeatClock:
        """The beats, as this process knows them."""
        from antiphon.runtime.tempo.beat_clock import BeatClock

        if self._clock is None:
            self._clock = BeatClock(self.session)
        return self._clock

    async def online(self) -> list[Card]:
        """The nodes that were online in the last seconds."""
        from antiphon.runtime.presence.live_nodes import RecentCards
        from antiphon.sdk.defaults import ROLL_CALL_S

        if self._recent is None:
            self._recent = RecentCards(self.session)
        return await self._recent.get(wait_s=ROLL_CALL_S)

    @property
    def dismissals(self) -> DismissalStore:
        """What people have dismissed."""
        from antiphon.runtime.attention.dismissals import DismissalStore

        if self._dismissals is None:
            self._dismissals = DismissalStore(self.opened.engine.messages)
        return self._dismissals

    @cached_property
    def tempo_metrics(self) -> TempoMetrics:
        """The numbers of the pulse and the reverb that run beside this mesh's node."""
        from antiphon.runtime.tempo.tempo_metrics import TempoMetrics

        return TempoMetrics()
