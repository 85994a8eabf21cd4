"""`bench latency --growth`: whether a light worker notices that the rest of the mesh grows.

One idle worker on a kind of its own, while other jobs (schedule, claim and completion,
signed) pile up on the log. At each milestone: its resident memory, the processor time that one of
its own jobs takes it, the time to a handler's start; and what it used up while others were busy.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from msgspec import Struct

from antiphon.runtime.log.session import Session
from bench.measurement.process_usage import cpu_s, resident_mb
from bench.measurement.report import conclude, percentile, say
from bench.meshes.idle_worker import LatencySetup, idle_worker, measure
from bench.meshes.other_jobs import run_other_job

WINDOW: Final = 256
GROWS_BY: Final = 0.2
"""More than this between the first milestone and the last is not flat."""


class Milestone(Struct, frozen=True, kw_only=True):
    """The worker's figures with so many other jobs on the log."""

    others: int
    resident_mb: float
    cpu_per_job_ms: float
    start_p50_ms: float
    idle_cpu_pct: float
    """Of one core, while others wrote."""


async def grow(session: Session, first: int, count: int) -> None:
    """That many more other jobs."""
    numbers = iter(range(first, first + count))

    async def some() -> None:
        for number in numbers:
            await run_other_job(session, number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(WINDOW):
            tasks.create_task(some())


async def milestone(
    setup: LatencySetup, others: int, first: int, jobs: int, idle_pct: float
) -> Milestone:
    pid = setup.worker.pid
    before_s = cpu_s(pid)
    starts, _, _ = await measure(setup, first, jobs)
    return Milestone(
        others=others,
        resident_mb=round(resident_mb(pid), 1),
        cpu_per_job_ms=round((cpu_s(pid) - before_s) * 1000 / jobs, 2),
        start_p50_ms=round(percentile(starts, 0.5), 2),
        idle_cpu_pct=round(idle_pct, 2),
    )


async def run(others: int, steps: int, jobs: int) -> int:
    """Grow in steps; exit code 0 if the worker did not."""
    reached: list[Milestone] = []
    async with idle_worker(sync="default") as setup:
        pid = setup.worker.pid
        await measure(setup, 0, jobs)  # warm
        idle_pct, done, others_mb = 0.0, 0, 0.0
        for step in range(steps + 1):
            reached.append(await milestone(setup, done, (step + 1) * jobs, jobs, idle_pct))
            say(str(reached[-1]))
            if step < steps:
                wall_s, used_s, held_mb = time.monotonic(), cpu_s(pid), resident_mb(pid)
                await grow(setup.session, done, others // steps)
                others_mb += resident_mb(pid) - held_mb
                done += others // steps
                idle_pct = (cpu_s(pid) - used_s) / (time.monotonic() - wall_s) * 100
    first, last = reached[0], reached[-1]
    memory = others_mb / first.resident_mb
    cpu = last.cpu_per_job_ms / max(first.cpu_per_job_ms, 0.01) - 1
    conclude(
        others=last.others,
        resident_mb=[one.resident_mb for one in reached],
        cpu_per_job_ms=[one.cpu_per_job_ms for one in reached],
        start_p50_ms=[one.start_p50_ms for one in reached],
        idle_cpu_pct=max(one.idle_cpu_pct for one in reached),
        others_mb=round(others_mb, 1),
        memory_growth=round(memory, 3),
        cpu_growth=round(cpu, 3),
        jobs=jobs,
    )
    return 0 if memory <= GROWS_BY and cpu <= GROWS_BY else 1
