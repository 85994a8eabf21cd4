"""What a worker does with deliveries that come before a queue of a higher priority has answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon.core.families.jobs.priority import Priority, rank
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.ports import WorkQueue
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.worker.queue_credits import Credits
from antiphon.testing.engine_suite.harness import new_mesh
from tests.runtime.meshes import eventually


class OneSlot:
    """A queue for each of two priorities, and one slot for both."""

    def __init__(self, engine: MemoryEngine, mesh: str, queues: list[WorkQueue]) -> None:
        self.high, self.normal = queues
        self.free = 1
        self.credits = Credits(lambda: self.free, {}, lambda: False)
        self._engine, self._mesh, self._calls = engine, mesh, 0
        self.credits.add(self.high, "k", "high")
        self.credits.add(self.normal, "k", "normal")

    async def announce(self, priority: Priority) -> None:
        self._calls += 1
        subject = f"ap.{self._mesh}.jobs.{rank(priority)}.k.{self._calls}"
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
        engine.log.work(f"ap.{mesh}.jobs.0.k.*", name="k=high") as high,
        engine.log.work(f"ap.{mesh}.jobs.1.k.*", name="k=normal") as normal,
    ):
        place = OneSlot(engine, mesh, [high, normal])
        place.credits.top_up()
        await eventually(lambda: high.is_dry and normal.is_dry)
        yield place
        place.credits.stop()
    await engine.close()


async def is_waiting(task: asyncio.Task[bool]) -> bool:
    for _ in range(10):
        await asyncio.sleep(0)
    return not task.done()


async def test_nothing_begins_before_what_has_a_higher_priority_and_is_on_its_way():
    async with one_slot() as place:
        await place.announce("high")
        await place.announce("normal")
        normal = asyncio.create_task(place.admit(place.normal))
        assert await is_waiting(normal)
        assert await place.admit(place.high)
        assert not await normal, "the slot is taken"
        assert place.credits.surplus == 1


async def test_it_begins_once_the_queue_of_a_higher_priority_has_nothing_more():
    async with one_slot() as place:
        place.free = 2
        await place.announce("high")
        await place.announce("normal")
        normal = asyncio.create_task(place.admit(place.normal))
        assert await is_waiting(normal)
        assert await place.admit(place.high)
        assert await normal
        assert (place.free, place.credits.surplus) == (0, 0)


async def test_no_more_is_asked_for_than_what_waits_leaves_room_for():
    async with one_slot() as place:
        place.free = 2
        await place.announce("high")
        for _ in range(4):
            await place.announce("normal")
        normal = asyncio.create_task(place.admit(place.normal))
        assert await is_waiting(normal)
        assert await place.admit(place.high)
        assert await normal
        assert place.normal.credits == 0, "two slots, two jobs"


async def test_a_queue_that_is_gone_keeps_nobody_waiting():
    async with one_slot() as place:
        await place.announce("high")
        await place.announce("normal")
        normal = asyncio.create_task(place.admit(place.normal))
        assert await is_waiting(normal)
        place.credits.remove(place.high)
        assert await normal


async def test_whoever_waits_can_be_cancelled():
    async with one_slot() as place:
        await place.announce("high")
        await place.announce("normal")
        normal = asyncio.create_task(place.admit(place.normal))
        assert await is_waiting(normal)
        normal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await normal
        assert await place.admit(place.high)
