"""A reader goes by its login, the gate by the log: no answer leaves out what the login admits."""

import pytest

from antiphon.engines.nats.member import read_protocol
from antiphon.errors import Unavailable
from antiphon.testing.engine_suite.harness import collect, job_id, seqs
from tests.engines.nats.scoped_mesh import IN_RENDER, MEMBER, raw, scoped_mesh, scoped_reader
from tests.job_scopes import job_scope

pytestmark = pytest.mark.nats

RENDER, SECRET = "render.>", "secret.>"


async def test_records_that_only_the_gate_would_show_stay_hidden():
    async with scoped_reader(RENDER) as (here, reader):
        here.scopes[MEMBER] = job_scope(reads=(RENDER, SECRET))
        page = await reader.log.read(0, limit=100)
        assert seqs(page.records) == IN_RENDER
        assert (await reader.log.last()).seq == IN_RENDER[-1]
        async with reader.log.follow(0) as batches:
            assert seqs(await collect(batches, len(IN_RENDER))) == IN_RENDER
            # A page of nothing but hidden records is not the end.
            for number in range(10, 14):
                await here.put(f"jobs.job.secret.x.{job_id(number)}")
            shown = await here.put(f"jobs.job.render.video.{job_id(20)}")
            assert seqs(await collect(batches, 1)) == [shown]
        assert seqs((await reader.log.read(13, limit=2)).records) == [shown]


async def test_a_gate_that_would_hide_more_refuses_until_it_does_not():
    async with scoped_reader(RENDER, SECRET) as (here, reader), reader.log.follow(0) as batches:
        await collect(batches, 12)
        here.scopes[MEMBER] = job_scope(reads=(RENDER,))
        with pytest.raises(Unavailable, match="has changed"):
            await reader.log.read(0, limit=10)
        hidden = await here.put(f"jobs.job.secret.x.{job_id(30)}")
        shown = await here.put(f"jobs.job.render.video.{job_id(31)}")
        here.scopes[MEMBER] = job_scope(reads=(RENDER, SECRET))
        assert seqs(await collect(batches, 2)) == [hidden, shown]


async def test_one_lane_of_a_kind_that_is_left_can_still_be_read():
    async with scoped_reader(RENDER, SECRET) as (here, reader):
        here.scopes[MEMBER] = job_scope(reads=(RENDER,))
        pages = [page async for page in reader.log.read_lane(here.lane("render.video", 1))]
        assert [record.seq for page in pages for record in page] == [2, 4, 6]


@pytest.mark.parametrize(
    "reads",
    [
        ["jobs.job.render.*.>"] * (read_protocol.MAX_FILTERS + 1),
        ["a" * read_protocol.MAX_FILTER_LENGTH + ".>"],
        ["a." * read_protocol.MAX_FILTER_TOKENS + ">"],
    ],
)
async def test_a_statement_that_takes_long_to_compare_is_refused(reads):
    async with scoped_mesh(RENDER) as here, raw(here) as wire:
        ((_, header),) = await wire.gate({"seq": 1, "batch": 10, "reads": reads})
        assert header.startswith(b"NATS/1.0 408")
