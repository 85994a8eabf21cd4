"""Hints and reads of many lanes, for a member whose delegation covers some kinds only."""

import asyncio

import pytest

from antiphon.errors import EngineDenied
from antiphon.testing.engine_suite.harness import job_id, seqs
from antiphon.testing.engine_suite.many import Heard
from tests.engines.nats.scoped_mesh import scoped_reader

pytestmark = pytest.mark.nats


def job(here, kind: str, number: str) -> str:
    return f"ap.{here.mesh}.jobs.job.{kind}.{number}"


async def test_a_member_hears_its_kinds_and_no_others():
    async with scoped_reader("render.>") as (here, reader):
        heard = Heard()
        with reader.log.hints(heard) as hints:
            assert hints.add(job(here, "render.video", job_id(40)))
            assert hints.add(job(here, "render.audio", "*"))
            assert not hints.add(job(here, "secret.x", job_id(40)))
            assert not hints.add(job(here, "secret.x", "*"))
            await reader.log.last()  # a round trip behind the subscriptions
            await here.put(f"jobs.job.secret.x.{job_id(40)}")
            await here.put(f"jobs.job.render.audio.{job_id(41)}")
            await here.put(f"jobs.job.render.video.{job_id(40)}")
            async with asyncio.timeout(60):
                while len(heard.hints) < 2:
                    await asyncio.sleep(0.01)
            assert [subject for subject, _ in heard.hints] == [
                job(here, "render.audio", job_id(41)),
                job(here, "render.video", job_id(40)),
            ]


async def test_a_kind_that_can_only_be_read_says_that_it_is_not_heard():
    async with scoped_reader("render", "render.video") as (here, reader):
        with reader.log.hints(lambda *_: None) as hints:
            assert not hints.add(job(here, "render", "*")), "its denial would deny render.video"
            assert hints.add(job(here, "render.video", "*"))
        assert seqs(await reader.log.newest([job(here, "render", job_id(4))])) == [10]


async def test_many_lanes_are_read_through_the_gate_and_others_are_denied():
    async with scoped_reader("render.>") as (here, reader):
        video, audio = here.lane("render.video", 1), here.lane("render.audio.mix", 3)
        found = await reader.log.read_lanes([video, audio, here.lane("render.video", 77)])
        assert [seqs(lane) for lane in found] == [[2, 4, 6], [8, 9], []]
        newest = await reader.log.newest([video[-1], audio[-1]])
        assert seqs(newest) == [6]
        with pytest.raises(EngineDenied):
            await reader.log.read_lanes([video, here.lane("secret.x", 2)])
        with pytest.raises(EngineDenied):
            await reader.log.newest([job(here, "secret.x", job_id(2))])


async def test_more_links_than_the_gate_takes_in_one_request_are_several():
    async with scoped_reader("render.>") as (here, reader):
        lanes = []
        for number in range(100, 180):
            last = await here.put(f"jobs.job.render.video.{job_id(number)}")
            await here.put(f"jobs.job.render.video.{job_id(number)}", after=last)
            lanes.append(here.lane("render.video", number))
        found = await reader.log.read_lanes(lanes)
        assert [len(lane) for lane in found] == [2] * 80
