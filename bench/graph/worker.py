"""The worker process of `bench graph`: writes down when each limited job began and ended."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Final

from antiphon import assembly
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.worker import WorkerSettings

KIND: Final = "bench.step"
LIMITED: Final = "bench.limited"
FAILS: Final = -1
HELD_S: Final = 0.1
"""How long a limited job runs: long enough to meet others."""


async def step(number: int, _before: object = None) -> int:
    """A step of the graph."""
    if number == FAILS:
        raise ValueError("this step fails")
    return number


async def work(home: StateDirectory, slots: int, witness: Path) -> None:
    """Be a worker until the process is ended."""
    with witness.open("a", buffering=1) as seen:

        async def limited(number: int, _before: object = None) -> int:
            seen.write(f"{time.monotonic_ns()} 1\n")
            await asyncio.sleep(HELD_S)
            seen.write(f"{time.monotonic_ns()} -1\n")
            return number

        handlers = Handlers()
        handlers.register(KIND, step)
        handlers.register(LIMITED, limited)
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
    parser.add_argument("--witness", type=Path, required=True)
    args = parser.parse_args()
    asyncio.run(work(StateDirectory(args.home), args.slots, args.witness))


if __name__ == "__main__":
    main()
