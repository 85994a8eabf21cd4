"""Outages: the server dies, the connection is lost, or the disk is restored from an older copy.

Every test has its own server. Connections are expected to come back by themselves.
"""

# A test's name states the behaviour; expected values are literal.
# ruff: noqa: D102, PLR2004

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from antiphon.errors import Corrupt, Unavailable
from antiphon.ports import Engine, Record
from antiphon.testing.engine_suite.harness import (
    QUIET_S,
    SHORT_LOAN_S,
    EngineSuite,
    Site,
    collect,
    eventually,
    persist,
    refused,
    seqs,
    soon,
    take,
)
from antiphon.testing.engine_suite.many import Heard

BACK_S = 30.0
"""How long a connection may take to come back."""


async def persistently_append(site: Site, engine: Engine, numbers: range) -> None:
    """Write whatever happens: a message id makes trying again safe."""
    for n in numbers:
        message_id = site.fresh_id()

        async def attempt(n: int = n, message_id: str = message_id) -> int:
            return await engine.log.append(
                site.call(n), b"%d" % n, message_id=message_id, expected_last=0, timeout_s=2.0
            )

        await persist(attempt, BACK_S)


class OutageSuite(EngineSuite):
    """Faults that lose nothing."""

    async def test_hints_say_that_the_connection_was_lost_and_come_again(self) -> None:
        async with self.site(own_server=True) as site:
            writer, reader = await site.connect_many(2)
            heard = Heard()
            with reader.log.hints(heard) as hints:
                hints.add(site.job(1))
                await site.harness.sever(reader)
                await heard.until("", b"")
                last = 0
                while (site.job(1), b"x") not in heard.hints:  # until it is subscribed again
                    last = await site.append(writer, site.job(1), after=last)
                    await asyncio.sleep(QUIET_S / 10)

    async def test_a_killed_server_keeps_what_it_acknowledged(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            await site.announce(engine, range(50))
            before = (await engine.log.read(0, limit=100)).records
            await site.harness.kill_server()
            await site.harness.restart_server()
            page = await persist(lambda: engine.log.read(0, limit=100), BACK_S)
            assert page.records == before
            assert await persist(lambda: site.append(engine, site.job(1)), BACK_S) == 51

    async def test_without_a_server_everything_is_unavailable_until_it_is_back(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            await site.harness.kill_server()
            await eventually(lambda: not engine.connected)
            with refused(Unavailable):
                await site.append(engine, site.job(1))
            with refused(Unavailable):
                await engine.log.read(0, limit=1)
            with refused(Unavailable):
                await engine.leases.get("k")
            with refused(Unavailable):
                await soon(site.connect())
            await site.harness.restart_server()
            await eventually(lambda: engine.connected, BACK_S)
            assert await persist(lambda: site.append(engine, site.job(1)), BACK_S) == 1

    async def test_a_follower_misses_nothing_across_kills(self) -> None:
        count = 120
        async with self.site(own_server=True) as site:
            writer, reader = await site.connect_many(2)

            async def watch() -> list[Record]:
                async with reader.log.follow(0) as batches:
                    return await collect(batches, count, 3 * BACK_S)

            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch())
                group.create_task(persistently_append(site, writer, range(count)))
                for _ in range(2):
                    await asyncio.sleep(0.1)
                    await site.harness.kill_server()
                    await asyncio.sleep(0.1)
                    await site.harness.restart_server()
            assert seqs(watching.result()) == list(range(1, count + 1))
            assert {record.subject for record in watching.result()} == {
                site.call(n) for n in range(count)
            }

    async def test_a_follower_catches_up_after_its_line_broke(self) -> None:
        async with self.site(own_server=True) as site:
            writer, reader = await site.connect_many(2)
            cursor = 0
            async with reader.log.follow(0) as batches:
                for round_ in range(3):
                    await site.announce(writer, range(round_ * 20, round_ * 20 + 10))
                    await site.harness.sever(reader)
                    await site.announce(writer, range(round_ * 20 + 10, round_ * 20 + 20))
                    found = seqs(await collect(batches, 20, BACK_S))
                    assert found == list(range(cursor + 1, cursor + 21))
                    cursor = found[-1]

    async def test_a_queue_goes_on_after_its_line_broke(self) -> None:
        async with self.site(own_server=True) as site, AsyncExitStack() as stack:
            writer, worker = await site.connect_many(2)
            queue = await stack.enter_async_context(worker.log.work(site.calls(), name="q"))
            queue.grant(3)
            for n in range(3):
                await site.harness.sever(worker)
                await eventually(lambda: worker.connected, BACK_S)
                await site.announce(writer, range(n, n + 1))
                delivery = await soon(queue.next(), BACK_S)
                assert delivery.record.subject == site.call(n)
                delivery.ack()

    async def test_a_queue_goes_on_after_the_server_was_killed(self) -> None:
        async with self.site(own_server=True) as site, AsyncExitStack() as stack:
            writer, worker = await site.connect_many(2, loan_s=SHORT_LOAN_S)
            queue = await stack.enter_async_context(worker.log.work(site.calls(), name="q"))
            queue.grant(10)
            await site.announce(writer, range(2))
            held, settled = await take(queue, 2)
            settled.ack()
            await asyncio.sleep(QUIET_S)
            await site.harness.kill_server()
            await asyncio.sleep(QUIET_S)
            await site.harness.restart_server()
            await persistently_append(site, writer, range(2, 4))
            got: dict[int, int] = {}
            while set(got) != {held.record.seq, 3, 4}:
                delivery = await soon(queue.next(), BACK_S)
                got[delivery.record.seq] = delivery.deliveries
                delivery.ack()
            assert got[held.record.seq] >= 2
            assert settled.record.seq not in got

    async def test_revisions_never_repeat_across_a_restart(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            first = await engine.leases.create("lock", b"1", ttl_ms=60_000)
            await site.harness.kill_server()
            await site.harness.restart_server()
            assert await persist(lambda: engine.leases.get("lock"), BACK_S) == first
            await engine.leases.release(first)
            await site.harness.kill_server()
            await site.harness.restart_server()
            assert await persist(lambda: engine.leases.get("lock"), BACK_S) is None
            second = await engine.leases.create("lock", b"2", ttl_ms=60_000)
            assert second.revision > first.revision
            assert second.bucket_created_ns == first.bucket_created_ns

    async def test_a_listener_hears_again_after_a_restart(self) -> None:
        async with self.site(own_server=True) as site:
            one, two = await site.connect_many(2)
            async with two.bus.subscribe("pulse") as heard:
                await site.harness.kill_server()
                await site.harness.restart_server()
                await eventually(lambda: one.connected and two.connected, BACK_S)
                await one.bus.publish("pulse", b"again")
                assert (await soon(anext(heard))).payload == b"again"

    async def test_message_ids_outlive_a_restart(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            seq = await site.append(engine, site.job(1), b"once", message_id="m")
            await site.harness.kill_server()
            await site.harness.restart_server()
            again = await persist(
                lambda: site.append(engine, site.job(1), b"once", message_id="m"), BACK_S
            )
            assert again == seq


class RestoreSuite(EngineSuite):
    """A store restored from an older copy: no node may continue as if nothing had happened."""

    async def test_a_live_follower_stops(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            await site.announce(engine, range(5))
            await site.harness.keep_copy()
            await persistently_append(site, engine, range(5, 10))
            async with engine.log.follow(0) as batches:
                await collect(batches, 10)
                waiting = asyncio.ensure_future(anext(batches))
                await asyncio.sleep(QUIET_S)
                await site.harness.restore_older()
                with refused(Corrupt):
                    await soon(waiting, BACK_S)

    async def test_a_log_that_grew_again_is_not_the_same(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            await site.announce(engine, range(5))
            await site.harness.keep_copy()
            await persistently_append(site, engine, range(5, 10))
            async with engine.log.follow(0) as batches:
                await collect(batches, 10)
                await site.harness.restore_older()
                await persistently_append(site, await site.connect(), range(20, 40))
                with refused(Corrupt):
                    await soon(anext(batches), BACK_S)

    async def test_a_filtered_follower_stops(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            await site.append(engine, site.control("a"))
            await site.harness.keep_copy()
            await persist(engine.log.last, BACK_S)
            await site.append(engine, site.control("b"))
            async with engine.log.follow(0, subject=f"ap.{site.mesh}.ctl.>") as batches:
                await collect(batches, 2)
                waiting = asyncio.ensure_future(anext(batches))
                await asyncio.sleep(QUIET_S)
                await site.harness.restore_older()
                with refused(Corrupt):
                    await soon(waiting, BACK_S)

    async def test_a_cursor_from_before_is_refused(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            await site.announce(engine, range(5))
            await site.harness.keep_copy()
            await persistently_append(site, engine, range(5, 10))
            await site.harness.restore_older()
            await persist(engine.log.last, BACK_S)
            for engine_ in (engine, await site.connect()):
                with refused(Corrupt):
                    async with engine_.log.follow(10) as batches:
                        await soon(anext(batches), BACK_S)

    async def test_a_follower_that_is_not_ahead_goes_on(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            await site.announce(engine, range(5))
            await site.harness.keep_copy()
            async with engine.log.follow(0) as batches:
                await collect(batches, 5, BACK_S)
                await site.harness.restore_older()
                await persistently_append(site, engine, range(5, 6))
                assert seqs(await collect(batches, 1, BACK_S)) == [6]
