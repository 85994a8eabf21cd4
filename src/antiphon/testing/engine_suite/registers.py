"""Registers of messages: durable, changed by compare-and-set, and told to watchers."""

# A test's name states the behaviour; expected values are literal.
# ruff: noqa: D102, PLR2004

from __future__ import annotations

import asyncio

from antiphon.errors import LostRace, Rejected
from antiphon.ports import Engine, MessageEntry, MessageNote, MessageStore
from antiphon.testing.engine_suite.harness import EngineSuite, eventually, persist, refused

Heard = list[tuple[str, int, bytes]]


def messages_of(engine: Engine) -> MessageStore:
    """The store of a connection with all permissions."""
    assert engine.messages is not None
    return engine.messages


async def listed(messages: MessageStore, prefix: str, *, limit: int = 512) -> list[MessageNote]:
    """Every register under a prefix, page by page."""
    found: list[MessageNote] = []
    more = True
    while more:
        after = found[-1].revision if found else 0
        page, more = await messages.list(prefix, after=after, limit=limit)
        found += page
    return found


class MessageSuite(EngineSuite):
    """One store per mesh."""

    async def test_a_register_is_what_was_written_last(self) -> None:
        async with self.site() as site:
            one, two = map(messages_of, await site.connect_many(2))
            first = await one.write("box.a.1", b"hello", note=b"n1", expected=0)
            assert await two.get("box.a.1") == MessageEntry("box.a.1", first, b"n1", b"hello")
            second = await two.write("box.a.1", b"", note=b'{"x": "y"}', expected=first)
            assert second > first
            assert await one.get("box.a.1") == MessageEntry("box.a.1", second, b'{"x": "y"}', b"")
            assert await one.get("box.a.2") is None

    async def test_only_the_expected_revision_is_replaced(self) -> None:
        async with self.site() as site:
            messages = messages_of(await site.connect())
            first = await messages.write("box.a.1", b"1", note=b"", expected=0)
            other = await messages.write("box.a.2", b"2", note=b"", expected=0)
            for wrong in (0, other, first + 100):
                with refused(LostRace):
                    await messages.write("box.a.1", b"3", note=b"", expected=wrong)
            present = await messages.get("box.a.1")
            assert present is not None
            assert present.value == b"1"

    async def test_of_many_writers_at_once_one_wins(self) -> None:
        async with self.site() as site:
            stores = [messages_of(one) for one in await site.connect_many(4)]

            async def attempt(messages: MessageStore, expected: int) -> int:
                try:
                    return await messages.write("box.a.1", b"mine", note=b"", expected=expected)
                except LostRace:
                    return 0

            revision = 0
            for _ in range(5):
                won = await asyncio.gather(*(attempt(messages, revision) for messages in stores))
                (revision,) = filter(None, won)

    async def test_a_list_has_whole_tokens_in_the_order_of_writes(self) -> None:
        async with self.site() as site:
            messages = messages_of(await site.connect())
            for number in range(7):
                await messages.write(f"box.a.{number}", b"", note=b"%d" % number, expected=0)
            await messages.write("box.ab.1", b"", note=b"other", expected=0)
            entry = await messages.get("box.a.2")
            assert entry is not None
            await messages.write("box.a.2", b"", note=b"later", expected=entry.revision)
            for limit in (1, 3, 512):
                notes = [one.note for one in await listed(messages, "box.a", limit=limit)]
                assert notes == [b"0", b"1", b"3", b"4", b"5", b"6", b"later"]
            assert await messages.list("box.none") == ([], False)
            assert await messages.list("box.none", after=1) == ([], False)

    async def test_a_list_has_the_notes_of_registers_however_large_these_are(self) -> None:
        async with self.site() as site:
            messages = messages_of(await site.connect())
            wrote = [
                await messages.write(f"box.a.{n}", b"x" * 60_000, note=b"n%d" % n, expected=0)
                for n in range(12)
            ]
            assert await listed(messages, "box.a", limit=5) == [
                MessageNote(f"box.a.{n}", wrote[n], b"n%d" % n) for n in range(12)
            ]

    async def test_a_register_ends_by_itself(self) -> None:
        async with self.site() as site:
            messages = messages_of(await site.connect())
            first = await messages.write("box.a.1", b"", note=b"done", expected=0, ttl_ms=1000)

            async def is_gone() -> bool:
                return await messages.get("box.a.1") is None

            async with asyncio.timeout(30):
                while not await is_gone():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
            assert await listed(messages, "box.a") == []
            assert await messages.write("box.a.1", b"again", note=b"", expected=0) > first

    async def test_watchers_are_told_in_order(self) -> None:
        async with self.site() as site:
            one, two = map(messages_of, await site.connect_many(2))
            await one.write("box.a.0", b"before", note=b"", expected=0)
            heard: Heard = []
            with two.watch("box.a", lambda *told: heard.append(told)):
                await two.get("box.a.0")  # the engine knows of the watcher now
                wrote = [
                    await one.write(f"box.a.{n}", b"x", note=b"n%d" % n, expected=0)
                    for n in range(1, 6)
                ]
                await one.write("box.b.1", b"x", note=b"", expected=0)
                await eventually(lambda: len(heard) == 5)
            assert heard == [(f"box.a.{n}", wrote[n - 1], b"n%d" % n) for n in range(1, 6)]
            await one.write("box.a.9", b"x", note=b"", expected=0)
            assert len(heard) == 5

    async def test_a_key_is_literal(self) -> None:
        async with self.site() as site:
            messages = messages_of(await site.connect())
            for key in ("", "box..a", "box.*", "box.>", "box. a"):
                with refused(Rejected):
                    await messages.write(key, b"", note=b"", expected=0)

    async def test_what_was_acknowledged_is_there_after_a_restart(self) -> None:
        async with self.site(own_server=True) as site:
            messages = messages_of(await site.connect())
            heard: Heard = []
            revision = await messages.write("box.a.1", b"kept", note=b"n", expected=0)
            with messages.watch("box.a", lambda *told: heard.append(told)):
                await site.harness.kill_server()
                await site.harness.restart_server()
                entry = await persist(lambda: messages.get("box.a.1"))
                assert entry == MessageEntry("box.a.1", revision, b"n", b"kept")
                await eventually(lambda: ("", 0, b"") in heard)
