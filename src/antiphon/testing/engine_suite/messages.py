"""The bus: messages that are not stored."""

# A test's name states the behaviour.
# ruff: noqa: D102

from __future__ import annotations

import asyncio

from antiphon.ports import BusMessage
from antiphon.testing.engine_suite.harness import QUIET_S, EngineSuite, soon


class BusSuite(EngineSuite):
    """Publish, subscribe, reply, drop."""

    async def test_a_message_reaches_everybody_who_listens(self) -> None:
        async with self.site() as site:
            one, two, three = await site.connect_many(3)
            async with one.bus.subscribe("pulse") as a, two.bus.subscribe("pulse") as b:
                await three.bus.publish("pulse", bytes(range(256)))
                expected = BusMessage("pulse", bytes(range(256)), "")
                assert await soon(anext(a)) == expected
                assert await soon(anext(b)) == expected

    async def test_a_listener_hears_its_own_connection(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            async with engine.bus.subscribe("pulse") as heard:
                await engine.bus.publish("pulse", b"me")
                assert (await soon(anext(heard))).payload == b"me"

    async def test_messages_of_one_publisher_keep_their_order(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            async with two.bus.subscribe("pulse") as heard:
                for n in range(100):
                    await one.bus.publish("pulse", b"%d" % n)
                got = [(await soon(anext(heard))).payload for _ in range(100)]
            assert got == [b"%d" % n for n in range(100)]

    async def test_wildcards_select(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            async with two.bus.subscribe("node.*") as star, two.bus.subscribe("node.>") as below:
                for subject in ("node", "node.a", "node.a.b", "nodes.a", "node.c"):
                    await one.bus.publish(subject, b"")
                assert [(await soon(anext(star))).subject for _ in range(2)] == ["node.a", "node.c"]
                got = [(await soon(anext(below))).subject for _ in range(3)]
                assert got == ["node.a", "node.a.b", "node.c"]

    async def test_a_reply_finds_its_way(self) -> None:
        async with self.site() as site:
            asker, answerer = await site.connect_many(2)
            inbox = asker.bus.new_inbox()
            async with answerer.bus.subscribe("roll") as calls, asker.bus.subscribe(inbox) as got:
                await asker.bus.publish("roll", b"who?", reply=inbox)
                call = await soon(anext(calls))
                assert call.reply == inbox
                await answerer.bus.publish(call.reply, b"me")
                assert await soon(anext(got)) == BusMessage(inbox, b"me", "")

    async def test_inboxes_are_fresh(self) -> None:
        async with self.site() as site:
            engines = await site.connect_many(3)
            inboxes = [engine.bus.new_inbox() for engine in engines for _ in range(20)]
            assert len(set(inboxes)) == len(inboxes)

    async def test_beyond_its_bound_a_listener_loses_the_oldest(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            async with (
                two.bus.subscribe("pulse", max_pending=10) as heard,
                two.bus.subscribe("end") as end,
            ):
                for n in range(50):
                    await one.bus.publish("pulse", b"%d" % n)
                await one.bus.publish("end", b"")
                await soon(anext(end))  # it comes behind them
                got = [(await soon(anext(heard))).payload for _ in range(10)]
            assert got == [b"%d" % n for n in range(40, 50)]

    async def test_a_listener_hears_nothing_from_before_and_after(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            await one.bus.publish("pulse", b"before")
            await asyncio.sleep(QUIET_S)  # publishing is not waiting until it is published
            async with two.bus.subscribe("pulse") as heard:
                await one.bus.publish("pulse", b"during")
                assert (await soon(anext(heard))).payload == b"during"
            await one.bus.publish("pulse", b"between")
            await asyncio.sleep(QUIET_S)
            async with two.bus.subscribe("pulse") as heard:
                await one.bus.publish("pulse", b"again")
                assert (await soon(anext(heard))).payload == b"again"

    async def test_meshes_do_not_hear_each_other(self) -> None:
        async with self.site() as site, self.site() as other_site:
            here = await site.connect()
            there = await other_site.connect()
            async with here.bus.subscribe(">") as heard:
                await there.bus.publish("pulse", b"there")
                await here.bus.publish("pulse", b"here")
                assert (await soon(anext(heard))).payload == b"here"

    async def test_nothing_on_the_bus_is_on_the_log(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await engine.bus.publish("ctl.rules", b"")
            await engine.bus.publish(site.control(), b"")
            await asyncio.sleep(QUIET_S)
            assert await engine.log.last() is None
