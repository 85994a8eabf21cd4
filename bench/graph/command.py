"""`bench graph`: a graph of 10,000 steps, with diamonds, a failure and a limit of three.

The graph is `width` independent rows. Each row is a chain of diamonds: a step, two that read its
result, one that reads both. Every tenth step of a row is under the limit. One further row begins
with a step that fails, so everything after it is cancelled.

Workers, coordinator and caller are processes of their own on one server. A witness in the workers
writes down when each limited job begins and ends: nothing of what the log says is asked for the
limit. A hop is the time from the commit of the last predecessor's completion to the commit of the
successor's claim, by the server's own stamps; steps under the limit are not counted, since they
wait for room. Beside it, during the run, a key is written to the same server ten times a second:
its round trip is the engine's part, of which a hop has three at least (the completion reaches the
coordinator, the offer is written, a worker is handed it and writes its claim).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.assembly import hosted_mesh
from antiphon.core.authority.rules import Limit, Rules
from antiphon.core.families.jobs.ops import JobClaim, JobComplete
from antiphon.core.families.jobs.state import TERMINAL
from antiphon.core.record.verdict import Verdict
from antiphon.engines.nats import LocalServer
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_records
from antiphon.sdk.call_options import Retry
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.task import Task
from bench.graph import worker
from bench.graph.worker import FAILS, KIND, LIMITED
from bench.measurement import process_usage
from bench.measurement.report import conclude, percentile, say

AT_ONCE: Final = 3
SLOTS: Final = 16
DIAMOND: Final = 4
LIMITED_EVERY: Final = 10
DOOMED: Final = 40
"""Steps of the row that fails, its first one included."""
LOOK_S: Final = 0.5
PROBE_S: Final = 0.1
RULES: Final = Rules(
    authority="open", limits=(Limit(label="three", kinds=("bench.limited",), at_once=AT_ONCE),)
)


class Placed(Struct, frozen=True):
    """A step that was submitted, and the steps that it waits for."""

    kind: str
    job: str
    before: tuple[str, ...]


async def start(module: str, home: StateDirectory, *options: str) -> tuple[Process, str]:
    """A process of this benchmark, and the line by which it says that it is ready."""
    process = await start_owned(
        sys.executable, "-m", module, "--home", str(home.path), *options, stdout=PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = (await process.stdout.readline()).decode().strip()
    if not line:
        raise SystemExit(f"{module} did not come up")
    return process, line


async def end(process: Process) -> None:
    """End a process."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@asynccontextmanager
async def running(workers: int, witness: Path) -> AsyncIterator[tuple[Mesh, int]]:
    """A mesh with workers and a coordinator, and the coordinator's process id."""
    home = StateDirectory(witness.parent)
    async with LocalServer(home.server, sync="default") as server, AsyncExitStack() as stack:
        await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
        for _ in range(workers):
            options = ("--slots", str(SLOTS), "--witness", str(witness))
            process, _ = await start("bench.graph.worker", home, *options)
            stack.push_async_callback(end, process)
        process, did = await start("bench.graph.coordinator", home)
        stack.push_async_callback(end, process)
        async with with_authority(home.path) as owner:
            await owner.authority.set_coordinator(did)
        yield await stack.enter_async_context(Mesh.open(home=home.path)), process.pid


async def submit(mesh: Mesh, steps: int, width: int) -> list[Placed]:
    """The whole graph; rows side by side, as their steps would be run."""
    plain: Task[..., int] = mesh.task(KIND)(worker.step)
    limited: Task[..., int] = mesh.task(LIMITED)(worker.step)
    async with mesh.graph() as g:
        added: list[tuple[object, tuple[object, ...]]] = []

        def add(number: int, *before: object) -> int:
            task = limited if number > 0 and number % LIMITED_EVERY == 0 else plain
            reads: object = list(before) if len(before) > 1 else (before[0] if before else None)
            step = g.add(task.options(retry=Retry(attempts=1)), number, reads)
            added.append((step, before))
            return step

        rows = [add(row) for row in range(width)]
        doomed = add(FAILS)
        for number in range(1, DOOMED):
            doomed = add(-1 - number, doomed)
        number = width + DOOMED
        while number < steps:
            for at, last in enumerate(rows):
                left, right = add(number, last), add(number + 1, last)
                rows[at] = add(number + 3, add(number + 2, left, right))
                number += DIAMOND
    handles = [g.handle(step) for step, _ in added]
    ids = {id(step): handle.id for (step, _), handle in zip(added, handles, strict=True)}
    return [
        Placed(handle.kind, handle.id, tuple(ids[id(one)] for one in before))
        for (_, before), handle in zip(added, handles, strict=True)
    ]


