"""Leases: keys with an owner, a revision and an expiry."""

# A test's name states the behaviour; expected values are literal.
# ruff: noqa: D102

from __future__ import annotations

import asyncio

from antiphon.errors import Held, Rejected
from antiphon.ports import Engine, LeaseEntry
from antiphon.testing.engine_suite.harness import EngineSuite, refused

TTL_MS = 1_000
LONG_MS = 60_000
LATE_S = 5.0
"""How long after its end a key may still be seen."""


async def ends(engine: Engine, key: str) -> None:
    """Wait until a key is free."""
    async with asyncio.timeout(TTL_MS / 1000 + LATE_S):
        while await engine.leases.get(key) is not None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


class LeaseSuite(EngineSuite):
    """One bucket per mesh."""

    async def test_a_key_is_held_by_whoever_was_first(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            entry = await one.leases.create("lock.a", b"one", ttl_ms=LONG_MS)
            assert (entry.key, entry.value) == ("lock.a", b"one")
            for engine in (one, two):
                with refused(Held):
                    await engine.leases.create("lock.a", b"two", ttl_ms=LONG_MS)
            assert await two.leases.get("lock.a") == entry
            assert await two.leases.get("lock.b") is None
            await two.leases.create("lock.b", b"two", ttl_ms=LONG_MS)

    async def test_of_many_at_once_one_gets_it(self) -> None:
        async with self.site() as site:
            engines = await site.connect_many(5)

            async def attempt(engine: Engine, key: str) -> LeaseEntry | None:
                try:
                    return await engine.leases.create(key, b"mine", ttl_ms=LONG_MS)
                except Held:
                    return None

            for number in range(10):
                key = f"lock.{number}"
                got = await asyncio.gather(*(attempt(engine, key) for engine in engines))
                assert sum(entry is not None for entry in got) == 1

    async def test_it_ends_by_itself(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            begun = asyncio.get_running_loop().time()
            first = await one.leases.create("lock", b"one", ttl_ms=TTL_MS)
            await ends(two, "lock")
            assert asyncio.get_running_loop().time() - begun > 0.8 * TTL_MS / 1000
            with refused(Held):
                await one.leases.renew(first, b"one", ttl_ms=TTL_MS)
            second = await two.leases.create("lock", b"two", ttl_ms=LONG_MS)
            assert second.revision > first.revision

    async def test_a_renewed_key_lives_on(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            entry = await engine.leases.create("lock", b"0", ttl_ms=4 * TTL_MS)
            for n in range(6):
                renewed = await engine.leases.renew(entry, b"%d" % n, ttl_ms=LONG_MS)
                assert renewed.revision > entry.revision
                assert renewed.value == b"%d" % n
                entry = renewed
            await asyncio.sleep(4.5 * TTL_MS / 1000)  # what it was made for is over
            assert await engine.leases.get("lock") == entry

    async def test_an_old_revision_renews_nothing(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            old = await engine.leases.create("lock", b"0", ttl_ms=LONG_MS)
            new = await engine.leases.renew(old, b"1", ttl_ms=LONG_MS)
            with refused(Held):
                await engine.leases.renew(old, b"2", ttl_ms=LONG_MS)
            await engine.leases.release(old)
            assert await engine.leases.get("lock") == new

    async def test_a_released_key_is_free_at_once(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            first = await one.leases.create("lock", b"one", ttl_ms=LONG_MS)
            await one.leases.release(first)
            assert await two.leases.get("lock") is None
            second = await two.leases.create("lock", b"two", ttl_ms=LONG_MS)
            assert second.revision > first.revision
            await one.leases.release(first)  # no longer one's to release
            assert await one.leases.get("lock") == second
            with refused(Held):
                await one.leases.renew(first, b"one", ttl_ms=LONG_MS)

    async def test_revisions_never_repeat(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            seen: list[int] = []
            for n in range(3):
                entry = await engine.leases.create("lock", b"x", ttl_ms=LONG_MS)
                seen.append(entry.revision)
                entry = await engine.leases.renew(entry, b"x", ttl_ms=TTL_MS)
                seen.append(entry.revision)
                if n == 0:
                    await ends(engine, "lock")
                else:
                    await engine.leases.release(entry)
            assert seen == sorted(set(seen))

    async def test_the_bucket_tells_when_it_was_made(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            a = await one.leases.create("a", b"", ttl_ms=LONG_MS)
            b = await two.leases.create("b", b"", ttl_ms=LONG_MS)
            assert a.bucket_created_ns == b.bucket_created_ns > 0

    async def test_a_key_is_made_of_plain_tokens(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            for key in ("", ".a", "a.", "a..b", "a.*", ">", "a b"):
                with refused(Rejected):
                    await engine.leases.create(key, b"", ttl_ms=LONG_MS)
