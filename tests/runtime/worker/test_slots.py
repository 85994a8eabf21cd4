"""A worker fills its slots, and no more than those, however long the jobs take."""

import asyncio

from tests.runtime.meshes import a_mesh, call, eventually, on_both_engines


@on_both_engines
async def test_jobs_that_do_not_end_fill_every_slot_and_no_more(engine):
    running, let_go = set(), asyncio.Event()

    async def endless(number: int) -> int:
        running.add(number)
        await let_go.wait()
        running.discard(number)
        return number

    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        worker = await mesh.worker(endless, slots=5)
        for number in range(8):
            await call(caller, number)
        await eventually(lambda: len(running) == 5)
        await asyncio.sleep(0.2)
        assert len(running) == worker.busy == 5
        let_go.set()
        await eventually(lambda: worker.done == 8)
