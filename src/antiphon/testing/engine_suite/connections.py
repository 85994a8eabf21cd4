"""Connecting, sharing, closing."""

# A test's name states the behaviour.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from antiphon.errors import LostRace, Misconfigured, Unavailable
from antiphon.ports import Engine, LeaseEntry
from antiphon.testing.engine_suite.artifacts import chunks_of, digest_of, fetch
from antiphon.testing.engine_suite.harness import EngineSuite, refused, seqs, soon, whole_lane

CROWD = 20


class LifeSuite(EngineSuite):
    """A connection's beginning and end."""

    async def test_many_nodes_may_bootstrap_a_mesh_at_once(self) -> None:
        async with self.site() as site:

            async def bootstrap(number: int) -> int:
                engine = await site.connect()
                seq = await site.append(engine, site.job(number))
                await engine.leases.create(f"node.{number}", b"", ttl_ms=60_000)
                blob = b"%d" % number
                await engine.blobs.put(chunks_of(blob, 1), digest=digest_of(blob))
                async with engine.log.work(site.calls(), name="render-1") as queue:
                    queue.grant(1)
                return seq

            given = await asyncio.gather(*(bootstrap(number) for number in range(CROWD)))
            assert sorted(given) == list(range(1, CROWD + 1))
            late = await site.connect()
            assert len((await late.log.read(0, limit=100)).records) == CROWD
            taken = [await late.leases.get(f"node.{number}") for number in range(CROWD)]
            assert None not in taken
            for number in range(CROWD):
                assert await fetch(late, digest_of(b"%d" % number)) == b"%d" % number

    async def test_connections_share_everything_and_none_is_special(self) -> None:
        async with self.site() as site:
            engines = await site.connect_many(6)
            last = 0
            for n in range(18):
                last = await site.append(engines[n % 6], site.job(1), b"%d" % n, after=last)
            for leaving in engines[:5]:
                await leaving.close()
                left = [engine for engine in engines if engine.connected]
                for engine in left:
                    lane = await whole_lane(engine.log, [site.job(1)])
                    assert [record.payload for record in lane][:18] == [
                        b"%d" % n for n in range(18)
                    ]
                last = await site.append(left[0], site.job(1), b"more", after=last)
                with refused(LostRace):
                    await site.append(left[-1], site.job(1), b"late", after=1)

    async def test_a_mesh_that_was_not_made_is_not_joined(self) -> None:
        async with self.site() as site:
            with refused(Misconfigured):
                await site.connect(create=False)
            await site.connect()
            assert (await site.connect(create=False)).connected

    async def test_making_a_mesh_again_keeps_it(self) -> None:
        async with self.site() as site:
            first = await site.connect()
            await site.append(first, site.job(1), b"kept")
            second = await site.connect()
            assert seqs((await second.log.read(0, limit=9)).records) == [1]

    async def test_an_engine_tells_about_itself(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            assert engine.connected
            info = await engine.info()
            assert info.name
            assert info.version
            assert info.replicas >= 1

    async def test_closing_twice_is_closing_once(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await engine.close()
            assert not engine.connected
            await engine.close()

    async def test_after_closing_everything_is_unavailable(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            entry = await engine.leases.create("k", b"", ttl_ms=60_000)
            await engine.close()
            for name, attempt in _everything(engine, site.job(1), entry).items():
                try:
                    await soon(attempt, 5)
                except Unavailable:
                    continue
                raise AssertionError(f"{name} works on a closed connection")

    async def test_closing_ends_whoever_waits(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            async with (
                engine.log.follow(0) as batches,
                engine.bus.subscribe("pulse") as heard,
                engine.log.work(site.calls(), name="render-1") as queue,
            ):
                queue.grant(1)
                waits = [
                    asyncio.ensure_future(anext(batches)),
                    asyncio.ensure_future(anext(heard)),
                    asyncio.ensure_future(queue.next()),
                ]
                await asyncio.sleep(0.1)
                await engine.close()
                outcomes = await soon(asyncio.gather(*waits, return_exceptions=True), 5)
            assert all(isinstance(outcome, Unavailable) for outcome in outcomes), outcomes


def _everything(engine: Engine, subject: str, entry: LeaseEntry) -> dict[str, Awaitable[object]]:
    log, leases, bus, blobs = engine.log, engine.leases, engine.bus, engine.blobs
    digest = digest_of(b"x")

    async def follow() -> None:
        async with log.follow(0) as batches:
            await anext(batches)

    async def work() -> None:
        async with log.work(subject, name="q") as queue:
            queue.grant(1)
            await queue.next()

    async def subscribe() -> None:
        async with bus.subscribe("s") as heard:
            await anext(heard)

    return {
        "append": log.append(subject, b"", message_id="m", expected_last=0),
        "read": log.read(0, limit=1),
        "read_lane": whole_lane(log, [subject]),
        "confirm": log.confirm(subject, after=0, upto=0),
        "fetch": log.fetch(1),
        "last": log.last(),
        "purge": log.purge(subject, upto=1),
        "follow": follow(),
        "work": work(),
        "create": leases.create("key", b"", ttl_ms=1000),
        "renew": leases.renew(entry, b"", ttl_ms=1000),
        "release": leases.release(entry),
        "get": leases.get("k"),
        "publish": bus.publish("s", b""),
        "subscribe": subscribe(),
        "put": blobs.put(chunks_of(b"x", 1), digest=digest),
        "fetch blob": fetch(engine, digest),
        "has": blobs.has(digest),
        "remove": blobs.remove(digest),
        "info": engine.info(),
    }
