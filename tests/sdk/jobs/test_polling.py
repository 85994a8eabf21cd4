"""`timeout=0` asks whether a job has ended, and does not wait: the same on every engine."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon import JobFailed, Mesh, Rejected, as_completed, gather
from antiphon.sdk import job_wait
from antiphon.sdk.hosting.dev_mesh import development
from tests.patience import PATIENCE_S
from tests.runtime.meshes import KIND
from tests.sdk.test_over_http import a_program

pytestmark = pytest.mark.usefixtures("nobody_is_asked")
ENGINES = [
    "memory",
    pytest.param("nats", marks=pytest.mark.nats),
    pytest.param("http", marks=pytest.mark.processes),
]


def divide(a: int, b: int) -> int:
    return a // b


@asynccontextmanager
async def a_mesh(engine: str, folder, function=divide):
    """A program's mesh, with a worker that divides."""
    if engine == "http":
        async with a_program(folder, "schedule", "read", "cancel", function=function) as mesh:
            yield mesh
        return
    if engine == "memory":
        mesh = Mesh.open(engine="memory")
        mesh.task(KIND)(function)
        async with mesh, mesh.worker():
            yield mesh
        return
    async with development(folder / "home", name="polled"):
        mesh = Mesh.open(home=folder / "home")
        mesh.task(KIND)(function)
        async with mesh, mesh.worker():
            yield mesh


async def ended(mesh: Mesh, *args: int) -> str:
    """A job that has ended, which the program's next handle does not know."""
    handle = await mesh.submit(KIND, *args, options={"attempts": 1})
    await handle.end(timeout=PATIENCE_S)
    return handle.id


@pytest.fixture
def nobody_is_asked(monkeypatch):
    async def roll_call(*_):
        pytest.fail("a question whether it has ended waits for nobody")

    monkeypatch.setattr(job_wait, "diagnosed", roll_call)


@pytest.mark.parametrize("engine", ENGINES)
async def test_no_time_returns_what_has_ended_and_is_too_short_for_the_rest(engine, tmp_path):
    async with a_mesh(engine, tmp_path) as mesh:
        six, failed = await ended(mesh, 42, 7), await ended(mesh, 1, 0)
        later = await mesh.submit(KIND, 1, 1, options={"delay": "1h"})
        assert await mesh.job(KIND, six).result(timeout=0) == 6
        assert await mesh.job(KIND, six).result(timeout=0.001) == 6
        assert (await mesh.job(KIND, six).end(timeout=0)).job.outcome == "succeeded"
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            await mesh.job(KIND, failed).result(timeout=0)
        for wait in (later.result, later.end, mesh.job(KIND, later.id).result):
            with pytest.raises(TimeoutError, match=f"job {later.id[:8]} .*: it is waiting"):
                await wait(timeout=0)
        with pytest.raises(Rejected, match="there is no job"):
            await mesh.job(KIND, "0" * 64).result(timeout=0)


@pytest.mark.parametrize("engine", ENGINES)
async def test_of_many_it_returns_those_that_have_ended(engine, tmp_path):
    async with a_mesh(engine, tmp_path) as mesh:
        ids = [await ended(mesh, number * 10, 10) for number in range(3)]
        later = await mesh.submit(KIND, 1, 1, options={"delay": "1h"})
        assert await gather(*[mesh.job(KIND, one) for one in ids], timeout=0) == [0, 1, 2]
        handles = [later, *[mesh.job(KIND, one) for one in ids]]
        found = []
        coming = as_completed(handles, timeout=0)
        with pytest.raises(TimeoutError, match="1 of 4 jobs have not ended after 0 s"):
            [found.append(one.id) async for one in coming]
        assert sorted(found) == sorted(ids)
        with pytest.raises(TimeoutError, match="1 of 1 jobs"):
            await gather(later, timeout=0)


@pytest.mark.nats
async def test_without_await_it_is_the_same(tmp_path):
    async with a_mesh("nats", tmp_path) as mesh:
        six = await ended(mesh, 42, 7)
        later = await mesh.submit(KIND, 1, 1, options={"delay": "1h"})

        def polled() -> None:
            with Mesh.open(home=tmp_path / "home").blocking() as blocking:
                assert blocking.job(KIND, six).result(timeout=0) == 6
                assert blocking.gather(blocking.job(KIND, six), timeout=0) == [6]
                with pytest.raises(TimeoutError, match="it is waiting"):
                    blocking.job(KIND, later.id).result(timeout=0)

        await asyncio.to_thread(polled)
