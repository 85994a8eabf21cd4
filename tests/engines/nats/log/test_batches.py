"""Records sent together: when the server stores them in one step, and what if it does not."""

import asyncio

import pytest

from antiphon.engines.nats.log.log import BATCH_BYTES, BATCH_FROM
from antiphon.errors import LostRace
from antiphon.ports import Append
from tests.engines.test_nats import TestAppendMany as OnNats

pytestmark = pytest.mark.nats


def records_of(site, count=BATCH_FROM, size=10):
    return [Append(site.job(n), b"x" * size, site.fresh_id(), 0) for n in range(count)]


async def is_batched(engine, record):
    held = await engine.log.records.last_on(record.subject)
    return b"Nats-Batch-Id" in held.header


@pytest.mark.parametrize(
    "count, size, expected",
    [
        (BATCH_FROM, 10, True),
        (BATCH_FROM - 1, 10, False),
        (BATCH_FROM, BATCH_BYTES // BATCH_FROM + 1, False),
    ],
)
async def test_many_small_records_are_stored_in_one_step(count, size, expected):
    async with OnNats().site() as site:
        engine = await site.connect()
        records = records_of(site, count, size)
        assert await engine.log.append_many(records) == [*range(1, count + 1)]
        assert await is_batched(engine, records[0]) is expected


async def test_a_batch_that_is_refused_goes_one_by_one():
    async with OnNats().site() as site:
        engine, other = await site.connect_many(2)
        await site.append(other, site.job(7), b"first")
        records = records_of(site)
        answers = await engine.log.append_many(records)
        assert isinstance(answers.pop(7), LostRace)
        assert sorted(answers) == [*range(2, BATCH_FROM + 1)]
        assert not await is_batched(engine, records[0])


async def test_several_batches_at_once_do_not_mix():
    async with OnNats().site() as site:
        engine = await site.connect()
        groups = [
            [Append(site.job(100 * at + n), b"x", site.fresh_id(), 0) for n in range(BATCH_FROM)]
            for at in range(6)
        ]
        told = await asyncio.gather(*map(engine.log.append_many, groups))
        assert sorted(seq for group in told for seq in group) == [*range(1, 6 * BATCH_FROM + 1)]
