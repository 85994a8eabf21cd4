"""A run of `chaos partition`, whichever way the faults are made: jobs meanwhile, and the report."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from msgspec import Struct

from antiphon.runtime.identity.state_directory import StateDirectory
from bench.measurement.report import say
from chaos.audit.final_check import FinalCheck, check_log
from chaos.audit.summary import holds, summarize
from chaos.cluster.job_load import call_jobs, wait_for_ends
from chaos.cluster.mesh import attended
from chaos.cluster.worker_pool import WorkerPool
from chaos.cluster.worker_process import WorkerConfig
from simulator.checks.plain_record import Key

SITES: Final = 3
FAULT_S: Final = (0.3, 5.0)
"""Leases are 1 to 2 s long: many faults outlast them, and some outlast the client's timeouts."""
PAUSE_S: Final = (0.1, 0.6)


class Plan(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    workers: int
    jobs: int
    faults: int
    seed: int
    replicas: int = 1


class Outcome(NamedTuple):
    """What a run left behind."""

    pool: WorkerPool
    check: FinalCheck
    promised: list[Key]


async def run_with_faults(
    home: StateDirectory,
    configs: Sequence[WorkerConfig],
    plan: Plan,
    faults: Counter[str],
    inject: Callable[[], Coroutine[None, None, None]],
) -> Outcome:
    """Call jobs while `inject` breaks networks and counts its `faults`; then check the log.

    The caller and the full node that takes care of overdue jobs are on networks without faults.
    """
    chance = random.Random(plan.seed)
    async with AsyncExitStack() as stack:
        beside = await stack.enter_async_context(attended(home))
        pool = await stack.enter_async_context(WorkerPool(configs, plan.workers, chance))
        await pool.wait_until_ready()
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(
                call_jobs(
                    beside.caller,
                    plan.jobs,
                    lambda: (faults.total() + 1) / plan.faults,
                    chance,
                )
            )
            tasks.create_task(inject())
        say(f"{faults.total()} faults are over; waiting for the jobs")
        await wait_for_ends(beside.replica, plan.jobs)
        check = await check_log(home)
    return Outcome(pool, check, calling.result())


def report(
    outcome: Outcome, plan: Plan, faults: dict[str, int], begun: float, **more: object
) -> int:
    """Print the report as the last line; the exit code."""
    summary: dict[str, object] = {
        **summarize(outcome.check, outcome.pool.tally, outcome.promised, outcome.pool.crashed),
        "faults": sum(faults.values()),
        **faults,
        **more,
        "workers": plan.workers,
        "seed": plan.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(summary))
    return 0 if holds(summary) else 1
