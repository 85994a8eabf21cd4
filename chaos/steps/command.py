"""`chaos steps`: jobs of many steps on real workers that are killed and stopped at random.

Each step is written into the execution journal when it is computed. Afterwards the journal is held
against the log. A step that was computed under a fence, although an earlier tenure had stored it,
or twice under the fence that stored it, is *repeated*. A step that an ended job lacks, or whose
stored result is not the one that the job returned, is *lost*. A worker that was stopped may compute
what its successor has stored meanwhile: its own tenure is the earlier one, so that is neither.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.errors import AntiphonError
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.audit.execution_journal import ExecutionTally
from chaos.audit.final_check import FinalCheck, check_log
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.job_load import RETRY_S, wait_for_ends
from chaos.cluster.mesh import SHORT_LEASES, attended
from chaos.cluster.worker_pool import WorkerPool
from chaos.cluster.worker_process import STEP_KINDS, WorkerConfig
from simulator.checks.plain_record import Key

STEPS: Final = 20
STEP_MS: Final = 15
STRIKE_EVERY_S: Final = 0.2
STOPPED_S: Final = (0.2, 4.0)
"""Leases are 1 to 2 s long: about half of the stops outlast them."""
SHOWN: Final = 10


class Plan(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    kills: int
    """Strikes against workers: three of four are SIGKILL, the others SIGSTOP."""
    jobs: int
    workers: int
    seed: int
    steps: int = STEPS


class Found(Struct, kw_only=True):
    """What journal and log say about steps."""

    stored: int = 0
    computed: int = 0
    repeated: int = 0
    lost: int = 0


def compare(
    check: FinalCheck, tally: ExecutionTally, called: list[Key], *, steps: int = STEPS
) -> Found:
    """Hold what was computed against what was stored, job by job."""
    found = Found()
    for key in called:
        stored = check.steps(key)
        results = [one for one in check.accepted[key] if one.status == "succeeded"]
        returned = json.loads(results[0].result) if results and results[0].result else []
        for number in range(steps):
            fences = tally.computed.get((key[1], number), [])
            found.computed += len(fences)
            one = stored.get(f"step {number}")
            if one is None:
                _say(f"{key}: step {number} is not stored", found.lost)
                found.lost += 1
                continue
            found.stored += 1
            again = sum(fence > one.fence for fence in fences)
            again += max(sum(fence == one.fence for fence in fences) - 1, 0)
            if again:
                _say(f"{key}: step {number} of {one.fence} again under {fences}", found.repeated)
            found.repeated += again
            if len(returned) <= number or json.dumps(returned[number]) != one.value:
                _say(f"{key}: step {number} is {one.value} on the log", found.lost)
                found.lost += 1
    return found


def _say(what: str, before: int) -> None:
    if before < SHOWN:
        say(what)


async def _call(session: Session, plan: Plan, progress: WorkerPool) -> list[Key]:
    """Call all jobs, spread over the run."""
    called: list[Key] = []
    for number in range(plan.jobs):
        while (progress.kills + progress.stops + 1) / plan.kills < number / plan.jobs:
            await asyncio.sleep(0.02)
        kind = STEP_KINDS[number % len(STEP_KINDS)]
        text = call_text((plan.steps, STEP_MS, number), {})
        content = manifest.author({"command": [f"@{kind}"], "args": [text], "timeout": 60})
        while True:
            try:
                job = await submission.submit(session, ScheduleBody(kind=kind, manifest=content))
            except AntiphonError:
                await asyncio.sleep(RETRY_S)
            else:
                called.append((job.kind, job.id))
                break
    return called


async def _strike(pool: WorkerPool, plan: Plan, chance: random.Random) -> None:
    while pool.kills + pool.stops < plan.kills:
        await asyncio.sleep(chance.expovariate(1 / STRIKE_EVERY_S))
        if chance.random() < 0.75:
            pool.kill_one()
        else:
            pool.stop_one(chance.uniform(*STOPPED_S))


async def trial(directory: Path, plan: Plan) -> dict[str, object]:
    """The whole run: mesh, workers, jobs, strikes, and what journal and log say."""
    chance = random.Random(plan.seed)
    home, logs = StateDirectory(directory / "home"), directory / "logs"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, servers, SHORT_LEASES)
        beside = await stack.enter_async_context(attended(home))
        config = WorkerConfig(home=home.path, journal=directory / "journal", log=logs)
        pool = await stack.enter_async_context(WorkerPool([config], plan.workers, chance))
        await pool.wait_until_ready()
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(_call(beside.caller, plan, pool))
            tasks.create_task(_strike(pool, plan, chance))
        await wait_for_ends(beside.replica, plan.jobs)
        check = await check_log(home)
    called = calling.result()
    found = compare(check, pool.tally, called, steps=plan.steps)
    for violation in check.violations:
        say(f"broken law: {violation}")
    return {
        "steps": found.stored,
        "kills": pool.kills + pool.stops,
        "repeated": found.repeated,
        "lost": found.lost,
        "computed": found.computed,
        "jobs": len(called),
        "jobs_lost": len(check.lost(called)),
        "hits": pool.hits,
        "violations": check.violation_count,
        "crashed": len(pool.crashed),
    }


async def run(plan: Plan) -> int:
    begun = time.monotonic()
    with run_directory() as directory:
        summary = await trial(directory, plan)
    summary |= {"seed": plan.seed, "seconds": round(time.monotonic() - begun, 1)}
    wrong = ("repeated", "lost", "jobs_lost", "violations", "crashed")
    return report(summary, holds=not any(summary[name] for name in wrong))


def main(argv: list[str]) -> int:
    parser = parser_for("steps", "60 kills")
    parser.add_argument("--kills", type=int, help="of workers: SIGKILL and SIGSTOP together")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--workers", type=int)
    args = parser.parse_args(argv)
    kills = args.kills or (60 if args.quick else 1_000)
    plan = Plan(
        kills=kills,
        jobs=args.jobs or kills,
        workers=args.workers or 8,
        seed=args.seed,
    )
    return run_to_end(run(plan))
