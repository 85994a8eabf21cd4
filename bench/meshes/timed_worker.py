"""The idle worker of `bench latency`: notes when a handler starts, and when a bare record arrives.

One process with one worker and, on the same loop, a bare pull consumer of the same engine client.
So the difference between the two figures is what Antiphon adds, not what the machine does. Times
are `CLOCK_BOOTTIME`, one clock for all processes of a machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path

from antiphon import assembly
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.ports import OpLog
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.worker import WorkerSettings

KIND = "bench.start"
BARE = "bench.bare"
"""A kind without jobs: bare records lie on its call subjects."""
BARE_AHEAD = 64


def boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def bare_queue(mesh: str) -> tuple[str, str]:
    """Subject filter and name of the bare consumer."""
    return job_subjects.calls_of(mesh, "normal", BARE, below=False), "bench-bare"


async def note_bare(log: OpLog, mesh: str, out: int) -> None:
    subject, name = bare_queue(mesh)
    async with log.work(subject, name=name) as queue:
        queue.grant(BARE_AHEAD)
        while True:
            delivery = await queue.next()
            queue.grant(1)
            at_ns = boot_ns()
            os.write(out, b"bare %b %d\n" % (delivery.record.subject[-64:].encode(), at_ns))
            delivery.ack()


async def work(home: StateDirectory, out: int) -> None:
    async def start(number: int) -> int:
        os.write(out, b"start %d %d\n" % (number, boot_ns()))
        return 0

    handlers = Handlers()
    handlers.register(KIND, start)
    async with (
        assembly.join(home, "worker") as connection,
        assembly.working(connection, handlers.executors(), WorkerSettings(drain_s=0)),
    ):
        print("ready", flush=True)
        await note_bare(connection.engine.log, connection.session.mesh, out)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--times", type=Path, required=True)
    args = parser.parse_args()
    out = os.open(args.times, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work(StateDirectory(args.home), out))
    else:
        uvloop.run(work(StateDirectory(args.home), out))


if __name__ == "__main__":
    main()
