"""Records sent together: when the server stores them in one step, and what if it does not."""

import asyncio

import pytest

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.log.log import BATCH_BYTES, BATCH_FROM
from antiphon.engines.nats.server.server_config import MAX_OPEN_BATCHES
from antiphon.errors import LostRace
from antiphon.ports import Append
from tests.engines.nats.test_nats import TestAppendMany as OnNats

pytestmark = pytest.mark.nats


def records_of(site, count=BATCH_FROM, size=10, after=0):
    return [Append(site.job(after + n), b"x" * size, site.fresh_id(), 0) for n in range(count)]


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


async def open_batches(engine, site, count):
    """Somebody else's, who never commits them."""
    for number in range(count):
        header = b"NATS/1.0\r\nNats-Batch-Id: open-%d\r\nNats-Batch-Sequence: 1\r\n\r\n" % number
        engine._connection.send(wire.hpub(site.job(900).encode(), b"x", header, b""))
    await engine.log.last()


async def test_open_batches_of_another_hold_up_nobody(monkeypatch):
    async with OnNats().site() as site:
        engine, other = await site.connect_many(2)
        await open_batches(other, site, MAX_OPEN_BATCHES)
        write_batch, tried = engine._requester.write_batch, []

        async def counted(requests, *, timeout_s):
            tried.append(len(requests))
            return await write_batch(requests, timeout_s=timeout_s)

        monkeypatch.setattr(engine._requester, "write_batch", counted)
        first, second = (records_of(site, after=at) for at in (0, 100))
        assert await engine.log.append_many(first) == [*range(1, BATCH_FROM + 1)]
        assert await engine.log.append_many(second) == [*range(BATCH_FROM + 1, 2 * BATCH_FROM + 1)]
        assert tried == [BATCH_FROM], "the second is not sent twice"
        engine.log._batches_from_s = 0.0
        await engine.log.append_many(records_of(site, after=200))
        assert tried == [BATCH_FROM] * 2
