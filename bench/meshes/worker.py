"""A worker process: the product's own `Worker` on one kind, with an empty task or a short sleep.

Prints `ready` with the processor time that it has used so far, in seconds; then, if `--jobs` is
given, `done` when it has done that many. Ends when it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import nullcontext
from pathlib import Path

import structlog  # noqa: F401 - a worker loads it with its first job; that is not counted

from antiphon import assembly
from antiphon.interfaces.cli.screen.command_loop import collect_less_often
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.worker import WorkerSettings
from bench.meshes.event_loop import run
from bench.meshes.short_hours import short_hours
from bench.signed_log import KIND


async def work(home: StateDirectory, slots: int, jobs: int, work_ms: float) -> None:
    async def task(_number: int) -> int:
        if work_ms:
            await asyncio.sleep(work_ms / 1000)
        return 0

    handlers = Handlers()
    handlers.register(KIND, task)
    async with (
        assembly.join(home, "worker", kinds=(KIND,)) as connection,
        assembly.working(
            connection, handlers.executors(), WorkerSettings(slots=slots, drain_s=0)
        ) as worker,
    ):
        collect_less_often()
        print(f"ready {time.process_time()}", flush=True)
        if jobs:
            while worker.done < jobs:
                await asyncio.sleep(0.02)
            print(f"done {worker.done}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--work-ms", type=float, default=0)
    parser.add_argument("--short-hours", action="store_true", help="as the mesh of growth has")
    args = parser.parse_args()
    with short_hours() if args.short_hours else nullcontext():
        run(work(StateDirectory(args.home), args.slots, args.jobs, args.work_ms))


if __name__ == "__main__":
    main()
