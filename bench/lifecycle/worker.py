"""One worker process of `bench lifecycle`: drains the queue, as Antiphon or bare.

Bare means: the same client code, the same consumer, the same records in size and number, the
same compare-and-set and the same acknowledgement, but nothing is signed, verified, decoded or
judged. Prints `ready` with the processor time that it has used so far, in seconds, then `done` with
its count, on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog  # noqa: F401 - a worker loads it with its first job; that is not counted

from antiphon import assembly
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.errors import AntiphonError
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.worker import WorkerSettings, queue_name
from bench.signed_log import KIND


async def noop(_number: int) -> int:
    return 0


async def ours(home: StateDirectory, slots: int, jobs: int) -> None:
    handlers = Handlers()
    handlers.register(KIND, noop)
    async with (
        assembly.join(home, "worker") as connection,
        assembly.working(connection, handlers, WorkerSettings(slots=slots)) as worker,
    ):
        print(f"ready {time.process_time()}", flush=True)
        await _until(lambda: worker.done >= jobs)
        print(f"done {worker.done}", flush=True)


async def bare(
    home: StateDirectory, slots: int, jobs: int, name: str, sizes: tuple[int, int]
) -> None:
    tokens = itertools.count()
    claim, complete = (b"x" * size for size in sizes)
    done = 0
    async with assembly.join(home, "worker") as connection:
        log, mesh = connection.engine.log, home.mesh().mesh
        calls = job_subjects.calls_of(mesh, "normal", KIND, below=False)
        async with (
            log.work(calls, name=queue_name(KIND, "normal")) as queue,
            asyncio.TaskGroup() as tasks,
        ):

            async def attend() -> None:
                nonlocal done
                while True:
                    queue.grant(1)
                    delivery = await queue.next()
                    job_id = delivery.record.subject[-64:]
                    subject = job_subjects.job(mesh, KIND, job_id)
                    try:
                        seq = await log.append(
                            subject,
                            claim,
                            message_id=f"{name}{next(tokens)}",
                            expected_last=0,
                        )
                        await log.append(
                            subject,
                            complete,
                            message_id=f"{name}{next(tokens)}",
                            expected_last=seq,
                        )
                    except AntiphonError as problem:
                        print(f"bare: {problem}", file=sys.stderr, flush=True)
                        continue
                    delivery.ack()
                    done += 1

            running = [tasks.create_task(attend()) for _ in range(slots)]
            print(f"ready {time.process_time()}", flush=True)
            await _until(lambda: done >= jobs)
            print(f"done {done}", flush=True)
            for task in running:
                task.cancel()


async def _until(is_over: Callable[[], bool]) -> None:
    """Wait for the count, or for the parent to end this process."""
    while not is_over():
        await asyncio.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["ours", "bare"])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--sizes", type=int, nargs=2, default=(0, 0))
    args = parser.parse_args()
    home = StateDirectory(args.home)
    work = (
        ours(home, args.slots, args.jobs)
        if args.mode == "ours"
        else bare(home, args.slots, args.jobs, args.name, tuple(args.sizes))
    )
    _run(work)


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
