"""`chaos clock`: the clocks of workers, callers and full nodes jump and drift while jobs run.

Every process but this one has a wall clock that is set from outside (`fake_clock.py`): forwards
and back by seconds to weeks, too fast, too slow, and right again after a while. Some are suspended.
Sometimes all clocks jump together, which looks to the processes as if the server's clock had jumped
the other way: libfaketime cannot change the clock of the server itself. Nothing may be lost,
accepted twice or run under a used fence; and every process must go on by itself once its clock is
right.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from bench.measurement.report import say
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.audit.final_check import FinalCheck, check_log
from chaos.clock import fake_clock
from chaos.clock.process_group import ProcessGroup
from chaos.clock.trials import JumpRunner, Plan, TimestampCheck
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.job_load import ENDED_WITHIN_S, call_job
from chaos.cluster.mesh import SHORT_LEASES, attended
from chaos.cluster.worker_process import KINDS
from simulator.checks.plain_record import Key

SAID_SHARE: Final = 0.6
"""Of the processes that should have logged a wrong clock, how many must have: some were idle."""
BACKLOG_PER_WORKER: Final = 4
WORK_MS: Final = (40, 250)
PROGRESS_EVERY_S: Final = 10


async def keep_calling(
    session: Session, replica: Replica, plan: Plan, chance: random.Random, called: list[Key]
) -> None:
    """Keep a little more work open than the workers can do, so that each always has some."""
    most = BACKLOG_PER_WORKER * plan.workers
    while True:
        open_jobs = sum(replica.sizes.by_state().get(state, 0) for state in ("pending", "running"))
        if open_jobs < most:
            number = len(called)
            kind = KINDS[number % len(KINDS)]
            called.append(await call_job(session, kind, number, chance.randint(*WORK_MS)))
        else:
            await asyncio.sleep(0.02)


class Outcome(Struct, frozen=True, kw_only=True):
    """What a run left behind."""

    group: ProcessGroup
    runner: JumpRunner
    timestamps: TimestampCheck
    check: FinalCheck
    promised: list[Key]


async def trial(directory: Path, plan: Plan, preload: Path) -> Outcome:
    """The whole run."""
    chance = random.Random(plan.seed)
    home, timestamps = StateDirectory(directory / "home"), TimestampCheck()
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, 1))
        await found_mesh(home, servers, SHORT_LEASES)
        beside = await stack.enter_async_context(attended(home))
        beside.node.watchers.append(timestamps.add)
        group = await stack.enter_async_context(
            ProcessGroup(directory / "processes", home.path, preload)
        )
        for number in range(plan.workers):
            await group.start("worker", f"worker-{number + 1}")
        other_caller = await group.start("caller", "caller-1")
        await group.start("node", "node-1")
        await group.wait_until_ready()
        runner = JumpRunner(group, plan, chance)
        called: list[Key] = []
        calling = asyncio.ensure_future(
            keep_calling(beside.caller, beside.replica, plan, chance, called)
        )
        reporting = asyncio.ensure_future(report_progress(runner, beside.replica))
        try:
            await runner.run()
        finally:
            for task in (calling, reporting):
                task.cancel()
            await asyncio.wait([calling, reporting])
        await group.end_one(other_caller)
        promised = called + [(one.kind, one.job_id) for one in other_caller.acked()]
        await all_ended(beside.replica, promised)
        await group.end()
        check = await check_log(home)
    return Outcome(
        group=group, runner=runner, timestamps=timestamps, check=check, promised=promised
    )


async def all_ended(replica: Replica, promised: Sequence[Key]) -> None:
    """Wait for the ends of these jobs, at most for `ENDED_WITHIN_S`.

    There may be others: a caller that is killed leaves a job whose call was not acknowledged.
    """
    deadline, left = time.monotonic() + ENDED_WITHIN_S, list(promised)
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        found = [(key, replica.ask(ReplicaJobs).job(*key)) for key in left]
        left = [key for key, job in found if job is None or not job.is_terminal]
    for key in left[:10]:
        say(f"not ended in {ENDED_WITHIN_S:g} s: {key}")


def succeeded(check: FinalCheck, promised: Sequence[Key]) -> int:
    """Of these jobs, how many have an accepted result that says so."""
    return sum(
        any(one.status == "succeeded" for one in check.accepted.get(key, ()))
        for key in set(promised)
    )


async def report_progress(runner: JumpRunner, replica: Replica) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        say(f"{runner.begun} of {runner.plan.jumps} jumps; {replica.sizes.by_state()}")


def summarize(outcome: Outcome) -> dict[str, Any]:
    """The report, in the keys of docs/evidence.md."""
    check, tally = outcome.check, outcome.group.tally
    trials, timestamps = outcome.runner.trials, outcome.timestamps
    same_fence = tally.jobs_with_reused_fence()
    for violation in check.violations:
        say(f"broken law: {violation}")
    for reused in timestamps.reused[:10]:
        say(reused)
    recoveries = [one.recovery_s for one in trials if one.recovery_s is not None]
    return {
        "trials": outcome.runner.begun,
        "acked": len(set(outcome.promised)),
        "lost": len(check.lost(outcome.promised)),
        "fence_reuse": len(same_fence) + len(timestamps.reused),
        "recovery_s_max": round(max(recoveries, default=0.0), 2),
        "stuck": sum(one.recovery_s is None for one in trials),
        "to_say": sum(one.said is not None for one in trials),
        "said": sum(one.said is True for one in trials),
        "accepted_twice": len(check.accepted_twice),
        "succeeded": succeeded(check, outcome.promised),
        "executions": len(tally.executions),
        "overlapped": len(tally.overlapped()),
        "expiries": check.accepted_ops["job.expire"],
        "refused": {
            name: count
            for name, count in sorted(timestamps.verdicts.items())
            if name in {"drift", "stale", "too_old", "fence", "lease_over"}
        },
        "unwitnessed": len(check.without_execution(tally)),
        "broken_laws": check.violation_count,
        "crashed": len(outcome.group.crashed),
        "records": check.records,
        "jumps": dict(Counter(one.jump.how for one in trials)),
        "together": outcome.runner.together,
        "reborn": sum(one.jump.restarts for one in trials),
    }


NEVER: Final = (
    "lost",
    "fence_reuse",
    "stuck",
    "accepted_twice",
    "unwitnessed",
    "broken_laws",
    "crashed",
)


def holds(summary: dict[str, Any]) -> bool:
    """Whether nothing happened that must not, and wrong clocks were logged."""
    return (
        summary["said"] >= summary["to_say"] * SAID_SHARE
        and not any(summary[name] for name in NEVER)
        and summary["succeeded"] == summary["acked"]
    )


async def run(plan: Plan) -> int:
    preload = fake_clock.library()
    if preload is None:
        say(fake_clock.MISSING)
        print(json.dumps({"skipped": fake_clock.MISSING}))
        return 2
    begun = time.monotonic()
    with run_directory() as directory:
        summary = summarize(await trial(directory, plan, preload))
    summary |= {
        "workers": plan.workers,
        "seed": plan.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }
    return report(summary, holds=holds(summary))


def main(argv: list[str]) -> int:
    parser = parser_for("clock", "under 45 s")
    parser.add_argument("--jumps", type=int, help="clocks set wrong, and right again")
    parser.add_argument("--workers", type=int)
    args = parser.parse_args(argv)
    plan = Plan(
        jumps=args.jumps or (24 if args.quick else 100),
        workers=args.workers or (4 if args.quick else 6),
        at_once=3 if args.quick else 4,
        seed=args.seed,
    )
    return run_to_end(run(plan))
