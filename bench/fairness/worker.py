"""One worker process of `bench fairness`: says `ready` and its id, then works until killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from antiphon import assembly
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.worker import WorkerSettings
from bench.signed_log import KIND


async def noop(_number: int) -> int:
    return 0


async def work(home: StateDirectory) -> None:
    handlers = Handlers()
    handlers.register(KIND, noop)
    async with (
        assembly.join(home, "worker") as connection,
        assembly.working(connection, handlers.executors(), WorkerSettings(slots=16)),
    ):
        print(f"ready {connection.keyring.did}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(StateDirectory(Path(sys.argv[1]))))
