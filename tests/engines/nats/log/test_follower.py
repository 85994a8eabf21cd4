"""Following on NATS: lost notifications, slow readers, and logs that are not what they were."""

import asyncio
import shutil

import pytest

from antiphon.engines.nats import LocalServer
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.log import follower
from antiphon.errors import Corrupt
from antiphon.testing.engine_suite.harness import collect, new_mesh, persist, seqs, soon, whole_lane
from tests.engines.nats.harness import connect, until
from tests.local_server import shared_server

pytestmark = pytest.mark.nats


async def fill(engine, mesh, numbers, *, what="job.k", size=1):
    return await asyncio.gather(
        *(
            engine.log.append(
                f"ap.{mesh}.{what}.{n}", b"x" * size, message_id=f"{what}{n}", expected_last=0
            )
            for n in numbers
        )
    )


async def test_a_lost_notification_is_noticed_by_the_next_one():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine, engine.log.follow(0) as batches:
        await fill(engine, mesh, range(3))
        await collect(batches, 3)
        heard, batches._on_record_lost = batches._on_record, 0
        sid = b"%d" % batches._listener.sid

        def deaf(*_):
            batches._on_record_lost += 1

        engine._connection.handlers[sid] = deaf
        await fill(engine, mesh, range(3, 6))
        await until(lambda: batches._on_record_lost == 3)
        engine._connection.handlers[sid] = heard
        await fill(engine, mesh, range(6, 8))
        assert seqs(await collect(batches, 5)) == [4, 5, 6, 7, 8]


async def test_a_notification_lost_at_the_end_is_noticed_by_itself(monkeypatch):
    monkeypatch.setattr(follower, "POLL_S", 0.3)
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        for subject, what in ((">", "job.k"), (f"ap.{mesh}.ctl.>", "ctl")):
            start = await engine.log.newest_seq()
            async with engine.log.follow(start, subject=subject) as batches:
                engine._connection.handlers[b"%d" % batches._listener.sid] = lambda *_: None
                waiting = asyncio.ensure_future(collect(batches, 1))
                await asyncio.sleep(0.1)
                await fill(engine, mesh, range(100, 101), what=what)
                assert seqs(await waiting) == [start + 1]


async def test_a_filter_that_shows_nothing_for_long_is_looked_at_rarely(monkeypatch):
    monkeypatch.setattr(follower, "POLL_S", 0.05)
    monkeypatch.setattr(follower, "LONGEST_POLL_S", 60.0)
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.follow(0, subject=f"ap.{mesh}.ctl.>") as batches,
    ):
        waiting = asyncio.ensure_future(collect(batches, 1))
        await until(lambda: batches._poll_s > 1.0)
        await fill(engine, mesh, [1], what="ctl")
        await soon(waiting)
        assert batches._poll_s == 0.05, "where something happens, more may"


async def test_a_slow_reader_falls_back_to_reading_and_misses_nothing(monkeypatch):
    monkeypatch.setattr(follower, "MAX_BUFFERED", 16)
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        async with engine.log.follow(0, max_batch=7) as batches:
            await fill(engine, mesh, range(1))
            await collect(batches, 1)
            await fill(engine, mesh, range(1, 200))
            await until(lambda: engine._connection.up)
            assert len(batches._buffer) <= 16
            found = []
            while len(found) < 199:
                batch = await soon(anext(batches))
                assert 0 < len(batch) <= 7
                found += seqs(batch)
        assert found == list(range(2, 201))


async def test_purged_ranges_are_skipped_in_both_ways_of_following():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        await fill(engine, mesh, range(10), what="jobs.job.a")
        await fill(engine, mesh, range(10), what="ctl")
        await fill(engine, mesh, range(10), what="job.b")
        assert await engine.log.purge(f"ap.{mesh}.jobs.job.a.>", upto=9) == 9
        async with engine.log.follow(0) as batches:
            assert seqs(await collect(batches, 21)) == list(range(10, 31))
        async with engine.log.follow(3, subject=f"ap.{mesh}.ctl.>") as batches:
            assert seqs(await collect(batches, 10)) == list(range(11, 21))
        await engine.log.purge(">", upto=30)
        async with engine.log.follow(30) as batches:
            waiting = asyncio.ensure_future(collect(batches, 1))
            await asyncio.sleep(0.2)
            await fill(engine, mesh, range(1), what="job.c")
            assert seqs(await waiting) == [31]


async def test_another_record_at_the_cursor_is_corrupt_even_if_the_log_is_longer():
    mesh = new_mesh()
    async with LocalServer() as server, await connect(server, mesh) as engine:
        await fill(engine, mesh, range(3))
        await server.stop()
        shutil.copytree(server.store, server.directory / "copy")
        await server.start()
        await until(lambda: engine.connected)
        async with engine.log.follow(0) as batches:
            await persist(lambda: fill(engine, mesh, range(3, 5)))
            await collect(batches, 5)
            await server.stop()
            shutil.rmtree(server.store)
            shutil.copytree(server.directory / "copy", server.store)
            await server.start()
            async with await connect(server, mesh) as other:
                await fill(other, mesh, range(10, 20))  # longer than before, but not the same
            with pytest.raises(Corrupt) as caught:
                await soon(anext(batches), 20)
        assert "another record at 5" in caught.value.message


