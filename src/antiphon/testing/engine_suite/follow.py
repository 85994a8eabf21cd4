"""Following the log: every record, once, in order, soon."""

# A test's name states the behaviour.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
import statistics

from antiphon.core.record import subjects
from antiphon.errors import Corrupt
from antiphon.ports import Engine, Record
from antiphon.testing.engine_suite.harness import QUIET_S, EngineSuite, collect, refused, seqs, soon

MAX_MEDIAN_S = 0.25
"""A live follower hears of a record sooner than this, at the median, on any machine."""


class FollowSuite(EngineSuite):
    """Followers of a healthy engine."""

    async def test_history_comes_first_and_then_what_is_new(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(5))
            async with engine.log.follow(0) as batches:
                assert seqs(await collect(batches, 5)) == [1, 2, 3, 4, 5]
                await site.announce(engine, range(5, 8))
                assert seqs(await collect(batches, 3)) == [6, 7, 8]

    async def test_a_follower_sees_what_every_reader_sees(self) -> None:
        async with self.site() as site:
            engine, other = await site.connect_many(2)
            async with other.log.follow(0) as batches:
                await site.append(engine, site.job(1), bytes(range(256)))
                await site.append(engine, site.control(), b"")
                live = await collect(batches, 2)
            assert live == (await engine.log.read(0, limit=9)).records

    async def test_it_begins_behind_its_cursor(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(6))
            async with engine.log.follow(4) as batches:
                assert seqs(await collect(batches, 2)) == [5, 6]
            async with engine.log.follow(6) as batches:
                await site.announce(engine, range(6, 7))
                assert seqs(await collect(batches, 1)) == [7]

    async def test_news_travel_fast(self) -> None:
        async with self.site() as site:
            writer, reader = await site.connect_many(2)
            waits = []
            async with reader.log.follow(0) as batches:
                for n in range(20):
                    begun = asyncio.get_running_loop().time()
                    await site.append(writer, site.job(n))
                    await collect(batches, 1)
                    waits.append(asyncio.get_running_loop().time() - begun)
            assert statistics.median(waits) < MAX_MEDIAN_S

    async def test_many_followers_see_the_same(self) -> None:
        followers, count = 10, 60
        async with self.site() as site:
            writer, *readers = await site.connect_many(followers + 1)

            async def watch(engine: Engine) -> list[Record]:
                async with engine.log.follow(0) as batches:
                    return await collect(batches, count)

            async with asyncio.TaskGroup() as group:
                watches = [group.create_task(watch(engine)) for engine in readers]
                await site.announce(writer, range(count))
            expected = (await writer.log.read(0, limit=count)).records
            assert len(expected) == count
            assert all(watch.result() == expected for watch in watches)

    async def test_followers_on_one_connection_are_independent(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(4))
            async with engine.log.follow(0) as one, engine.log.follow(2) as two:
                assert seqs(await collect(one, 4)) == [1, 2, 3, 4]
                async with engine.log.follow(0) as three:
                    assert seqs(await collect(three, 4)) == [1, 2, 3, 4]
                await site.announce(engine, range(4, 5))
                assert seqs(await collect(two, 3)) == [3, 4, 5]
                assert seqs(await collect(one, 1)) == [5]

    async def test_a_filter_lets_only_its_own_through(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            control = subjects.all_control(site.mesh)
            await site.append(engine, site.control("a"))
            await site.append(engine, site.job(1))
            async with engine.log.follow(0, subject=control) as batches:
                assert seqs(await collect(batches, 1)) == [1]
                await site.append(engine, site.job(2))
                await site.append(engine, site.control("b"))
                await site.append(engine, site.job(3))
                await site.append(engine, site.control("c"))
                assert seqs(await collect(batches, 2)) == [4, 6]

    async def test_batches_are_bounded(self) -> None:
        count, bound = 1300, 100
        async with self.site() as site:
            engine = await site.connect()
            await site.append_calls(engine, count)
            found: list[Record] = []
            async with engine.log.follow(0, max_batch=bound) as batches:
                while len(found) < count:
                    batch = await soon(anext(batches))
                    assert 0 < len(batch) <= bound
                    found += batch
            assert seqs(found) == list(range(1, count + 1))

    async def test_nothing_is_missed_between_history_and_news(self) -> None:
        count = 400
        async with self.site() as site:
            writer, reader = await site.connect_many(2)
            async with asyncio.TaskGroup() as group:
                group.create_task(site.announce(writer, range(count)))
                for _ in range(5):
                    cursor = 0
                    async with reader.log.follow(cursor) as batches:
                        while cursor < count // 8:
                            for record in await soon(anext(batches)):
                                assert record.seq == cursor + 1
                                cursor = record.seq
                async with reader.log.follow(0) as batches:
                    assert seqs(await collect(batches, count)) == list(range(1, count + 1))

    async def test_a_reader_that_stops_can_go_on_from_its_cursor(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            cursor = 0
            for round_ in range(4):
                await site.announce(engine, range(round_ * 3, round_ * 3 + 3))
                async with engine.log.follow(cursor) as batches:
                    found = seqs(await collect(batches, 3))
                assert found == list(range(cursor + 1, cursor + 4))
                cursor = found[-1]

    async def test_a_cancelled_wait_loses_nothing(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            async with engine.log.follow(0) as batches:
                for _ in range(3):
                    waiting = asyncio.ensure_future(anext(batches))
                    await asyncio.sleep(0.05)
                    waiting.cancel()
                    await asyncio.wait([waiting])
                    assert waiting.cancelled()
            async with engine.log.follow(0) as batches:
                await site.announce(engine, range(2))
                assert seqs(await collect(batches, 2)) == [1, 2]

    async def test_purged_ranges_are_passed_over(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(6))
            for n in (0, 2, 3, 5):
                await engine.log.purge(site.call(n), upto=6)
            async with engine.log.follow(0) as batches:
                assert seqs(await collect(batches, 2)) == [2, 5]
                await site.append(engine, site.job(7))
                assert seqs(await collect(batches, 1)) == [7]
            async with engine.log.follow(6) as batches:
                assert seqs(await collect(batches, 1)) == [7]

    async def test_a_purged_end_is_not_a_shorter_log(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(3))
            async with engine.log.follow(0) as live:
                await collect(live, 3)
                await engine.log.purge(site.call(2), upto=3)
                async with engine.log.follow(3) as batches:
                    await asyncio.sleep(QUIET_S)
                    await site.append(engine, site.job(4))
                    assert seqs(await collect(batches, 1)) == [4]
                assert seqs(await collect(live, 1)) == [4]

    async def test_a_log_shorter_than_the_cursor_is_corrupt(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(3))
            for subject in (">", subjects.all_control(site.mesh)):
                with refused(Corrupt):
                    async with engine.log.follow(4, subject=subject) as batches:
                        await soon(anext(batches))
