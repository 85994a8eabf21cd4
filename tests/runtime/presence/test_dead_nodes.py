"""Nodes that died stay listed for a day, also by a full node that was stopped meanwhile."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon.core.presence.presence_table import DEAD_KEPT_MS, Level
from antiphon.runtime.presence import heartbeat_watch
from antiphon.runtime.presence.heartbeat_watch import HeartbeatWatch
from antiphon.runtime.presence.known_nodes import KnownNodes, StoredNode
from antiphon.runtime.presence.live_nodes import cards_of_live, live_and_dead_nodes
from antiphon.runtime.presence.roll_call import OwnPresence
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.services import beside
from tests.runtime.presence.test_heartbeats import COMPLETE_S, cut, describing, present
from tests.runtime.timeless import in_no_time

MINUTE_S = 60.0
HOUR_S = 3600.0


@asynccontextmanager
async def watching(connection, replica):
    """A full node that keeps what it hears beside its replica."""
    watch = HeartbeatWatch(connection.session, replica.presence.add, replica.known_nodes)
    card = describing(connection, "node")
    presence = OwnPresence(connection.session, connection.keyring, card, watch)
    async with beside(watch.run(), presence.run(), ready=watch.ready):
        yield watch


def replica_of(connection):
    return Replica(":memory:", mesh=connection.session.mesh)


async def listed(asker):
    """Names of the nodes that are online, and of those that died."""
    live, dead = await live_and_dead_nodes(asker.session, wait_s=0.1)
    assert all(one.level == "dead" for one in dead)
    return [one.card.alias for one in live], [one.card.alias for one in dead]


async def connections(timeless, *names):
    return [await timeless.connection(one) for one in names]


def test_a_node_that_died_is_listed_for_a_day_and_counts_as_nobody():
    async def story(timeless):
        node, killed, stopped, asker = await connections(
            timeless, "n", "killed", "stopped", "asker"
        )
        async with watching(node, replica_of(node)):
            async with present(stopped):
                await asyncio.sleep(COMPLETE_S)
            async with present(killed, kinds=("shop.price",)):
                await asyncio.sleep(COMPLETE_S)
                await cut(killed)
            await asyncio.sleep(2 * MINUTE_S)
            assert await listed(asker) == (["n"], ["killed"]), "who said goodbye is not missed"
            (dead,) = (await live_and_dead_nodes(asker.session, wait_s=0.1))[1]
            assert dead.card.kinds == ("shop.price",)
            assert abs(dead.silent_ms - 2 * MINUTE_S * 1000) < MINUTE_S * 1000
            assert [card.alias for card in await cards_of_live(asker.session, wait_s=0.1)] == ["n"]
            await asyncio.sleep(23 * HOUR_S)
            assert await listed(asker) == (["n"], ["killed"])
            await asyncio.sleep(HOUR_S)
            assert await listed(asker) == (["n"], [])

    in_no_time(story)


def test_a_full_node_that_was_stopped_lists_who_never_came_back():
    async def story(timeless):
        node, killed, back, asker = await connections(timeless, "n", "killed", "back", "asker")
        replica = replica_of(node)
        async with present(back):
            async with watching(node, replica), present(killed):
                await asyncio.sleep(HOUR_S)
                await cut(killed)
            went_ms = timeless.wall.now_ms()
            await asyncio.sleep(HOUR_S)
            again = await timeless.connection("n", node.keyring)
            async with watching(again, replica) as watch:
                assert watch.table.dead() == [], "it may be heard yet"
                assert list(watch.table.full_nodes()) == []
                await asyncio.sleep(COMPLETE_S)
                assert await listed(asker) == (["n", "back"], ["killed"])
                (dead,) = (await live_and_dead_nodes(asker.session, wait_s=0.1))[1]
                heard_ms = timeless.wall.now_ms() - dead.silent_ms
                assert abs(went_ms - heard_ms) <= 2 * MINUTE_S * 1000, "when it was heard last"
            changes = [
                (one.change.alias, one.change.level) for one in replica.presence.newest(limit=9)
            ]
            assert ("killed", "dead") in changes

    in_no_time(story)


def test_a_node_that_comes_back_to_a_full_node_that_was_stopped_is_not_listed_as_dead():
    async def story(timeless):
        node, worker, asker = await connections(timeless, "n", "worker", "asker")
        replica = replica_of(node)
        async with watching(node, replica):
            async with present(worker):
                await asyncio.sleep(COMPLETE_S)
                await cut(worker)
            await asyncio.sleep(2 * MINUTE_S)
        again = await timeless.connection("n", node.keyring)
        same = await timeless.connection("worker", worker.keyring)
        async with watching(again, replica):
            await asyncio.sleep(COMPLETE_S)
            assert await listed(asker) == (["n"], ["worker"])
            async with present(same):
                await asyncio.sleep(COMPLETE_S)
                assert await listed(asker) == (["n", "worker"], [])
            await asyncio.sleep(COMPLETE_S)
            assert await listed(asker) == (["n"], []), "it said goodbye"
        assert [one.node for one in replica.known_nodes.all()] == [again.keyring.did]

    in_no_time(story)


@pytest.mark.parametrize("is_shared", [False, True])
def test_an_answer_has_a_bounded_number_of_those_that_died(monkeypatch, is_shared):
    monkeypatch.setattr(heartbeat_watch, "MOST_DEAD", 2)
    if not is_shared:
        monkeypatch.setattr(heartbeat_watch, "party_of_key", lambda *_: "one")

    async def story(timeless):
        node, asker, *killed = await connections(timeless, "n", "asker", "one", "two", "three")
        async with watching(node, replica_of(node)):
            for one in killed:
                async with present(one):
                    await asyncio.sleep(COMPLETE_S)
                    await cut(one)
            await asyncio.sleep(HOUR_S)
            first = killed[0].keyring.did
            if is_shared:
                monkeypatch.setattr(heartbeat_watch, "party_of_key", lambda _, did: did == first)
            found = ["three", "one" if is_shared else "two"]
            assert await listed(asker) == (["n"], found), "those heard last, in turns by party"

    in_no_time(story)


@pytest.mark.parametrize("kept", [1, 2])
def test_rows_are_bounded_and_those_of_a_day_ago_go(kept):
    db = Replica(":memory:", mesh="m")._db
    nodes = KnownNodes(db, kept=kept)
    made = StoredNode("did:1", "one", "u", b"{}", at_ms=1, heard_ms=1_000, level=Level.DEAD)
    nodes.put(made)
    nodes.put(replace(made, node="did:2", alias="two", heard_ms=2_000))
    assert nodes.aliases() == {"did:2": "two"} | ({"did:1": "one"} if kept == 2 else {})
    nodes.watched(1_500 + DEAD_KEPT_MS)
    assert list(nodes.aliases().values()) == ["two"]
    nodes.drop("did:2")
    assert not list(nodes.all())