async def probe(mesh: Mesh, times_ms: list[float]) -> None:
    """Write a key again and again; how long each write takes."""
    leases = mesh.connection.engine.leases
    entry = await leases.create("bench.probe", b"", ttl_ms=60_000)
    while True:
        begun_s = time.perf_counter()
        entry = await leases.renew(entry, b"", ttl_ms=60_000)
        times_ms.append((time.perf_counter() - begun_s) * 1000)
        await asyncio.sleep(PROBE_S)


async def wait_for_all(replica: Replica, steps: int) -> None:
    """Until every step has ended, as the coordinator's replica has it; that disturbs nobody."""
    ended = told = 0
    while ended < steps:
        await asyncio.sleep(LOOK_S)
        replica.refresh()
        counts = replica.sizes.by_state()
        ended = sum(counts.get(state.value, 0) for state in TERMINAL)
        if ended - told >= steps // 10:
            told = ended
            say(f"{ended:,} of {steps:,} steps have ended")


class Times(Struct, frozen=True):
    """What became of a step, and when by the server's stamps, in milliseconds."""

    state: str
    claimed_ms: float = 0
    ended_ms: float = 0


def times_of(mesh: Mesh, replica: Replica, step: Placed) -> Times:
    """A step's times, from its records."""
    job = replica.ask(ReplicaJobs).job(step.kind, step.job)
    claimed_ms = ended_ms = 0.0
    for stored in job_records(replica, step.kind, step.job):
        op = mesh.connection.session.open(stored.record).op
        if stored.verdict is Verdict.OK and isinstance(op, JobClaim):
            claimed_ms = claimed_ms or stored.record.stamp_ns / 1e6
        elif stored.verdict is Verdict.OK and isinstance(op, JobComplete):
            ended_ms = stored.record.stamp_ns / 1e6
    return Times(job.state.value if job is not None else "", claimed_ms, ended_ms)


def most_at_once(witness: Path) -> int:
    """How many limited jobs ran at one time, by what the workers wrote down."""
    lines = (line.split() for line in witness.read_text().splitlines())
    changes = sorted((int(at_ns), int(change)) for at_ns, change in lines)
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


async def run(steps: int, width: int, workers: int) -> int:
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        witness = Path(place) / "witness"
        witness.touch()
        replica_path = Path(place) / "coordinator.db"
        async with running(workers, witness) as (mesh, coordinator):
            probes: list[float] = []
            probing = asyncio.create_task(probe(mesh, probes))
            begun_s, cpu_s = time.perf_counter(), process_usage.cpu_s(coordinator)
            placed = await submit(mesh, steps, width)
            say(f"{len(placed):,} steps submitted in {time.perf_counter() - begun_s:.0f} s")
            replica = Replica(replica_path, mesh=mesh.connection.session.mesh, read_only=True)
            await wait_for_all(replica, len(placed))
            took_s = time.perf_counter() - begun_s
            cpu_s = process_usage.cpu_s(coordinator) - cpu_s
            probing.cancel()
            found = {step.job: times_of(mesh, replica, step) for step in placed}
            replica.close()
        most = most_at_once(witness)
    hops = [
        found[step.job].claimed_ms - max(found[one].ended_ms for one in step.before)
        for step in placed
        if step.before and step.kind == KIND and found[step.job].claimed_ms
    ]
    states = [times.state for times in found.values()]
    is_right = (
        states.count("failed") == 1
        and states.count("aborted") == DOOMED - 1
        and states.count("succeeded") == len(placed) - DOOMED
    )
    conclude(
        nodes=len(placed),
        over_limit=max(0, most - AT_ONCE),
        most_at_once=most,
        limit=AT_ONCE,
        hop_p50_ms=round(percentile(hops, 0.5), 1),
        hop_p99_ms=round(percentile(hops, 0.99), 1),
        engine_p50_ms=round(percentile(probes, 0.5), 2),
        engine_p99_ms=round(percentile(probes, 0.99), 2),
        coordinator_cpu_ms=round(cpu_s / len(placed) * 1000, 2),
        steps_per_s=round(len(placed) / took_s),
        cancelled=states.count("aborted"),
        is_right=is_right,
        width=width,
        workers=workers,
        sync="default",
    )
    return 0 if is_right and most <= AT_ONCE else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench graph")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=8, help="rows that run side by side")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="400 steps")
    args = parser.parse_args(argv)
    return asyncio.run(run(400 if args.quick else args.steps, args.width, args.workers))
