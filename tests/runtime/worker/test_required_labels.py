"""Jobs that require labels find a worker that has them, whatever their kind's selection."""

import asyncio

import pytest

from tests.runtime.drawing import DRAWN, QUEUED, drawing
from tests.runtime.timeless import in_no_time


@pytest.mark.parametrize("rules", [QUEUED, DRAWN], ids=["queue", "rendezvous"])
def test_a_job_that_requires_a_label_finds_the_worker_that_has_it(rules):
    async def story(timeless):
        async with drawing(timeless, rules) as mesh:
            plain = [await mesh.worker() for _ in range(6)]
            able = await mesh.worker(labels=("gpu=a100", "eu"))
            await asyncio.sleep(1)
            jobs = [await mesh.call(n, requires=("gpu", "eu")) for n in range(6)]
            other = await mesh.call("for anyone")
            await asyncio.sleep(20)
            assert {mesh.who_ran(job) for job in jobs} == {able.session.author.did}
            assert all(mesh.started_after_s(job) < 4 for job in jobs)
            assert mesh.started_after_s(other) < 0.5
            assert len(plain) == 6

    in_no_time(story)


@pytest.mark.parametrize("rules", [QUEUED, DRAWN], ids=["queue", "rendezvous"])
def test_it_waits_while_there_is_none_and_goes_to_the_first_that_comes(rules):
    async def story(timeless):
        async with drawing(timeless, rules) as mesh:
            await mesh.node()
            await mesh.worker()
            await mesh.worker(labels=("gpu=h100",))
            job = await mesh.call(1, requires=("gpu=a100",))
            await asyncio.sleep(120)
            assert mesh.runs == []
            assert await mesh.claims(job) == 0
            able = await mesh.worker(labels=("gpu=a100",))
            await asyncio.sleep(2)
            assert mesh.who_ran(job) == able.session.author.did

    in_no_time(story)


def test_several_able_workers_draw_for_a_particular_job():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.worker()
            # As many slots as jobs: a worker without a free one is no candidate, whatever it drew.
            able = [await mesh.worker(labels=("gpu",), slots=12) for _ in range(3)]
            await asyncio.sleep(5)
            jobs = [await mesh.call(n, requires=("gpu",)) for n in range(12)]
            await asyncio.sleep(30)
            firsts = [(await mesh.order(job, able))[0] for job in jobs]
            assert [mesh.who_ran(job) for job in jobs] == firsts
            assert [await mesh.claims(job) for job in jobs] == [1] * 12

    in_no_time(story)
