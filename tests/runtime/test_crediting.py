"""What a worker does with deliveries that come before a more urgent queue has answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.ports import WorkQueue
from antiphon.runtime.crediting import Credits
from antiphon.runtime.host import SystemClock
from antiphon.testing.engine_suite.harness import new_mesh
from tests.runtime.meshes import eventually


class OneSlot:
    """A queue for each of two classes, and one slot for both."""

    def __init__(self, engine: MemoryEngine, mesh: str, queues: list[WorkQueue]) -> None:
        self.normal, self.lazy = queues
        self.free = 1
        self.credits = Credits(lambda: self.free, {}, lambda: False)
        self._engine, self._mesh, self._calls = engine, mesh, 0
        for level, queue in enumerate(queues):
            self.credits.add(queue, "k", level=level)

    async def announce(self, level: int) -> None:
        self._calls += 1
        subject = f"ap.{self._mesh}.call.{level}.k.{self._calls}"
        await self._engine.log.append(subject, b"", message_id=str(self._calls), expected_last=0)

    async def admit(self, queue: WorkQueue) -> bool:
        """Take a delivery, and the slot if it gets it."""
        await queue.next()
        is_welcome = await self.credits.admit(queue, "k")
        self.free -= is_welcome
        self.credits.top_up()
        return is_welcome


@asynccontextmanager
async def one_slot() -> AsyncIterator[OneSlot]:
    mesh = new_mesh()
    engine = MemoryEngine(MemoryServer(SystemClock()), mesh, loan_s=30.0)
    async with (
        engine.log.work(f"ap.{mesh}.call.0.k.*", name="k=0") as normal,
        engine.log.work(f"ap.{mesh}.call.1.k.*", name="k=1") as lazy,
    ):
        place = OneSlot(engine, mesh, [normal, lazy])
        place.credits.top_up()
        await eventually(lambda: normal.is_dry and lazy.is_dry)
        yield place
        place.credits.stop()
    await engine.close()


async def is_waiting(task: asyncio.Task[bool]) -> bool:
    for _ in range(10):
        await asyncio.sleep(0)
    return not task.done()


async def test_nothing_begins_before_what_is_more_urgent_and_on_its_way():
    async with one_slot() as place:
        await place.announce(0)
        await place.announce(1)
        lazy = asyncio.create_task(place.admit(place.lazy))
        assert await is_waiting(lazy)
        assert await place.admit(place.normal)
        assert not await lazy, "the slot is taken"
        assert place.credits.surplus == 1


async def test_it_begins_once_the_more_urgent_queue_has_nothing_more():
    async with one_slot() as place:
        place.free = 2
        await place.announce(0)
        await place.announce(1)
        lazy = asyncio.create_task(place.admit(place.lazy))
        assert await is_waiting(lazy)
        assert await place.admit(place.normal)
        assert await lazy
        assert (place.free, place.credits.surplus) == (0, 0)


async def test_no_more_is_asked_for_than_what_waits_leaves_room_for():
    async with one_slot() as place:
        place.free = 2
        await place.announce(0)
        for _ in range(4):
            await place.announce(1)
        lazy = asyncio.create_task(place.admit(place.lazy))
        assert await is_waiting(lazy)
        assert await place.admit(place.normal)
        assert await lazy
        assert place.lazy.credits == 0, "two slots, two jobs"


async def test_a_queue_that_is_gone_keeps_nobody_waiting():
    async with one_slot() as place:
        await place.announce(0)
        await place.announce(1)
        lazy = asyncio.create_task(place.admit(place.lazy))
        assert await is_waiting(lazy)
        place.credits.remove(place.normal)
        assert await lazy


async def test_whoever_waits_can_be_cancelled():
    async with one_slot() as place:
        await place.announce(0)
        await place.announce(1)
        lazy = asyncio.create_task(place.admit(place.lazy))
        assert await is_waiting(lazy)
        lazy.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lazy
        assert await place.admit(place.normal)
