"""`bench metrics`: metrics compared with the log, and what metrics and traces cost a worker.

First a mesh of real processes: a full node and a worker, both with their HTTP interface, and jobs
that succeed, fail, are retried, are cancelled or wait for a worker that never comes. Both are
scraped, the log is read and verified anew, and everything that both count is compared.

Then what scraping once a second costs a worker, and what OpenTelemetry's SDK costs it, in turns
that follow each other quickly (`cost`); the medians must stay within `MOST_PCT`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.caller.submission import cancel
from antiphon.runtime.identity.state_directory import StateDirectory
from bench.measurement.child_process import child_process, wait_for_word
from bench.measurement.report import conclude, median, say
from bench.meshes.fresh_mesh import FreshMesh, fresh_mesh
from bench.metrics.calls import LATER, NOBODY, SHAKY, STEADY, TOKEN, call
from bench.metrics.cost import HOWS, SCRAPE_S, How, costs
from bench.metrics.log_counts import LogCounts, count_log
from bench.metrics.scrape import Sample, named, scrape

WITHIN_S: Final = 900.0
MOST_PCT: Final = {"metrics": 5.0, "traces": 15.0}
"""Of an empty task's processor time. A span of OpenTelemetry's SDK takes most of the second."""


def story(jobs: int) -> tuple[list[ScheduleBody], int]:
    """Of 20 jobs, 14 succeed, 3 may fail, 2 are retried, 1 waits; and how many have no worker."""
    kinds = [STEADY] * 14 + [SHAKY] * 3 + [LATER] * 2 + [NOBODY]
    bodies = [call(kinds[number % 20], number) for number in range(jobs)]
    return bodies, sum(one.kind == NOBODY for one in bodies)


# --- are they equal? --------------------------------------------------------------------------


@asynccontextmanager
async def full_node(home: StateDirectory) -> AsyncIterator[int]:
    """`antiphon node --http` beside a block; its port."""
    process = await start_owned(
        *(sys.executable, "-c", "import sys; from antiphon.interfaces.cli import main; main()"),
        *("node", "--json", "--http", "127.0.0.1:0", "--home", str(home.path)),
        stdout=PIPE,
        env={**os.environ, "ANTIPHON_HTTP_TOKEN": TOKEN},
    )
    try:
        said = await wait_for_word(process, '{"event": "ready"', 120)
        where = json.loads('{"event": "ready"' + said)["http"]
        yield int(where.rpartition(":")[2])
    finally:
        process.terminate()
        await process.wait()


async def compared(jobs: int) -> tuple[list[str], LogCounts]:
    """Every difference between the metrics and the log, in words."""
    async with fresh_mesh("open", workers=1) as mesh:
        home = mesh.worker_homes[0]
        async with (
            full_node(home) as node_port,
            child_process("bench.metrics.worker", "--home", str(home.path)) as worker,
        ):
            await let_them_run(mesh, jobs, node_port)
            of_node = await scrape(node_port, TOKEN)
            of_worker = await scrape(int(worker[1]), TOKEN)
            async with assembly.join(home, "client") as reader:
                told = await count_log(reader)
    found = [
        *differences("node", of_node, "jobs", told.jobs),
        *differences("node", of_node, "jobs_ended_total", told.jobs_ended_total),
        *differences("node", of_node, "claim_seconds_count", told.claims),
        *differences("worker", of_worker, "runs_total", told.runs_total),
        *differences("worker", of_worker, "run_seconds_count", told.claims),
        *differences("worker", of_worker, "claim_seconds_count", told.claims),
    ]
    return found, told


async def let_them_run(mesh: FreshMesh, jobs: int, node_port: int) -> None:
    """Submit, cancel every tenth of those that nobody runs, and wait for the node to have it."""
    bodies, waiting = story(jobs)
    await submit_many(mesh.caller, bodies)
    left = [one for one in bodies if one.kind == NOBODY]
    for one in left[::10]:
        await cancel(mesh.caller, one.kind, manifest.job_id(one.manifest), reason="bench")
    ending = jobs - waiting + len(left[::10])
    async with asyncio.timeout(WITHIN_S):
        while True:
            ended = named(await scrape(node_port, TOKEN), "jobs_ended_total")
            if sum(ended.values()) >= ending:
                return
            await asyncio.sleep(0.5)


def differences(
    who: str, samples: Mapping[Sample, float], name: str, wanted: Mapping[Sample, int]
) -> list[str]:
    """Where a metric is not what the log says."""
    found = named(dict(samples), name)
    return [
        f"{who}: {name}{list(key)} is {found.get(key, 0)}, the log says {wanted.get(key, 0)}"
        for key in sorted({*found, *wanted})
        if found.get(key, 0) != wanted.get(key, 0)
    ]


# --- what do they cost? -----------------------------------------------------------------------


def overheads_pct(found: Mapping[How, list[float]], how: How) -> list[float]:
    """What it costs more than nothing, round by round."""
    pairs = zip(found[how], found["plain"], strict=True)
    return [(with_it / plain - 1) * 100 for with_it, plain in pairs]


async def run(jobs: int, cost_jobs: int, rounds: int, *, is_quick: bool) -> int:
    wrong, told = await compared(jobs)
    for one in wrong[:20]:
        say(one)
    say(f"{jobs:,} jobs, {told.records:,} records: {len(wrong)} differences")
    found = await costs(cost_jobs, rounds)
    over = {how: overheads_pct(found, how) for how in ("metrics", "traces")}
    conclude(
        jobs=jobs,
        records=told.records,
        equal=not wrong,
        differences=len(wrong),
        ended={" ".join(key): number for key, number in sorted(told.jobs_ended_total.items())},
        **{f"worker_cpu_ms_{how}": round(median(found[how]), 3) for how in HOWS},
        metrics_cost_pct=round(median(over["metrics"]), 1),
        metrics_cost_spread=[round(min(over["metrics"]), 1), round(max(over["metrics"]), 1)],
        traces_cost_pct=round(median(over["traces"]), 1),
        traces_cost_spread=[round(min(over["traces"]), 1), round(max(over["traces"]), 1)],
        cost_jobs=cost_jobs,
        rounds=rounds,
        scrape_s=SCRAPE_S,
    )
    # Three short rounds say whether it runs, not what it costs.
    is_cheap = is_quick or all(median(over[how]) <= most for how, most in MOST_PCT.items())
    return 0 if is_cheap and not wrong else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench metrics")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--cost-jobs", type=int, default=300, help="jobs of one turn")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--quick", action="store_true", help="400 jobs, three short rounds")
    args = parser.parse_args(argv)
    if args.quick:
        return asyncio.run(run(400, 100, 3, is_quick=True))
    return asyncio.run(run(args.jobs, args.cost_jobs, args.rounds, is_quick=False))
