"""Ours: `submit_many`, then `Worker` in processes of its own, on an open mesh."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

from antiphon.runtime.caller.bulk_submission import submit_many
from bench.measurement.child_process import child_process, start_together
from bench.measurement.process_usage import cpu_s
from bench.meshes.fresh_mesh import fresh_mesh
from bench.meshes.job_load import job_body, newest_seq, rate_of, wait_for_jobs
from bench.peers.side import Figures, PeerLoad


async def antiphon_round(load: PeerLoad) -> Figures:
    """One round on a fresh mesh."""
    meshes = fresh_mesh("open", workers=load.processes, replicas=load.replicas)
    async with meshes as mesh, AsyncExitStack() as stack:
        before = await newest_seq(mesh.observer)
        bodies = [job_body(number) for number in range(load.jobs)]
        caller_s = time.process_time()
        await submit_many(mesh.caller, bodies)
        caller_s = time.process_time() - caller_s
        server_s = mesh.server_cpu_s()
        options = ("--slots", str(load.slots), "--work-ms", str(load.work_ms))
        begun = await start_together(
            stack,
            (
                child_process("bench.meshes.worker", "--home", str(home.path), *options)
                for home in mesh.worker_homes
            ),
        )
        found = await wait_for_jobs(mesh.observer, load.jobs, before=before)
        worker_s = sum(cpu_s(pid) - before_s for pid, before_s in begun)
        server_s = mesh.server_cpu_s() - server_s
    each_ms = 1000 / load.jobs
    return Figures(
        per_s=rate_of([one for one in found if ".job." in one.subject], load.jobs),
        worker_cpu_ms=worker_s * each_ms,
        server_cpu_ms=server_s * each_ms,
        caller_cpu_ms=caller_s * each_ms,
    )
