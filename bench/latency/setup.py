"""One idle worker process on a mesh of its own, and the measurement of jobs and bare records."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from bench.latency.worker import BARE, KIND, boot_ns

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


@asynccontextmanager
async def idle_worker(sync: Sync = "always") -> AsyncIterator[LatencySetup]:
    """A server, an open mesh, a caller, an idle worker."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as directory:
        home = StateDirectory(Path(directory) / "home")
        times = Path(directory) / "times"
        async with LocalServer(Path(directory) / "server", sync=sync) as server:
            await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
            async with assembly.join(home, "client") as connection:
                await connection.session.sync_control()
                worker = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "bench.latency.worker"),
                    *("--home", str(home.path), "--times", str(times)),
                    stdout=PIPE,
                )
                try:
                    assert worker.stdout is not None
                    async with asyncio.timeout(30):
                        if await worker.stdout.readline() != b"ready\n":
                            raise SystemExit("the worker did not come up")
                    yield LatencySetup(home, connection.session, worker, times)
                finally:
                    with suppress(ProcessLookupError):
                        worker.kill()
                    await worker.wait()


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
