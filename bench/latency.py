"""`bench latency`: from submitting to the start of the handler, on an idle worker, one at a time.

The worker is another process on the same machine and server. In turn with the jobs, bare records
of the same size travel the same way (published with acknowledgement, handed to a pull consumer in
the worker's process): that is the engine's own part.

`--growth` asks whether a light worker notices that the rest of the mesh grows; `--fleet N` what
many idle ones cost.
"""

from __future__ import annotations

import argparse
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
from antiphon.core import manifest, subjects
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.rules import Rules
from antiphon.engines.nats import LocalServer
from antiphon.engines.nats.server_config import Sync
from antiphon.runtime import client
from antiphon.runtime.handlers import call_text
from antiphon.runtime.home import Home
from antiphon.runtime.peer import Peer
from bench.latency_worker import BARE, KIND, boot_ns
from bench.report import conclude, percentile, say

P50_MS: Final = 5.0
P99_MS: Final = 20.0
IDLE_S: Final = 0.01
"""Between two jobs: the worker is idle again."""
BARE_BYTES: Final = 600
"""What a schedule weighs, signature block included."""
RULES: Final = Rules(authority="open")


class Ground(Struct, frozen=True):
    """A mesh with one idle worker process."""

    home: Home
    peer: Peer
    worker: Process
    marks: Path


@asynccontextmanager
async def ground(sync: Sync = "always") -> AsyncIterator[Ground]:
    """A server, an open mesh, a caller, an idle worker."""
    from antiphon.assembly import hosting

    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        home = Home(Path(place) / "home")
        marks = Path(place) / "marks"
        async with LocalServer(Path(place) / "server", sync=sync) as server:
            await hosting.found_on(home, server, name="bench", rules=RULES)
            async with assembly.join(home, "client") as station:
                await station.peer.sync_control()
                worker = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "bench.latency_worker"),
                    *("--home", str(home.path), "--marks", str(marks)),
                    stdout=PIPE,
                )
                try:
                    assert worker.stdout is not None
                    async with asyncio.timeout(30):
                        if await worker.stdout.readline() != b"ready\n":
                            raise SystemExit("the worker did not come up")
                    yield Ground(home, station.peer, worker, marks)
                finally:
                    with suppress(ProcessLookupError):
                        worker.kill()
                    await worker.wait()


class Times(Struct):
    """When what was sent, and what was seen when (ns)."""

    called: dict[str, int]
    started: dict[str, int]

    def waits_ms(self) -> list[float]:
        """Milliseconds between the two."""
        return [(self.started[one] - at) / 1e6 for one, at in self.called.items()]


async def call_one(peer: Peer, number: int) -> int:
    """Submit a job as a program does and see it end; when it was submitted (ns)."""
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    at_ns = boot_ns()
    called = await client.call(peer, ScheduleBody(kind=KIND, manifest=content))
    async with asyncio.timeout(30):
        await client.wait_for_end(peer, KIND, called.job)
    return at_ns


async def publish_bare(peer: Peer, name: str) -> tuple[int, float]:
    """One bare record; when it was sent (ns), and how long the acknowledgement took (ms)."""
    subject = f"{subjects.root(peer.mesh)}.call.1.{BARE}.{name}"
    at_ns = boot_ns()
    await peer.log.append(subject, b"b" * BARE_BYTES, message_id=f"bare-{name}", expected_last=0)
    return at_ns, (boot_ns() - at_ns) / 1e6


def read_marks(path: Path, word: str) -> dict[str, int]:
    """By name, when the worker's process saw it (ns)."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: int(at_ns) for kind, name, at_ns in lines if kind == word}


async def measure(
    on: Ground, first: int, count: int
) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds to a handler's start, to a bare delivery, and to a bare acknowledgement."""
    jobs, bare, acks = Times({}, {}), Times({}, {}), list[float]()
    for number in range(first, first + count):
        jobs.called[str(number)] = await call_one(on.peer, number)
        await asyncio.sleep(IDLE_S)
        name = f"{number:064d}"
        bare.called[name], ack_ms = await publish_bare(on.peer, name)
        acks.append(ack_ms)
        await asyncio.sleep(IDLE_S)
    async with asyncio.timeout(10):
        while not bare.called.keys() <= read_marks(on.marks, "bare").keys():
            await asyncio.sleep(0.05)
    jobs.started, bare.started = read_marks(on.marks, "start"), read_marks(on.marks, "bare")
    return jobs.waits_ms(), bare.waits_ms(), acks


async def run(count: int) -> int:
    async with ground() as on:
        await measure(on, 0, 10)  # what is only slow the first time
        say(f"{count} jobs and {count} bare records, in turn")
        starts, deliveries, acks = await measure(on, 10, count)
    p50, p99 = percentile(starts, 0.5), percentile(starts, 0.99)
    conclude(
        start_p50_ms=round(p50, 2),
        start_p99_ms=round(p99, 2),
        engine_p50_ms=round(percentile(deliveries, 0.5), 2),
        engine_p99_ms=round(percentile(deliveries, 0.99), 2),
        append_p50_ms=round(percentile(acks, 0.5), 2),
        append_p99_ms=round(percentile(acks, 0.99), 2),
        start_max_ms=round(max(starts), 2),
        jobs=count,
        sync="always",
        replicas=1,
    )
    return 0 if p50 <= P50_MS and p99 <= P99_MS else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench latency")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--growth", action="store_true", help="beside a mesh that grows")
    parser.add_argument("--fleet", type=int, metavar="N", help="N idle workers on one server")
    args = parser.parse_args(argv)
    if args.growth:
        from bench import latency_growth

        size = (4_000, 2, 50) if args.quick else (100_000, 4, 200)
        return asyncio.run(latency_growth.run(*size))
    if args.fleet:
        from bench import latency_fleet

        return asyncio.run(latency_fleet.run(args.fleet, 10.0 if args.quick else 60.0))
    return asyncio.run(run(args.jobs or (200 if args.quick else 1_000)))
