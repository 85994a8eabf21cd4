"""`bench growth [--axis A]`: one thing at a time of which a mesh may have many.

Without `--axis`: jobs and idle workers. `all` has those and kinds, members, locks, documents,
inboxes and plans, each on a mesh of its own.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any, Final

from bench.growth import axes, jobs, workers
from bench.measurement import growth_charts
from bench.measurement.report import conclude
from bench.meshes.idle_fleet import IDLE_S

JOBS: Final = 100_000
QUICK_JOBS: Final = 2_000
HOUR_S: Final = 60.0
QUICK_HOUR_S: Final = 6.0
WORKERS: Final = 4_000
"""What a server on two cores, shared with all of them, can start (docs/understand/scale.md)."""
QUICK_WORKERS: Final = 40
WATCHED_S: Final = 120.0
QUICK_PART: Final = 50
"""With `--quick`, an axis has this many of its things less."""
LONG: Final = ("jobs", "workers")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench growth")
    parser.add_argument("--axis", choices=[*LONG, *axes.AXES, "all"])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--hour", type=float, default=HOUR_S, help="how many seconds an hour is")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds before a look at them")
    parser.add_argument("--plot", type=Path, help="a folder to draw it in, as SVG")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    if args.plot is not None:
        args.plot.mkdir(parents=True, exist_ok=True)
    chosen = {None: LONG, "all": (*LONG, *axes.AXES)}.get(args.axis, (args.axis,))
    found: dict[str, dict[str, Any]] = {}
    told: dict[str, Any] = {}
    if "jobs" in chosen:
        count = min(args.jobs, QUICK_JOBS) if args.quick else args.jobs
        hour_s = QUICK_HOUR_S if args.quick else args.hour
        told = jobs.report(count, hour_s, *asyncio.run(jobs.measure(count, hour_s)))
    if "workers" in chosen:
        count = min(args.workers, QUICK_WORKERS) if args.quick else args.workers
        idle_s, watch_s = (0.0, 2.0) if args.quick else (args.idle, WATCHED_S)
        times = workers.Times(idle_s=idle_s, watch_s=watch_s)
        found["workers"] = asyncio.run(workers.run(count, times))
        told["idle_msgs_per_worker"] = found["workers"]["idle_msgs_per_worker"]
    rest = [name for name in axes.AXES if name in chosen]
    found |= asyncio.run(axes.run(rest, 1 / QUICK_PART if args.quick else 1.0))
    slopes = [one["worker_slope"] for one in found.values()]
    slopes += [told["worker_slope"]] if "worker_slope" in told else []
    if args.plot is not None:
        if "jobs" in told:
            (args.plot / "growth-jobs.svg").write_text(growth_charts.jobs(told))
        if found:
            (args.plot / "growth-axes.svg").write_text(growth_charts.axes(found))
    conclude(light_worker_slope=max(slopes), **told, axes=found)
    return 0 if told.get("judged_ok") == told.get("judged") else 1
