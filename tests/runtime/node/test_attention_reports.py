"""What the coordinator's services set aside is known to other nodes, until it is dealt with."""

import asyncio
import json

import pytest

from antiphon.core.bus.attention_report import (
    ATTENTION_REPORTS,
    MOST_ITEMS,
    AttentionReport,
    ReportedItem,
)
from antiphon.core.bus.subjects import ATTENTION
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.errors import Rejected
from antiphon.runtime.attention.item_guard import ItemGuard
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.node.attention_reports import (
    AGAIN_S,
    ROUND_S,
    SILENT_S,
    AttentionReports,
)
from tests.runtime.meshes import a_mesh, eventually

pytestmark = pytest.mark.virtual_time
WHOSE = "did:key:zAda"


async def reporting(mesh, keyring=None):
    """A full node that does nothing else for its mesh."""
    connection = await mesh.connection(keyring)
    node = await mesh.node(caretaking=False, connection=connection)
    running = asyncio.ensure_future(AttentionReports(node, connection.keyring).run())
    mesh.stack.callback(running.cancel)
    return node


async def two_nodes(mesh):
    """The coordinator's, and another's with what it hears."""
    return await reporting(mesh, mesh.owner), await reporting(mesh)


def reported(node):
    return [(one.service, one.item, one.by) for one in node.replica.attention.reported()]


def set_aside(node, *items, whose=WHOSE):
    guard = ItemGuard[str]("offers", node.session, node.replica.attention)
    for item in items:
        with guard.about(item, whose=whose):
            raise Rejected(f"{item} is too large")
    return guard


async def test_others_know_it_since_when_and_by_whom_and_also_when_it_is_over():
    async with a_mesh("memory") as mesh:
        coordinator = await mesh.node(connection=await mesh.connection(mesh.owner))
        other = await mesh.node()  # with every service of a node
        did = coordinator.session.author.did
        guard = set_aside(coordinator, "a", "b")
        since_ms = coordinator.session.wall.now_ms()
        await eventually(lambda: len(reported(other)) == 2)
        found = other.replica.attention.reported()
        assert sorted((one.item, one.by, one.whose, one.reason) for one in found) == [
            ("a", did, WHOSE, "a is too large"),
            ("b", did, WHOSE, "b is too large"),
        ]
        assert {one.since_ms for one in found} == {since_ms}
        assert other.replica.attention.newest(limit=9) == [], "not its own"
        assert reported(coordinator) == [], "it knows that already"
        guard.drop("a")
        await eventually(lambda: reported(other) == [("offers", "b", did)])
        guard.drop("b")
        await eventually(lambda: reported(other) == [])


async def test_the_same_is_said_again_for_those_who_come_later_and_not_more_often():
    async with a_mesh("memory") as mesh:
        coordinator, _ = await two_nodes(mesh)
        listener = (await mesh.connection()).session
        heard = []

        async def hear():
            async with listener.engine.bus.subscribe(ATTENTION.at(), max_pending=99) as messages:
                async for message in messages:
                    heard.append(message)

        listening = asyncio.ensure_future(hear())
        await asyncio.sleep(2 * ROUND_S)
        assert heard == [], "there is nothing to say"
        set_aside(coordinator, *map(str, range(MOST_ITEMS + 9)), whose="")
        await asyncio.sleep(AGAIN_S)
        assert len(heard) == 1
        assert len(json.loads(heard[0].payload)["message"]["body"]["items"]) == MOST_ITEMS
        late = await reporting(mesh)
        await eventually(lambda: len(reported(late)) == MOST_ITEMS, within_s=2 * AGAIN_S)
        assert len(heard) == 2
        listening.cancel()


async def test_only_the_present_coordinator_is_believed():
    async with a_mesh("memory") as mesh:
        coordinator, other = await two_nodes(mesh)
        owner, stranger = coordinator.session, await mesh.connection()
        keyring = stranger.keyring

        async def say(item):
            where, now_ms = ATTENTION.at(), owner.wall.now_ms()
            said = ReportedItem(service="offers", item=item, reason="so", since_ms=now_ms)
            payload = ATTENTION_REPORTS.sign(
                AttentionReport(items=(said,)),
                (keyring.did, keyring.sign),
                mesh=owner.mesh,
                subject=where,
                at_ms=now_ms,
            )
            await stranger.session.engine.bus.publish(where, payload)
            await asyncio.sleep(1)
            return payload

        await asyncio.sleep(ROUND_S)
        await say("a lie")
        assert reported(other) == []
        named = Intent(MeshCoordinator, CoordinatorBody(node=keyring.did))
        await write_one(owner, named, BEHIND)
        await eventually(lambda: other.session.control.coordinator == keyring.did)
        old = await say("the truth")
        assert reported(other) == [("offers", "the truth", keyring.did)]
        await say("another truth")
        await stranger.session.engine.bus.publish(ATTENTION.at(), old)
        await asyncio.sleep(1)
        assert reported(other) == [("offers", "another truth", keyring.did)], "no replay counts"
        await asyncio.sleep(SILENT_S + 2 * ROUND_S)
        assert reported(other) == [], "nobody has said it for long"
