"""The worker process of `bench many`: runs an empty task until it is ended. Prints `ready`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from antiphon import assembly
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.worker import WorkerSettings
from bench.signed_log import KIND


async def double(number: int) -> int:
    """The task."""
    return 2 * number


async def work(home: StateDirectory, slots: int) -> None:
    """Be a worker until the process is ended."""
    handlers = Handlers()
    handlers.register(KIND, double)
    async with (
        assembly.join(home, "worker") as connection,
        assembly.working(connection, handlers.executors(), WorkerSettings(slots=slots)),
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True)
    args = parser.parse_args()
    serving = work(StateDirectory(args.home), args.slots)
    try:
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)


if __name__ == "__main__":
    main()
