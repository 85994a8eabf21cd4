"""Cancelling a running job stops it, wherever it runs, and soon."""

import asyncio
import threading
from pathlib import Path

import pytest

from antiphon import JobContext
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handlers import HandlerOptions
from tests.runtime import spawned
from tests.runtime.executors.test_process_pool import is_alive
from tests.runtime.meshes import CALM, KIND, a_mesh, call, eventually, on_both_engines_in_real_time

YOUNG_S, OLD_S = 0.0, 1.2
"""A job's lane is followed once it has run for a second."""


class InLoop:
    """A coroutine: it is cancelled."""

    how = HandlerOptions()

    def __init__(self, _folder: Path) -> None:
        self.began, self.ended = threading.Event(), threading.Event()
        self.args = ()

    async def handle(self) -> None:
        self.began.set()
        try:
            await asyncio.sleep(600)
        finally:
            self.ended.set()

    def has_begun(self) -> bool:
        return self.began.is_set()

    def has_ended(self) -> bool:
        return self.ended.is_set()


class InThread(InLoop):
    """A function: it looks whether anybody still wants its result."""

    def handle(self, ctx: JobContext) -> None:  # type: ignore[override]
        self.began.set()
        while not ctx.cancelled:
            ctx.stop.wait(10)
        self.ended.set()


class InProcess(InLoop):
    """A process that takes no notice of anything: it is killed."""

    how = HandlerOptions(run_in="process")
    handle = staticmethod(spawned.stubborn)

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "pid"
        self.args = (str(self.notes),)

    def has_begun(self) -> bool:
        return self.notes.exists() and self.notes.read_text() != ""

    def has_ended(self) -> bool:
        return not is_alive(int(self.notes.read_text()))


@on_both_engines_in_real_time
@pytest.mark.parametrize(
    "place", [InLoop, InThread, pytest.param(InProcess, marks=pytest.mark.processes)]
)
@pytest.mark.parametrize("age_s", [YOUNG_S, OLD_S])
async def test_a_cancelled_job_stops_before_any_renewal(engine, place, age_s, tmp_path):
    job = place(tmp_path)
    async with a_mesh(engine, CALM) as mesh:
        caller = (await mesh.connection()).session
        worker = await mesh.worker(job.handle, how=job.how)
        called = await call(caller, *job.args)
        await eventually(job.has_begun)
        await asyncio.sleep(age_s)
        ended = await submission.cancel(caller, KIND, called.id, reason="enough")
        assert ended.outcome == "cancelled"
        await eventually(job.has_ended)
        await eventually(lambda: worker.busy == 0)
