"""A worker that takes announcements away for ever delays jobs by a bound, and loses none."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.subjects import queue_name
from tests.runtime.drawing import KIND, QUEUED, drawing
from tests.runtime.timeless import in_no_time

GREEDY = 64
"""Queues of the thief's for each of an honest worker's."""
OFFER_S = QUEUED.offer_after_ms / 1000
WINDOW_S = QUEUED.claim_window_ms / 1000
ROUNDS_S = 3.0


@asynccontextmanager
async def meanwhile(work):
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def steal(mesh) -> None:
    """Acknowledge every announcement of the kind, as it comes."""
    log = (await mesh.timeless.connection("thief")).session.log
    calls = job_subjects.calls_of(mesh.owner.session.mesh, "normal", KIND, below=False)

    async def drink(queue) -> None:
        queue.grant(512)
        while True:
            (await queue.next()).ack()
            queue.grant(1)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for _ in range(GREEDY):
            work = log.work(calls, name=queue_name(KIND, "normal"))
            tasks.create_task(drink(await stack.enter_async_context(work)))


@pytest.mark.req("G10")
def test_a_thief_of_announcements_that_stays_delays_a_job_by_one_repetition():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.node()
            await mesh.stack.enter_async_context(meanwhile(steal(mesh)))
            await asyncio.sleep(1)
            for _ in range(3):
                await mesh.worker(slots=8)
            for number in range(20):
                await mesh.call(number)
            stolen = len(mesh.called) - len(mesh.runs)
            await asyncio.sleep(OFFER_S + WINDOW_S + ROUNDS_S)
            assert stolen > 10, "it does take them"
            assert sorted(ran.job_id for ran in mesh.runs) == sorted(mesh.called)
            late = [mesh.started_after_s(job) for job in mesh.called]
            assert max(late) < OFFER_S + WINDOW_S + ROUNDS_S
            assert max([await mesh.claims(job) for job in mesh.called]) == 1, "they do not race"

    in_no_time(story)


def test_workers_without_labels_say_nothing_while_nothing_is_stolen():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.node()
            bus = mesh.owner.session.engine.bus
            heard = []

            async def listen() -> None:
                async with bus.subscribe(f"work.{KIND}") as words:
                    async for word in words:
                        heard.append(word)

            await mesh.stack.enter_async_context(meanwhile(listen()))
            await mesh.worker()
            for number in range(5):
                await mesh.call(number)
            await asyncio.sleep(60)
            assert len(mesh.runs) == 5
            assert heard == []

    in_no_time(story)
