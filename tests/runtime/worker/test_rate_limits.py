"""A kind's rate is kept by not asking for more of it: nothing is claimed to wait."""

import asyncio

from antiphon import assembly
from antiphon.core.policy.rate_limit import parse_rate
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.worker.worker import WorkerSettings
from tests.runtime.meshes import a_mesh, call, eventually, on_both_engines


@on_both_engines
async def test_a_kind_begins_no_more_often_than_its_rate_and_others_are_not_held_up(engine):
    began: dict[str, list[float]] = {"test.slow": [], "test.other": []}
    loop = asyncio.get_running_loop()

    async with a_mesh(engine) as mesh:
        handlers = Handlers()
        for kind, times in began.items():

            async def note(_number: int, times: list[float] = times) -> None:
                times.append(loop.time())

            handlers.register(kind, note)
        caller = (await mesh.connection()).session
        for number in range(5):
            await call(caller, number, kind="test.slow", priority="high")
            await call(caller, number + 10, kind="test.slow", priority="normal")
            await call(caller, number, kind="test.other", priority="low")
        settings = WorkerSettings(slots=8, rates={"test.slow": parse_rate("5/s")})
        connection = await mesh.connection()
        worker = await mesh.stack.enter_async_context(
            assembly.working(connection, handlers, settings)
        )
        await eventually(lambda: len(began["test.other"]) == 5)
        assert worker.busy <= 5, "nothing waits in a slot"
        await eventually(lambda: len(began["test.slow"]) == 10)
        times = began["test.slow"]
        # A bucketful of five at once, and then one every 200 ms.
        assert times[-1] - times[0] >= 0.9
        assert began["test.other"][-1] < times[-1]