async def test_a_lane_with_unproven_headers_is_read_whole():
    """A hostile member publishes around our writer; the lane must not lose its history."""
    mesh = new_mesh()
    lane = f"ap.{mesh}.jobs.job.k.1"
    cas = b"Nats-Expected-Last-Subject-Sequence"
    hostile = [
        b"",
        b"NATS/1.0\r\n%b: 0\r\n%b-Subject: ap.%b.jobs.job.k.none\r\n\r\n"
        % (cas, cas, mesh.encode()),
        b"NATS/1.0\r\nNats-Sequence: 1\r\nNats-Subject: ap.x\r\n\r\n",
    ]
    async with await connect(shared_server(), mesh) as engine:
        last = 0
        for n in range(3):
            last = await engine.log.append(lane, b"%d" % n, message_id=f"{n}", expected_last=last)
        for header in hostile:
            await fill(engine, mesh, range(last * 100, last * 100 + 3), what="jobs.job.other")
            if header:
                await engine._requester.write(lane.encode(), b"h", header, timeout_s=5)
            else:
                await engine._requester.request(lane.encode(), b"h", timeout_s=5)
            last = (await engine.log.last()).seq
            found = await whole_lane(engine.log, [lane, f"ap.{mesh}.jobs.*.k.1"])
            whole = (await engine.log.read(0, limit=100)).records
            assert found == [record for record in whole if record.subject == lane]
        assert len(found) == 6


@pytest.mark.parametrize("length", [1, 2, 8, 9, 10, 40])
async def test_a_lane_of_any_length_is_complete_and_in_order(length):
    mesh = new_mesh()
    lane = f"ap.{mesh}.jobs.job.k.1"
    async with await connect(shared_server(), mesh) as engine:
        last = 0
        for n in range(length):
            last = await engine.log.append(lane, b"%d" % n, message_id=f"{n}", expected_last=last)
            await fill(engine, mesh, range(n, n + 1), what="jobs.job.other")
        found = await whole_lane(engine.log, [f"ap.{mesh}.jobs.*.k.1", lane])
        assert [record.payload for record in found] == [b"%d" % n for n in range(length)]
        if length > 9:
            await engine.log.purge(lane, upto=found[3].seq)
            assert await whole_lane(engine.log, [lane]) == found[4:]


async def test_lanes_whose_newest_records_are_heavy_are_whole_and_come_in_light_pages():
    mesh, heavy = new_mesh(), bytes(200_000)
    async with await connect(shared_server(), mesh) as engine:
        for n in range(40):
            await engine.log.append(
                f"ap.{mesh}.jobs.job.k.{n}", heavy, message_id=f"{n}", expected_last=0
            )
        pages = [page async for page in engine.log.read_lane([f"ap.{mesh}.jobs.job.k.*"])]
        assert [record.seq for page in pages for record in page] == list(range(1, 41))
        assert max(sum(len(record.payload) for record in page) for page in pages) < 5_000_000


async def test_an_append_is_recognised_as_our_own_beyond_the_duplicate_window():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        append = engine.log.append
        first = await append(f"ap.{mesh}.jobs.job.k.1", b"a", message_id="a", expected_last=0)
        await append(f"ap.{mesh}.jobs.job.k.1", b"b", message_id="b", expected_last=first)

        async def forgetful(*_):
            return 0

        engine.log._probe = forgetful  # as after two minutes
        again = await append(f"ap.{mesh}.jobs.job.k.1", b"a", message_id="a", expected_last=0)
        assert again == first


@pytest.mark.parametrize(
    "arrives_on, reply",
    [
        ("apr.{mesh}.ctl.x", b""),
        ("apr.{mesh}.ctl.forged", b"acknowledge.here"),
        ("apr.{mesh}.ctl.forged.x", b""),
    ],
    ids=["a read sent elsewhere", "a delivery", "a longer subject"],
)
async def test_what_was_not_republished_is_no_record(arrives_on, reply):
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine, engine.log.follow(0) as batches:
        await fill(engine, mesh, range(1))
        await collect(batches, 1)
        header = (
            f"NATS/1.0\r\nNats-Stream: x\r\nNats-Subject: ap.{mesh}.ctl.forged\r\n"
            "Nats-Sequence: 2\r\nNats-Time-Stamp: 2020-01-01T00:00:00.000000001Z\r\n\r\n"
        ).encode()
        where = arrives_on.format(mesh=mesh).encode()
        engine._connection.send(wire.hpub(where, b"forged", header, reply))
        engine._connection.send(wire.pub(where, b"without headers"))
        await engine._connection.round_trip()
        await fill(engine, mesh, range(1, 3))
        found = await collect(batches, 2)
        assert [record.payload for record in found] == [b"x", b"x"]
