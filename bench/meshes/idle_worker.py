"""One idle worker process on a mesh of its own, and the measurement of jobs and bare records."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly import hosted_mesh
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.record import subjects
from antiphon.engines.nats import LocalServer
from antiphon.engines.nats.server.server_config import Sync
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from bench.measurement.process_usage import cpu_s, resident_mb
from bench.meshes.local_cluster import found_mesh, running_servers
from bench.meshes.timed_worker import BARE, KIND, boot_ns

IDLE_S: Final = 0.01
"""Between two jobs: the worker is idle again."""
BARE_BYTES: Final = 600
"""What a schedule weighs, signature block included."""
RULES: Final = Rules(authority="open")


class LatencySetup(Struct, frozen=True):
    """A mesh with one idle worker process."""

    home: StateDirectory
    session: Session
    worker: Process
    times: Path
    """Where the worker writes when a handler started and when a bare record arrived."""
    servers: tuple[LocalServer, ...]

    def server_mb(self) -> float:
        """Resident memory of all servers."""
        return sum(resident_mb(server.pid or 0) for server in self.servers)

    def server_cpu_s(self) -> float:
        """Processor time of all servers so far."""
        return sum(cpu_s(server.pid or 0) for server in self.servers)


@asynccontextmanager
async def idle_worker(sync: Sync = "always", replicas: int = 1) -> AsyncIterator[LatencySetup]:
    """A server or three, an open mesh, a caller, an idle worker."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as directory:
        home = StateDirectory(Path(directory) / "home")
        times = Path(directory) / "times"
        async with AsyncExitStack() as stack:
            servers = await _founded(stack, home, Path(directory), sync, replicas)
            async with assembly.join(home, "client") as connection:
                await connection.session.sync_control()
                worker = await start_owned(
                    sys.executable,
                    *("-m", "bench.meshes.timed_worker"),
                    *("--home", str(home.path), "--times", str(times)),
                    stdout=PIPE,
                )
                try:
                    assert worker.stdout is not None
                    async with asyncio.timeout(30):
                        if await worker.stdout.readline() != b"ready\n":
                            raise SystemExit("the worker did not come up")
                    yield LatencySetup(home, connection.session, worker, times, servers)
                finally:
                    with suppress(ProcessLookupError):
                        worker.kill()
                    await worker.wait()


async def _founded(
    stack: AsyncExitStack, home: StateDirectory, place: Path, sync: Sync, replicas: int
) -> tuple[LocalServer, ...]:
    if replicas > 1:
        servers = await stack.enter_async_context(running_servers(place, replicas))
        await found_mesh(home, servers, RULES)
        return tuple(servers)
    server = await stack.enter_async_context(LocalServer(place / "server", sync=sync))
    await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
    return (server,)


class Times(Struct):
    """When each job or record was sent, and when it arrived (ns)."""

    called: dict[str, int]
    started: dict[str, int]

    def waits_ms(self) -> list[float]:
        """Milliseconds between the two."""
        return [(self.started[one] - at) / 1e6 for one, at in self.called.items()]


async def call_one(session: Session, number: int) -> int:
    """Submit a job as a program does and see it end; when it was submitted (ns)."""
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    at_ns = boot_ns()
    called = await submission.submit(session, ScheduleBody(kind=KIND, manifest=content))
    async with asyncio.timeout(30):
        await submission.wait_for_end(session, KIND, called.id)
    return at_ns


async def publish_bare(session: Session, name: str) -> tuple[int, float]:
    """One bare record; when it was sent (ns), and how long the acknowledgement took (ms)."""
    subject = f"{subjects.root(session.mesh)}.jobs.1.{BARE}.{name}"
    at_ns = boot_ns()
    await session.log.append(subject, b"b" * BARE_BYTES, message_id=f"bare-{name}", expected_last=0)
    return at_ns, (boot_ns() - at_ns) / 1e6


def read_times(path: Path, word: str) -> dict[str, int]:
    """By name, when the worker's process saw it (ns)."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: int(at_ns) for kind, name, at_ns in lines if kind == word}


async def measure(
    setup: LatencySetup, first: int, count: int
) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds to a handler's start, to a bare delivery, and to a bare acknowledgement."""
    jobs, bare, acks = Times({}, {}), Times({}, {}), list[float]()
    for number in range(first, first + count):
        jobs.called[str(number)] = await call_one(setup.session, number)
        await asyncio.sleep(IDLE_S)
        name = f"{number:064d}"
        bare.called[name], ack_ms = await publish_bare(setup.session, name)
        acks.append(ack_ms)
        await asyncio.sleep(IDLE_S)
    async with asyncio.timeout(10):
        while not bare.called.keys() <= read_times(setup.times, "bare").keys():
            await asyncio.sleep(0.05)
    jobs.started, bare.started = read_times(setup.times, "start"), read_times(setup.times, "bare")
    return jobs.waits_ms(), bare.waits_ms(), acks
