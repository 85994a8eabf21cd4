"""Urgent jobs come before normal ones, and those before the rest, whatever the engine."""

import asyncio

import pytest

from tests.runtime.meshes import a_mesh, call, eventually, on_both_engines


class Bench:
    """A handler that is held up by its first job, and notes the order of all others."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.is_blocked = asyncio.Event()
        self.release = asyncio.Event()

    async def handle(self, urgency: int, _number: int) -> None:
        if urgency < 0:
            self.is_blocked.set()
            await self.release.wait()
            return
        self.order.append(urgency)
        await asyncio.sleep(0.005)


@on_both_engines
@pytest.mark.parametrize("slots", [1, 3])
async def test_a_backlog_is_worked_off_class_by_class(engine, slots):
    bench = Bench()
    async with a_mesh(engine) as mesh:
        caller = (await mesh.station()).peer
        worker = await mesh.worker(bench.handle, slots=slots)
        for number in range(slots):
            await call(caller, -1, number)
        await eventually(lambda: worker.busy == slots)
        for number in range(6):
            for urgency in (2, 1, 0):
                await call(caller, urgency, number, urgency=urgency)
        before = worker.surplus
        bench.release.set()
        await eventually(lambda: len(bench.order) == 18)
        assert bench.order == sorted(bench.order)
        # What lay on silent queues may come once; nothing is handed out to be given back.
        assert worker.surplus - before <= 3


@on_both_engines
async def test_an_urgent_job_overtakes_a_backlog_that_is_being_worked_off(engine):
    bench = Bench()
    bench.release.set()
    async with a_mesh(engine) as mesh:
        caller = (await mesh.station()).peer
        for number in range(30):
            await call(caller, 2, number, urgency=2)
        await mesh.worker(bench.handle, slots=1)
        await eventually(lambda: len(bench.order) >= 5)
        begun = len(bench.order)
        await call(caller, 0, 0, urgency=0)
        await eventually(lambda: 0 in bench.order)
        # The one that runs, and one that was asked for before the urgent one was there.
        assert bench.order.index(0) <= begun + 2
        await eventually(lambda: len(bench.order) == 31)


@on_both_engines
async def test_a_full_worker_keeps_no_urgent_job_from_one_that_is_free(engine):
    busy, free = Bench(), Bench()
    free.release.set()
    async with a_mesh(engine) as mesh:
        caller = (await mesh.station()).peer
        full = await mesh.worker(busy.handle, slots=1)
        await call(caller, -1, 0)
        await busy.is_blocked.wait()
        await mesh.worker(free.handle, slots=1)
        for number in range(5):
            await call(caller, 0, number, urgency=0)
        await eventually(lambda: len(free.order) == 5, within_s=5)
        assert full.busy == 1
        busy.release.set()
