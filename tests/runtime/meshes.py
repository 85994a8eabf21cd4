"""Meshes to test the runtime on: the same on the memory engine and on a real server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.pulse_view import Mode
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.engines.nats import LocalServer, NatsEngine
from antiphon.ports import WallClock
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.executors.handlers import HandlerOptions, Handlers
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, Mark, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import job_records
from antiphon.runtime.worker.battery_watch import Battery
from antiphon.runtime.worker.worker import Worker, WorkerSettings
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import VirtualLoop
from tests.local_server import shared_server
from tests.patience import PATIENCE_S

KIND = "test.work"
EPOCH_MS = 1_700_000_000_000
QUICK = Rules(
    authority="open",
    max_drift_ms=100,
    lease_min_ms=200,
    lease_ms=600,
    lease_ms_max=1200,
    offer_after_ms=500,
)
"""Short leases, so that their ends can be waited for, and called again soon."""
KEPT = msgspec.structs.replace(QUICK, lease_ms=6_000, lease_ms_max=6_000)
"""A worker keeps its lease while a machine stands still for four seconds, and loses it soon."""
LONG_MS = 3_600_000
OFFERED = msgspec.structs.replace(QUICK, lease_ms=LONG_MS, lease_ms_max=LONG_MS)
"""Called again soon, but no lease ends, however slow the machine is."""
CALM = msgspec.structs.replace(OFFERED, offer_after_ms=LONG_MS)
"""Nothing happens by itself: what is noticed was not noticed by a renewal or a second call."""

ON_NATS = pytest.param("nats", marks=pytest.mark.nats)
on_both_engines = pytest.mark.parametrize(
    "engine", [pytest.param("memory", marks=pytest.mark.virtual_time), ON_NATS]
)
"""In memory no time passes while a test sleeps."""
on_both_engines_in_real_time = pytest.mark.parametrize("engine", ["memory", ON_NATS])
"""For what needs threads, which virtual time has none of, or a clock that moves by itself."""


class FixedTempo:
    """Beats of any length, counted by a mesh's clock."""

    def __init__(self, wall: WallClock, beat_ms: int, *, mode: Mode = "local") -> None:
        self._wall = wall
        self._meter = Meter(bpm=60_000 // beat_ms)
        self._mode: Mode = mode

    def now_ms(self) -> int:
        return self._wall.now_ms()

    def meter(self) -> Meter:
        return self._meter

    def phases(self) -> Phases:
        return Phases()

    def mode(self) -> Mode:
        return self._mode


class MeshUnderTest:
    def __init__(self, engine: str, rules: Rules, protocol: Protocol = PROTOCOL) -> None:
        self.engine = engine
        self.protocol = protocol
        loop = asyncio.get_running_loop()
        self.wall: WallClock = SystemClock()
        if isinstance(loop, VirtualLoop):
            self.wall = HostClock(loop, epoch_ms=EPOCH_MS)
        self.entropy = SystemEntropy()
        self.owner = SeedKeyring(self.entropy.token(32))
        self.signed_genesis = genesis.sign(
            self.owner, self.wall, name="test", recovery=self.owner.did, rules=rules
        )
        self.mesh = self.signed_genesis.mesh
        self.memory = MemoryServer(self.wall)
        self.loan_s = 2.0
        """After which an announcement that nobody settled is handed to another worker."""
        self.server: LocalServer | None = None
        """A server of its own, where a test ends it; else one that all share."""
        self.loan_s = 2.0
        self.stack = AsyncExitStack()

    async def connection(
        self, keyring: SeedKeyring | None = None, mark: Mark | None = None
    ) -> assembly.MeshConnection:
        if self.engine == "memory":
            engine = MemoryEngine(self.memory, self.mesh, loan_s=self.loan_s)
        else:
            server = self.server or shared_server()
            engine = await NatsEngine.connect(
                server.url,
                self.mesh,
                login=server.login,
                create=True,
                loan_s=self.loan_s,
            )
        self.stack.push_async_callback(engine.close)
        await genesis.write(engine.log, self.signed_genesis)
        key = keyring or SeedKeyring(self.entropy.token(32))
        author = Author(
            self.mesh,
            key,
            self.wall,
            max_drift_ms=100,
            mark=mark or NoMark(),
            protocol=self.protocol,
        )
        session = Session(engine, author, self.wall, self.entropy)
        await session.sync_control()
        return assembly.MeshConnection(session, key, "test")

    async def node(
        self,
        *,
        caretaking: bool = True,
        path: Any = ":memory:",
        connection: assembly.MeshConnection | None = None,
        bar_s: float = 32.0,
    ) -> FullNode:
        connection = connection or await self.connection()
        replica = Replica(path, mesh=self.mesh, protocol=self.protocol)
        self.stack.callback(replica.close)
        return await self.stack.enter_async_context(
            assembly.replicating(connection, replica, caretaking=caretaking, bar_s=bar_s)
        )

    async def worker(
        self,
        function: Callable[..., Any],
        *,
        kind: str = KIND,
        slots: int = 4,
        drain_s: float = 5.0,
        connection: assembly.MeshConnection | None = None,
        how: HandlerOptions | None = None,
        battery: Battery | None = None,
        beat_ms: int = 0,
        fallbacks: Mapping[str, Callable[..., Any]] | None = None,
        outbox: Path | None = None,
    ) -> Worker:
        connection = connection or await self.connection()
        handlers = Handlers()
        handlers.register(kind, function, how)
        for name, fallback in (fallbacks or {}).items():
            handlers.register_fallback(kind, name, fallback)
        waiting = None if outbox is None else OutboxStore(outbox).blobs
        artifacts = Artifacts(connection.session.engine.blobs, waiting=waiting)
        executors = handlers.executors(artifacts)
        self.stack.push_async_callback(executors.close)
        clock = FixedTempo(connection.session.wall, beat_ms) if beat_ms else None
        battery_low = 10 if battery is not None else 0
        settings = WorkerSettings(slots=slots, drain_s=drain_s, battery_low=battery_low)
        return await self.stack.enter_async_context(
            assembly.working(connection, executors, settings, battery, clock=clock, outbox=outbox)
        )


@asynccontextmanager
async def a_mesh(
    engine: str, rules: Rules = CALM, protocol: Protocol = PROTOCOL
) -> AsyncIterator[MeshUnderTest]:
    mesh = MeshUnderTest(engine, rules, protocol)
    async with mesh.stack:
        yield mesh


async def call(
    session: Session, *args: object, kind: str = KIND, **fields: Any
) -> submission.Submitted:
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text(args, {})], "timeout": 30}
    )
    body = ScheduleBody(kind=kind, manifest=content, **fields)
    return await submission.submit(session, body)


async def eventually(is_so: Callable[[], Any], *, within_s: float = PATIENCE_S) -> Any:
    """Wait until something holds; what it returned."""
    async with asyncio.timeout(within_s):
        while not (found := is_so()):
            await asyncio.sleep(0.01)
        return found


def ops_on_lane(node: FullNode, job: str, kind: str = KIND) -> list[tuple[str, str]]:
    """(op type, verdict) of a lane, as a full node stored it."""
    return [
        (entry.op.type_name() if entry.op else "", stored.verdict.value)
        for stored in job_records(node.replica, kind, job)
        for entry in [node.session.open(stored.record)]
    ]
