"""Jobs of high priority come before normal ones, and those before low ones, on every engine.

Nothing here depends on speed. Jobs run until the test ends them, one at a time; the next one to
begin has the highest priority of those that wait.
"""

import asyncio

import msgspec
import pytest

from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.runtime.worker.worker import Worker
from tests.runtime.meshes import QUICK, a_mesh, call, eventually, on_both_engines, ops_on_lane

FIRST = "first"
"""What fills the slots before the order matters."""
PATIENT = msgspec.structs.replace(QUICK, lease_ms=20_000, lease_ms_max=30_000, claim_window_ms=100)
"""Calls are repeated soon, and a machine that is busy elsewhere loses no lease."""


class Desk:
    """A handler whose jobs run until they are told to end; notes the order in which they began."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._ends: list[asyncio.Event] = []

    async def handle(self, priority: str, _number: int) -> None:
        self.begun.append(priority)
        end = asyncio.Event()
        self._ends.append(end)
        await end.wait()

    async def has_begun(self, count: int) -> None:
        await eventually(lambda: len(self.begun) >= count)

    def end_one(self) -> None:
        self._ends.pop(0).set()

    async def work_off(self, count: int) -> None:
        """End one job after the other, each when another one has begun in the slot before."""
        while len(self.begun) < count:
            self.end_one()
            await self.has_begun(len(self.begun) + 1)
        while self._ends:
            self.end_one()


def has_asked_everywhere(worker: Worker) -> bool:
    return all(one.queue.credits for one in worker._credits._asked)


@on_both_engines
@pytest.mark.parametrize("slots", [1, 3])
async def test_a_backlog_is_worked_off_priority_by_priority(engine, slots):
    desk = Desk()
    async with a_mesh(engine, PATIENT) as mesh:
        caller = (await mesh.connection()).session
        worker = await mesh.worker(desk.handle, slots=slots)
        for number in range(slots):
            await call(caller, FIRST, number)
        await desk.has_begun(slots)
        for number in range(6):
            for priority in reversed(PRIORITIES):
                await call(caller, priority, number, priority=priority)
        before = worker._credits.surplus
        await desk.work_off(slots + 18)
        assert desk.begun == [FIRST] * slots + [
            priority for priority in PRIORITIES for _ in range(6)
        ]
        # What lay on queues without work may come once; nothing is handed out to be given back.
        assert worker._credits.surplus - before <= 3


@on_both_engines
@pytest.mark.parametrize("slots", [1, 3])
async def test_what_full_nodes_call_again_keeps_its_priority(engine, slots):
    desk = Desk()
    async with a_mesh(engine, PATIENT) as mesh:
        caller = (await mesh.connection()).session
        node = await mesh.node()
        await mesh.worker(desk.handle, slots=slots)
        for number in range(slots):
            await call(caller, "normal", number)
        await desk.has_begun(slots)
        low = await call(caller, "low", 0, priority="low")
        for number in range(slots, slots + 8):
            await call(caller, "normal", number)
        # The second time around, the worker has looked at what the first pointed to.
        await eventually(lambda: ops_on_lane(node, low.id).count(("job.offer", "ok")) == 2)
        await desk.work_off(slots + 9)
        assert desk.begun == ["normal"] * (slots + 8) + ["low"]


@on_both_engines
@pytest.mark.parametrize("slots, workers", [(1, 1), (3, 1), (1, 3)])
async def test_what_can_wait_overtakes_nobody_while_slots_come_and_go(engine, slots, workers):
    """It is called while jobs end and begin, to workers that have asked for its priority before."""
    begun: list[str] = []
    is_open, all_called = asyncio.Event(), asyncio.Event()

    async def handle(priority: str, number: int) -> None:
        if priority != FIRST:
            begun.append(priority)
        # Some run at once, and the rest is a backlog until everything was called.
        await (is_open if priority == FIRST or number < 20 else all_called).wait()

    async with a_mesh(engine, PATIENT) as mesh:
        caller = (await mesh.connection()).session
        crew = [await mesh.worker(handle, slots=slots) for _ in range(workers)]
        at_once = slots * workers
        for worker in crew:
            await eventually(lambda worker=worker: has_asked_everywhere(worker))
        for number in range(at_once):
            await call(caller, FIRST, number)
        await eventually(lambda: sum(worker.busy for worker in crew) == at_once)
        for number in range(30):
            await call(caller, "normal", number)
        is_open.set()
        for number in range(10):
            await call(caller, "low", number, priority="low")
        all_called.set()
        await eventually(lambda: len(begun) == 40)
        # Those that were taken together begin in any order.
        assert begun[: 31 - at_once] == ["normal"] * (31 - at_once)


@on_both_engines
async def test_a_job_of_high_priority_is_next_whatever_is_being_worked_off(engine):
    desk = Desk()
    async with a_mesh(engine, PATIENT) as mesh:
        caller = (await mesh.connection()).session
        for number in range(6):
            await call(caller, "low", number, priority="low")
        await mesh.worker(desk.handle, slots=1)
        await desk.has_begun(1)
        desk.end_one()
        await desk.has_begun(2)
        await call(caller, "high", 0, priority="high")
        await desk.work_off(7)
        assert desk.begun == ["low", "low", "high", "low", "low", "low", "low"]


@on_both_engines
async def test_a_full_worker_keeps_no_high_priority_job_from_one_that_is_free(engine):
    busy, free = Desk(), Desk()
    async with a_mesh(engine, PATIENT) as mesh:
        caller = (await mesh.connection()).session
        full = await mesh.worker(busy.handle, slots=1)
        await call(caller, "normal", 0)
        await busy.has_begun(1)
        await mesh.worker(free.handle, slots=1)
        for number in range(5):
            await call(caller, "high", number, priority="high")
        await free.has_begun(1)
        await free.work_off(5)
        assert full.busy == 1
        busy.end_one()
