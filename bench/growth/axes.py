"""One axis at a time: what a light worker, a full node and the server pay for many of one thing.

The light worker has a kind of its own and nothing to do with what is written. With none, a tenth
and all of the things there, it runs a few jobs: the processor time that one takes should not
change. Of the full node and the server there is the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from msgspec import Struct

from antiphon import Mesh
from antiphon.core import manifest
from antiphon.core.authority.grant_terms import Terms
from antiphon.errors import RateLimited
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.sdk.plans.triggers import cron
from bench.measurement.child_process import child_process
from bench.measurement.process_usage import cpu_s, resident_mb
from bench.measurement.report import percentile, say
from bench.meshes.idle_worker import LatencySetup, idle_worker, measure
from bench.meshes.other_jobs import OTHER, run_other_job

AT_ONCE: Final = 64
JOBS: Final = 60
"""That the light worker runs at each milestone."""
FIRST_SHARE: Final = 0.1
SETTLE_S: Final = 1.0
"""The full node has applied what was written by then."""

Write = Callable[[Mesh, int], Awaitable[object]]


async def _kind(mesh: Mesh, number: int) -> None:
    await run_other_job(mesh.connection.session, number, kind=f"bench.k{number}")


async def _member(mesh: Mesh, number: int) -> None:
    key = SeedKeyring(number.to_bytes(32, "big"))
    await mesh.authority.grant(
        key.did, Terms(can=("claim",), kinds=(OTHER,), alias=f"member-{number}")
    )


async def _lock(mesh: Mesh, number: int) -> None:
    async with mesh.lock(f"file-{number}"):
        pass


async def _document(mesh: Mesh, number: int) -> None:
    await mesh.memory["bench.notes"].put(f"note-{number}", {"number": number})


async def _inbox(mesh: Mesh, number: int) -> None:
    while True:
        try:
            await mesh.messages.send(f"{mesh.did}/agent-{number}", {"number": number})
        except RateLimited as limited:  # 20 a second from one machine
            await asyncio.sleep(limited.retry_s)
        else:
            return


async def _plan(mesh: Mesh, number: int) -> None:
    job = manifest.author({"command": [f"@{OTHER}"], "args": ["[]"], "timeout": 60})
    await mesh.plans.put_manifest(f"plan-{number}", cron("0 0 1 1 *"), OTHER, job)


class Axis(Struct, frozen=True):
    """A thing, how one is written, and how many are."""

    write: Write
    count: int


AXES: Final = {
    "kinds": Axis(_kind, 10_000),
    "members": Axis(_member, 1_000),
    "locks": Axis(_lock, 10_000),
    "documents": Axis(_document, 10_000),
    "inboxes": Axis(_inbox, 1_000),
    "plans": Axis(_plan, 1_000),
}


class Milestone(Struct, frozen=True, kw_only=True):
    """The figures with so many of the things there."""

    count: int
    worker_cpu_ms: float
    """Of one of its own jobs."""
    worker_mb: float
    start_p50_ms: float
    node_mb: float
    server_mb: float


class Grown(Struct, frozen=True, kw_only=True):
    """One axis; what the milestones of every axis have is in the report in the same words."""

    milestones: list[Milestone]
    node_cpu_ms: float
    """Of the full node, for each thing that was written."""

    @property
    def worker_slope(self) -> float:
        """How much more processor time a job takes the light worker with all of them there."""
        first, last = self.milestones[0], self.milestones[-1]
        return round(last.worker_cpu_ms / max(first.worker_cpu_ms, 0.01) - 1, 3)

    def report(self) -> dict[str, object]:
        """One list for each figure, with a value for each milestone."""
        keys = Milestone.__struct_fields__
        lists = {key: [getattr(one, key) for one in self.milestones] for key in keys}
        return {**lists, "worker_slope": self.worker_slope, "node_cpu_ms": self.node_cpu_ms}


async def _write(mesh: Mesh, axis: Axis, first: int, end: int) -> None:
    numbers = iter(range(first, end))

    async def some() -> None:
        for number in numbers:
            await axis.write(mesh, number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(some())


async def milestone(setup: LatencySetup, count: int, round_: int, node_pid: int) -> Milestone:
    """Run the light worker's jobs, and look at everybody's memory."""
    pid = setup.worker.pid
    before_s = cpu_s(pid)
    starts, _, _ = await measure(setup, round_ * JOBS, JOBS)
    found = Milestone(
        count=count,
        worker_cpu_ms=round((cpu_s(pid) - before_s) * 1000 / JOBS, 2),
        worker_mb=round(resident_mb(pid), 1),
        start_p50_ms=round(percentile(starts, 0.5), 2),
        node_mb=round(resident_mb(node_pid), 1),
        server_mb=round(setup.server_mb(), 1),
    )
    say(str(found))
    return found


async def grow(axis: Axis, count: int) -> Grown:
    """Write them in two steps, and look three times."""
    reached: list[Milestone] = []
    async with idle_worker(sync="default") as setup, AsyncExitStack() as stack:
        home = str(setup.home.path)
        node, _ = await stack.enter_async_context(
            child_process("bench.meshes.node_process", "--home", home)
        )
        mesh = await stack.enter_async_context(Mesh.open(home=home, key="owner"))
        await measure(setup, 0, JOBS)  # warm
        used_s, done = 0.0, 0
        for round_, goal in enumerate((0, round(count * FIRST_SHARE), count), 1):
            before_s = cpu_s(node.pid)
            await _write(mesh, axis, done, goal)
            await asyncio.sleep(SETTLE_S)
            used_s += cpu_s(node.pid) - before_s
            done = goal
            reached.append(await milestone(setup, goal, round_, node.pid))
    return Grown(milestones=reached, node_cpu_ms=round(used_s * 1000 / count, 3))


async def run(chosen: Sequence[str], share: float) -> dict[str, dict[str, object]]:
    """Each on a mesh of its own."""
    found: dict[str, dict[str, object]] = {}
    for name in chosen:
        count = max(round(AXES[name].count * share), 10)
        say(f"{name}: {count:,}")
        found[name] = (await grow(AXES[name], count)).report()
    return found
