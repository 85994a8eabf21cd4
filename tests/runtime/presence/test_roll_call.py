"""Roll calls: whoever is there answers, whatever its clock shows, and nobody else can."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon.core.bus.subjects import ROLL
from antiphon.core.presence.cards import Card
from antiphon.runtime.presence.roll_call import OwnPresence, roll_call
from tests.runtime.meshes import a_mesh, eventually

DAY_MS = 86_400_000


@asynccontextmanager
async def present(connection, *, off_ms=0):
    """A node that answers, with a clock of its own."""

    def describe():
        return Card(
            node=connection.keyring.did,
            alias="there",
            role="node",
            version="1",
            at_ms=connection.session.wall.now_ms() + off_ms,
        )

    answering = asyncio.ensure_future(
        OwnPresence(connection.session, connection.keyring, describe).run()
    )
    await asyncio.sleep(0)
    try:
        yield
    finally:
        answering.cancel()
        await asyncio.wait([answering])


async def test_a_node_whose_clock_is_wrong_is_there_all_the_same():
    async with a_mesh("memory") as mesh:
        connection, asker = await mesh.connection(), (await mesh.connection()).session
        async with present(connection, off_ms=-DAY_MS):
            (card,) = await roll_call(asker)
        assert card.node == connection.keyring.did


async def test_an_old_answer_to_another_call_answers_nothing():
    async with a_mesh("memory") as mesh:
        connection, thief, asker = [await mesh.connection() for _ in range(3)]
        bus = thief.session.engine.bus
        inbox = bus.new_inbox()
        async with present(connection), bus.subscribe(inbox) as answers:
            await bus.publish(ROLL.at(), b"", reply=inbox)
            stolen = (await anext(aiter(answers))).payload
        replayed = []

        async def replay():
            async with bus.subscribe(ROLL.at()) as calls:
                async for call in calls:
                    await bus.publish(call.reply, stolen)
                    replayed.append(call)

        replaying = asyncio.ensure_future(replay())
        await asyncio.sleep(0)
        assert await roll_call(asker.session) == []
        await eventually(lambda: replayed)
        replaying.cancel()
        await asyncio.wait([replaying])


@pytest.mark.virtual_time
async def test_hostile_answers_keep_nobody_from_being_seen():
    async with a_mesh("memory") as mesh:
        connection, liar, asker = [await mesh.connection() for _ in range(3)]
        bus = liar.session.engine.bus

        async def lie():
            async with bus.subscribe(ROLL.at()) as calls:
                async for call in calls:
                    for junk in (b"", b"\xff", b'{"x":' + b"[" * 100_000):
                        await bus.publish(call.reply, junk)

        lying = asyncio.ensure_future(lie())
        async with present(connection):
            (card,) = await roll_call(asker.session)
        assert card.node == connection.keyring.did
        lying.cancel()
        await asyncio.wait([lying])


@pytest.mark.virtual_time
async def test_a_call_with_an_endless_inbox_stops_nobody_from_answering():
    async with a_mesh("memory") as mesh:
        connection, liar, asker = [await mesh.connection() for _ in range(3)]
        async with present(connection):
            await liar.session.engine.bus.publish(ROLL.at(), b"", reply="inbox." + "x" * 1_000_000)
            (card,) = await roll_call(asker.session)
        assert card.node == connection.keyring.did
