"""`handle.status()`: a job in a few words, the same on every engine."""

import asyncio
import dataclasses

import pytest

from antiphon import JobContext, JobStatus, Mesh
from tests.patience import PATIENCE_S
from tests.runtime.meshes import KIND
from tests.sdk.jobs.test_polling import ENGINES, a_mesh

NAMES = (
    *("id", "kind", "state", "submitted_ms", "submitter"),
    *("worker", "attempts", "limit", "error", "progress"),
)


def divide(ctx: JobContext, a: int, b: int) -> int:
    if not a:
        ctx.progress(0.5, "half way")
        ctx.stop.wait(PATIENCE_S)
    return a // b


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_job_in_a_few_words(engine, tmp_path):
    async with a_mesh(engine, tmp_path, divide) as mesh:
        later = await mesh.submit(KIND, 1, 1, options={"delay": "1h"})
        waits = await later.status()
        assert tuple(dataclasses.asdict(waits)) == NAMES
        assert (waits.id, waits.kind, waits.state) == (later.id, KIND, "waiting")
        assert waits.submitted_ms == (await later.state()).scheduled_ms
        assert waits.submitter
        rest = (waits.worker, waits.attempts, waits.limit, waits.error, waits.progress)
        assert rest == (None, 0, 3, None, None)

        done = await mesh.submit(KIND, 6, 3)
        await done.result(timeout=PATIENCE_S)
        ended = await done.status()
        assert (ended.state, ended.attempts, ended.error) == ("succeeded", 1, None)
        assert ended.worker

        wrong = await mesh.submit(KIND, 1, 0, options={"attempts": 1})
        await wrong.end(timeout=PATIENCE_S)
        failed = await wrong.status()
        assert (failed.state, failed.attempts, failed.limit) == ("failed", 1, 1)
        assert failed.error == "ZeroDivisionError: integer division or modulo by zero"

        long = await mesh.submit(KIND, 0, 1)
        running = await told(mesh, long.id)
        assert running.state == "running"
        assert (running.progress.done, running.progress.note) == (0.5, "half way")
        await long.cancel("enough")
        assert (await long.status()).error == "it was cancelled: enough"


async def told(mesh: Mesh, job: str) -> JobStatus:
    """The status of a job as soon as its progress is on the log."""
    while True:
        status = await mesh.job(KIND, job).status()
        if status.progress is not None:
            return status
        await asyncio.sleep(0.05)


@pytest.mark.virtual_time
async def test_before_its_end_it_says_what_the_last_attempt_failed_with():
    mesh = Mesh.open(engine="memory")

    @mesh.task("status.fails")
    async def fails() -> None:
        raise ValueError("no luck\n" + "and more " * 100)

    async with mesh, mesh.worker():
        handle = await fails.submit()
        while not (status := await handle.status()).error:
            await asyncio.sleep(0.1)
        assert (status.state, status.error) == ("pending", "ValueError: no luck")


def test_without_await_it_is_the_same():
    with Mesh.open(engine="memory").blocking() as mesh:
        handle = mesh.submit("status.later", options={"delay": "1h"})
        status = handle.status()
        assert isinstance(status, JobStatus)
        assert (status.id, status.state) == (handle.id, "waiting")
