"""`bench many`: many jobs submitted and awaited by one process, against a coroutine for each.

Ours is `Mesh.submit_many` and `gather` of the handles. The other way is what a program did before
there was anything for many: `asyncio.gather` of one coroutine per job, which submits it and waits
for its result. Each round has a mesh, a server and worker processes of its own, and the ways
alternate, so that both meet the same machine; the gain is the median of the rounds' gains.

What is measured is the caller: the server syncs its disk now and then (the default of NATS), not
for every record, and there are two worker processes. The processor time is that of the calling
process; it verifies every record and every proof.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.assembly import hosted_mesh
from antiphon.core.authority.rules import Rules
from antiphon.engines.nats import LocalServer
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.caller.submission import wait_for_end
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.many.bound_calls import gather
from antiphon.sdk.mesh import Mesh
from bench.measurement.report import conclude, median, say, spread
from bench.signed_log import KIND

SLOTS: Final = 384
"""Jobs in flight per worker process: enough to keep the engine's disk busy."""
RULES: Final = Rules(authority="open")
WANTED_GAIN: Final = 1.5
QUICK_CPU_GAIN: Final = 1.1
"""One short round says nothing about jobs per second on a machine that does other things as well;
the processor time is steadier. A coroutine for each gets more expensive the more there are."""


class Figures(Struct, frozen=True):
    """One way, one round."""

    per_s: float
    cpu_ms: float
    """The caller's, for each job."""


async def ours(mesh: Mesh, jobs: int) -> list[int]:
    """All of them together."""
    handles = await mesh.submit_many(mesh.bind(KIND, number) for number in range(jobs))
    return await gather(*handles)


async def one_each(mesh: Mesh, jobs: int) -> list[int]:
    """A coroutine for each."""

    async def one(number: int) -> int:
        handle = await mesh.submit(KIND, number)
        # As `result` waited before there was anything for many: it asked no worker meanwhile.
        handle.known_end = await wait_for_end(mesh.connection.session, handle.kind, handle.id)
        result: int = await handle.result()
        return result

    return await asyncio.gather(*(one(number) for number in range(jobs)))


Way = Callable[[Mesh, int], Awaitable[list[int]]]
WAYS: Final[dict[str, Way]] = {"ours": ours, "gather": one_each}


async def start_worker(home: StateDirectory) -> Process:
    """A worker process that has said that it is ready."""
    worker = await start_owned(
        sys.executable,
        *("-m", "bench.many.worker", "--home", str(home.path), "--slots", str(SLOTS)),
        stdout=PIPE,
    )
    assert worker.stdout is not None
    async with asyncio.timeout(60):
        if await worker.stdout.readline() != b"ready\n":
            raise SystemExit("a worker did not come up")
    return worker


async def end(process: Process) -> None:
    """End a worker process."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@asynccontextmanager
async def mesh_with_workers(workers: int) -> AsyncIterator[Mesh]:
    """A mesh of its own on a server of its own, with worker processes, seen by a caller."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        home = StateDirectory(Path(place))
        async with LocalServer(home.server, sync="default") as server, AsyncExitStack() as stack:
            await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
            for _ in range(workers):
                stack.push_async_callback(end, await start_worker(home))
            yield await stack.enter_async_context(Mesh.open(home=home.path))


async def measure(way: Way, jobs: int, workers: int) -> Figures:
    """One round on a fresh mesh; every result is checked."""
    async with mesh_with_workers(workers) as mesh:
        await one_each(mesh, 8)  # connections, caches and code that is loaded on first use
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        results = await way(mesh, jobs)
        took_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
    if results != [2 * number for number in range(jobs)]:
        raise SystemExit("the results are not those of the jobs")
    return Figures(jobs / took_s, cpu_s / jobs * 1000)


async def run(jobs: int, rounds: int, workers: int, *, is_quick: bool) -> int:
    found: dict[str, list[Figures]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for name in WAYS if number % 2 == 0 else reversed(WAYS):
            found[name].append(await measure(WAYS[name], jobs, workers))
            newest = found[name][-1]
            say(
                f"round {number + 1}, {name}: {newest.per_s:,.0f} jobs/s, "
                f"{newest.cpu_ms:.2f} ms of the caller's processor per job"
            )
    rates = {name: [one.per_s for one in figures] for name, figures in found.items()}
    cpu_ms = {name: median([one.cpu_ms for one in figures]) for name, figures in found.items()}
    gains = [a / b for a, b in zip(rates["ours"], rates["gather"], strict=True)]
    cpu_gain = cpu_ms["gather"] / cpu_ms["ours"]
    say(f"ours {spread(rates['ours'])}, gather {spread(rates['gather'])} jobs/s")
    conclude(
        jobs=jobs,
        ours_per_s=round(median(rates["ours"])),
        gather_per_s=round(median(rates["gather"])),
        gain=round(median(gains), 2),
        gain_spread=[round(min(gains), 2), round(max(gains), 2)],
        caller_cpu_ms=round(cpu_ms["ours"], 3),
        gather_cpu_ms=round(cpu_ms["gather"], 3),
        cpu_gain=round(cpu_gain, 2),
        workers=workers,
        replicas=1,
        sync="default",
        rounds=rounds,
    )
    if is_quick:
        return 0 if cpu_gain >= QUICK_CPU_GAIN else 1
    return 0 if median(gains) >= WANTED_GAIN else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench many")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="3,000 jobs, one round")
    args = parser.parse_args(argv)
    if args.quick:
        return asyncio.run(run(3_000, 1, args.workers, is_quick=True))
    return asyncio.run(run(args.jobs, args.rounds, args.workers, is_quick=False))
