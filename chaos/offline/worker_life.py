"""A laptop's worker, in a process of its own: it loses its connection in the middle of a job.

The handler takes a small step and a large one, and has a large result. When all of it is in the
outbox, the process ends as one that loses power does; or it is killed before, at a step.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Final

from antiphon import JobContext, assembly
from antiphon.runtime.executors.handlers import HandlerOptions, Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.outbox.outbox_item import Artifact, Complete
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.runtime.worker.worker import WorkerSettings
from antiphon.sdk.connection.connection_outbox import FOLDER
from antiphon.sdk.worker import answering
from chaos.offline.process import KEY, LaptopConfig, Line, Steps, note, run

LARGE: Final = 100_000
LOOK_S: Final = 0.05
LONG_S: Final = 3600
"""A lease that nobody waits for."""
STEPS: Final = (("small", 1), ("large", LARGE))
CUT: Final = ".cut"
"""The end of the name of a file that says that there is no connection any more."""


class WorkerLife:
    """One life of it."""

    def __init__(self, config: LaptopConfig) -> None:
        """Nothing is claimed yet."""
        self._config = config
        self._steps = Steps(config.kill_at)
        self._store = OutboxStore(config.home / FOLDER)

    async def handle(self, text: str, *, ctx: JobContext) -> str:
        """Take the steps once there is no connection."""
        note(self._config, Line("claimed", 0, ctx.job_id))
        try:
            return await self._made(text, ctx)
        except asyncio.CancelledError:
            note(self._config, Line("late", 0, ctx.job_id))
            os._exit(1)

    async def _made(self, text: str, ctx: JobContext) -> str:
        while not self._config.journal.with_suffix(CUT).exists():
            await asyncio.sleep(LOOK_S)
        self._steps.watch()
        value = ""
        for number, (name, size) in enumerate(STEPS):
            value = await ctx.step(name, str.ljust, text, size)
            note(self._config, Line("made", number, ctx.job_id, name))
        return value

    async def live(self) -> None:
        """Run one job until its end waits."""
        home, handlers = StateDirectory(self._config.home), Handlers()
        handlers.register(self._config.kind, self.handle, HandlerOptions(on_disconnect="continue"))
        async with AsyncExitStack() as stack:
            joining = assembly.join(home, "worker", key=KEY, kinds=(self._config.kind,))
            connection = await stack.enter_async_context(joining)
            working = answering(connection, handlers, home, WorkerSettings(slots=1))
            await stack.enter_async_context(working)
            while not (ends := self._ends()):
                await asyncio.sleep(LOOK_S)
            note(self._config, Line("made", len(STEPS), ends[0], "end"))
            note(self._config, Line("steps", self._steps.done))
            os._exit(0)

    def _ends(self) -> list[str]:
        items = [one.what for one in self._store.items() if one.is_tentative]
        if any(isinstance(one, Artifact) for one in items):
            return [one.name for one in items if isinstance(one, Complete)]
        return []


def main(config: LaptopConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    run(config, WorkerLife(config).live())
