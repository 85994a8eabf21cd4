"""How soon a job is claimed, with a load well below the limit: by the engine's own stamps."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobSchedule
from bench.lifecycle.round import Load
from bench.measurement.child_process import child_process, wait_for_word
from bench.measurement.report import percentile
from bench.meshes.fresh_mesh import fresh_mesh
from bench.meshes.job_load import job_body, job_records

RATE_PER_S: Final = 100


async def claim_latency(load: Load, jobs: int) -> tuple[list[float], list[float]]:
    """Milliseconds from schedule to claim by the engine's stamps, and of each schedule's append.

    The second is what the engine itself takes for one write meanwhile.
    """
    async with fresh_mesh(load.mesh, workers=1, replicas=load.replicas) as mesh:
        home, session = mesh.worker_homes[0], mesh.caller
        arguments = ("--home", str(home.path), "--slots", str(load.slots), "--jobs", str(jobs))
        writes: list[float] = []
        async with child_process("bench.meshes.worker", *arguments) as (worker, _):
            for number in range(jobs):
                draft = session.draft(JobSchedule, job_body(number), prev=0)
                begun = time.perf_counter()
                await session.commit(draft)
                writes.append((time.perf_counter() - begun) * 1000)
                await asyncio.sleep(1 / RATE_PER_S)
            await wait_for_word(worker, "done", 60)
        called: dict[str, int] = {}
        waits: list[float] = []
        for record in await job_records(mesh.observer):
            job_id = record.subject[-64:]
            if job_subjects.is_call(record.subject):
                called[job_id] = record.stamp_ns
            elif ".job." in record.subject and job_id in called:
                waits.append((record.stamp_ns - called.pop(job_id)) / 1e6)
        return waits, writes


async def latencies(load: Load, jobs: int) -> dict[str, float]:
    """The report's keys."""
    waits, writes = await claim_latency(load, jobs)
    return {
        "claim_p50_ms": round(percentile(waits, 0.5), 2),
        "claim_p99_ms": round(percentile(waits, 0.99), 2),
        "append_p50_ms": round(percentile(writes, 0.5), 2),
        "append_p99_ms": round(percentile(writes, 0.99), 2),
    }
