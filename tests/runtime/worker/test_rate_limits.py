"""A kind's rate is kept by not asking for more of it: nothing is claimed to wait."""

import asyncio

import pytest

from antiphon import assembly
from antiphon.core.policy.rate_limit import parse_rate
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.worker.worker import Worker, WorkerSettings
from tests.runtime.meshes import MeshUnderTest, a_mesh, call, eventually, on_both_engines


class Begun:
    """A worker of two kinds, one of them with a rate; notes when their jobs begin."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {"test.slow": [], "test.other": []}

    async def working(self, mesh: MeshUnderTest, rate: str) -> Worker:
        handlers = Handlers()
        for kind, times in self.times.items():

            async def note(_number: int, times: list[float] = times) -> None:
                times.append(asyncio.get_running_loop().time())

            handlers.register(kind, note)
        settings = WorkerSettings(slots=8, rates={"test.slow": parse_rate(rate)})
        connection = await mesh.connection()
        return await mesh.stack.enter_async_context(
            assembly.working(connection, handlers.executors(), settings)
        )


async def call_both(mesh: MeshUnderTest) -> None:
    """Ten of the kind with a rate, in two priorities, and five of the other."""
    caller = (await mesh.connection()).session
    for number in range(5):
        await call(caller, number, kind="test.slow", priority="high")
        await call(caller, number + 10, kind="test.slow", priority="normal")
        await call(caller, number, kind="test.other", priority="low")


@on_both_engines
async def test_a_kind_that_may_not_begin_holds_up_no_other_and_fills_no_slot(engine):
    begun = Begun()
    async with a_mesh(engine) as mesh:
        await call_both(mesh)
        worker = await begun.working(mesh, "1/h")
        await eventually(lambda: len(begun.times["test.other"]) == 5)
        await eventually(lambda: len(begun.times["test.slow"]) == 1)
        await eventually(lambda: worker.busy == 0)
        await asyncio.sleep(0.3)
        assert (len(begun.times["test.slow"]), worker.busy) == (1, 0), "nothing waits in a slot"


@pytest.mark.exact_times
@pytest.mark.virtual_time
async def test_a_kind_begins_no_more_often_than_its_rate():
    begun = Begun()
    async with a_mesh("memory") as mesh:
        await call_both(mesh)
        await begun.working(mesh, "5/s")
        times = begun.times["test.slow"]
        await eventually(lambda: len(times) == 10)
        # A bucketful of five at once, and then one every 200 ms.
        assert times[-1] - times[0] == pytest.approx(1.0, abs=0.05)
        assert begun.times["test.other"][-1] < times[5]
