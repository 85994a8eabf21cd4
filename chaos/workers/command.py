"""`chaos workers`: real workers and a real server, killed and stopped at random while jobs run.

Workers are processes. Three of four strikes are aimed at one in the middle of a job, as the
execution journal shows. Killed workers are replaced; stopped ones are resumed after a while, often
past their lease. Servers are killed and started again. Jobs are called all the while. Afterwards
every job must have ended: the whole log is checked (`audit/final_check.py`) and compared with the
journal (`audit/execution_journal.py`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from antiphon.engines.nats import LocalServer
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.replica.replica import Replica
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.audit.final_check import FinalCheck, check_log
from chaos.audit.summary import holds, summarize
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.job_load import call_jobs, wait_for_ends
from chaos.cluster.mesh import SHORT_LEASES, attended
from chaos.cluster.worker_pool import WorkerPool
from chaos.cluster.worker_process import WorkerConfig
from simulator.checks.plain_record import Key

STRIKE_EVERY_S: Final = 0.25
SERVER_DOWN_S: Final = (0.0, 0.8)
STOPPED_S: Final = (0.2, 4.0)
"""Leases are 1 to 2 s long: about half of the stops outlast them."""
PROGRESS_EVERY_S: Final = 10


class Plan(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    workers: int
    jobs: int
    kills: int
    """Strikes against workers: SIGKILL and SIGSTOP together."""
    server_kills: int
    replicas: int
    seed: int

    @property
    def seconds(self) -> float:
        """How long the strikes take, more or less."""
        return self.kills * STRIKE_EVERY_S


class Outcome(NamedTuple):
    """What a run left behind."""

    pool: WorkerPool
    check: FinalCheck
    promised: list[Key]


async def strike_workers(pool: WorkerPool, plan: Plan, chance: random.Random) -> None:
    """Kill and stop workers, half and half."""
    while pool.kills + pool.stops < plan.kills:
        await asyncio.sleep(chance.expovariate(1 / STRIKE_EVERY_S))
        if chance.random() < 0.5:
            pool.kill_one()
        else:
            pool.stop_one(chance.uniform(*STOPPED_S))


async def strike_servers(servers: Sequence[LocalServer], plan: Plan, chance: random.Random) -> None:
    """Kill one server at a time, so that a cluster keeps its majority."""
    pause_s = plan.seconds / (plan.server_kills + 1)
    for _ in range(plan.server_kills):
        await asyncio.sleep(pause_s * chance.uniform(0.6, 1.2))
        server = chance.choice(list(servers))
        server.kill()
        await asyncio.sleep(chance.uniform(*SERVER_DOWN_S))
        await server.start()


async def report_progress(pool: WorkerPool, plan: Plan, replica: Replica) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        say(
            f"{pool.kills + pool.stops} of {plan.kills} strikes, {pool.hits} in the middle of a"
            f" job; {len(pool.running)} workers up; {replica.sizes.by_state()}"
        )


async def trial(directory: Path, plan: Plan) -> Outcome:
    """The whole run: mesh, workers, jobs, strikes, and the check of the log."""
    chance = random.Random(plan.seed)
    home, logs = StateDirectory(directory / "home"), directory / "logs"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, plan.replicas))
        await found_mesh(home, servers, SHORT_LEASES)
        beside = await stack.enter_async_context(attended(home))
        config = WorkerConfig(home=home.path, journal=directory / "journal", log=logs)
        pool = await stack.enter_async_context(WorkerPool([config], plan.workers, chance))
        await pool.wait_until_ready()
        reporting = asyncio.ensure_future(report_progress(pool, plan, beside.replica))
        stack.callback(reporting.cancel)
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(
                call_jobs(
                    beside.caller,
                    plan.jobs,
                    lambda: (pool.kills + pool.stops + 1) / plan.kills,
                    chance,
                )
            )
            tasks.create_task(strike_workers(pool, plan, chance))
            tasks.create_task(strike_servers(servers, plan, chance))
        await wait_for_ends(beside.replica, plan.jobs)
        check = await check_log(home)
    return Outcome(pool, check, calling.result())


async def run(plan: Plan) -> int:
    begun = time.monotonic()
    with run_directory() as directory:
        pool, check, promised = await trial(directory, plan)
    summary: dict[str, object] = {
        **summarize(check, pool.tally, promised, pool.crashed),
        "kills": pool.kills + pool.stops,
        "server_kills": plan.server_kills,
        "killed": pool.kills,
        "stopped": pool.stops,
        "hits": pool.hits,
        "workers": plan.workers,
        "replicas": plan.replicas,
        "seed": plan.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }
    return report(summary, holds=holds(summary))


def main(argv: list[str]) -> int:
    parser = parser_for("workers", "under 45 s")
    parser.add_argument("--kills", type=int, help="of workers: SIGKILL and SIGSTOP together")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--server-kills", type=int)
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=1)
    args = parser.parse_args(argv)
    kills = args.kills or (60 if args.quick else 300)
    plan = Plan(
        kills=kills,
        jobs=args.jobs or max(kills * 20 // 3, 20),
        workers=args.workers or (8 if args.quick else 12),
        server_kills=max(kills // 15, 1) if args.server_kills is None else args.server_kills,
        replicas=args.replicas,
        seed=args.seed,
    )
    return run_to_end(run(plan))
