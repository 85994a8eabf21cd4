"""A coordinator that falls silent: its owner hears of it, and nobody takes its place."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from antiphon.core.bus.subjects import ROLL
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.policy.coordinator_silence import QUIET_AFTER_MS
from antiphon.core.presence.cards import Card
from antiphon.interfaces.cli.checks.nodes import coordinator_finding
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.coordinator_watch import CoordinatorStatus, CoordinatorWatch, ask_once
from antiphon.runtime.presence.heartbeat_watch import HeartbeatWatch
from antiphon.runtime.presence.roll_call import OwnPresence
from antiphon.runtime.services import beside
from antiphon.testing.engine_suite.harness import whole_lane
from tests.runtime.meshes import LONG_MS, a_mesh, call, eventually
from tests.runtime.timeless import answering, following, in_no_time

LIMIT_S = QUIET_AFTER_MS / 1000
ROUND_S = 46
"""A round, at most."""
UNNOTICED_S = LIMIT_S / 4 + ROUND_S
"""How old the last sign of life can be when the coordinator leaves."""
LATEST_S = LIMIT_S + 2 * ROUND_S
"""By then it is noticed."""


@asynccontextmanager
async def attending(mesh, *, connection=None):
    """A full node that watches over the coordinator, and the events that it logs."""
    connection = connection or await mesh.connection("watcher")
    with capture_logs() as events:
        async with following(connection) as node:
            heartbeats = HeartbeatWatch(connection.session, lambda *_: None)
            coordinator_watch = CoordinatorWatch(node, heartbeats.coordinator_heard_ms)
            async with beside(heartbeats.run(), coordinator_watch.run(), ready=heartbeats.ready):
                yield coordinator_watch, events


@asynccontextmanager
async def full_node(connection):
    """Sends heartbeats as often as full nodes do."""
    watch = HeartbeatWatch(connection.session, lambda *_: None)

    def card() -> Card:
        did, at_ms = connection.keyring.did, connection.session.wall.now_ms()
        return Card(node=did, alias="hub", role="node", version="0", at_ms=at_ms)

    presence = OwnPresence(connection.session, connection.keyring, card, watch)
    async with beside(watch.run(), presence.run(), ready=watch.ready):
        yield


def news(events):
    """What it told of the coordinator."""
    return [event for event in events if event["event"].startswith("coordinator_")]


async def end_of_log(connection) -> int:
    return (await connection.session.log.last()).seq


@pytest.mark.req("M17")
def test_a_quiet_coordinator_is_told_once_and_its_return_too_and_nothing_is_written():
    async def story(mesh):
        owner, hub = await mesh.connection("owner", mesh.owner), await mesh.connection("hub")
        await mesh.designate(owner, hub.keyring.did)
        before = await end_of_log(owner)
        async with attending(mesh) as (coordinator_watch, events):
            async with answering(hub):
                await asyncio.sleep(1_000)
                assert news(events) == []
                went_ms = mesh.wall.now_ms()
            await asyncio.sleep(LIMIT_S - UNNOTICED_S)
            assert news(events) == [], "so soon it may be only slow"
            await asyncio.sleep(LATEST_S - LIMIT_S + UNNOTICED_S)
            (told,) = news(events)
            assert told["coordinator"] == hub.keyring.did
            assert went_ms - UNNOTICED_S * 1_000 <= told["since_ms"] <= went_ms
            assert coordinator_watch.quiet_since_ms == told["since_ms"]
            (listed,) = coordinator_watch.node.replica.attention.newest(limit=2)
            assert (listed.service, listed.whose) == ("coordinator", hub.keyring.did)
            await asyncio.sleep(24 * 3_600)
            assert len(news(events)) == 1, "a day later that is no news"
            async with answering(hub):
                await asyncio.sleep(100)
                (back,) = news(events)[1:]
                assert (back["event"], back["coordinator"]) == (
                    "coordinator_back",
                    hub.keyring.did,
                )
                assert coordinator_watch.quiet_since_ms is None
                assert coordinator_watch.node.replica.attention.newest(limit=1) == []
        assert await end_of_log(owner) == before
        assert owner.session.control.coordinator == hub.keyring.did

    in_no_time(story)


@pytest.mark.req("M17")
def test_an_accepted_op_is_a_sign_of_life_and_a_replayed_one_is_none():
    async def story(mesh):
        owner, hub = await mesh.connection("owner", mesh.owner), await mesh.connection("hub")
        await mesh.designate(owner, hub.keyring.did)
        async with attending(mesh) as (_, events):
            for number in range(10):
                called = await call(hub.session, number)
                await asyncio.sleep(LIMIT_S * 0.9)
            assert news(events) == []
            wrote_ms = mesh.wall.now_ms() - int(LIMIT_S * 900)
            old = await owner.session.log.fetch(called.seq)
            for number in range(10):
                end = (await whole_lane(owner.session.log, [old.subject]))[-1].seq
                await owner.session.log.append(
                    old.subject, old.payload, message_id=f"again-{number}", expected_last=end
                )
                await asyncio.sleep(LIMIT_S * 0.5)
            (told,) = news(events)
            assert abs(told["since_ms"] - wrote_ms) < 1_000

    in_no_time(story)


@pytest.mark.req("M17")
def test_a_newly_designated_coordinator_starts_fresh():
    async def story(mesh):
        owner, hub = await mesh.connection("owner", mesh.owner), await mesh.connection("hub")
        other = await mesh.connection("other")
        await mesh.designate(owner, hub.keyring.did)
        async with attending(mesh) as (coordinator_watch, events):
            await asyncio.sleep(LATEST_S)
            assert [told["coordinator"] for told in news(events)] == [hub.keyring.did]
            await mesh.designate(owner, other.keyring.did)
            named_ms = mesh.wall.now_ms()
            await asyncio.sleep(LIMIT_S - 1)
            assert coordinator_watch.quiet_since_ms is None
            assert len(news(events)) == 1
            await asyncio.sleep(LATEST_S)
            assert news(events)[1]["coordinator"] == other.keyring.did
            assert 0 <= news(events)[1]["since_ms"] - named_ms <= ROUND_S * 1_000

    in_no_time(story)


@pytest.mark.parametrize("who", ["hub", "owner"])
def test_nobody_is_asked_while_heartbeats_say_it_all(who):
    """Every node of a mesh answers a roll call, however many there are."""

    async def story(mesh):
        owner, hub = await mesh.connection("owner", mesh.owner), await mesh.connection("hub")
        if who == "hub":
            await mesh.designate(owner, hub.keyring.did)
        asked = []

        async def overhear():
            async with (await mesh.connection("other")).session.engine.bus.subscribe(
                ROLL.at(), max_pending=100
            ) as calls:
                async for one in calls:
                    asked.append(one.payload)

        async with beside(overhear()), full_node(hub), attending(mesh) as (_, events):
            await asyncio.sleep(60)
            asked.clear()  # its first round may come before the first heartbeat
            await asyncio.sleep(3_600)
            assert asked == []
            assert news(events) == []

    in_no_time(story)


def test_the_node_that_coordinates_is_there():
    async def story(mesh):
        owner, hub = await mesh.connection("owner", mesh.owner), await mesh.connection("hub")
        await mesh.designate(owner, hub.keyring.did)
        async with attending(mesh, connection=hub) as (_, events):
            await asyncio.sleep(3_600)
            assert news(events) == []

    in_no_time(story)


def test_a_mesh_that_its_owners_key_coordinates_misses_nobody():
    async def story(mesh):
        owner = await mesh.connection("owner", mesh.owner)
        async with attending(mesh) as (_, events):
            await asyncio.sleep(3_600)
            assert news(events) == []
            async with answering(owner):
                await asyncio.sleep(60)
            await asyncio.sleep(LATEST_S)
            assert len(news(events)) == 1, "once a process ran under it, its end is news"

    in_no_time(story)


def test_who_is_cut_off_from_the_engine_says_nothing_about_others():
    async def story(mesh):
        owner, hub = await mesh.connection("owner", mesh.owner), await mesh.connection("hub")
        await mesh.designate(owner, hub.keyring.did)
        async with attending(mesh) as (_, events), answering(hub):
            await asyncio.sleep(100)
            mesh.server.kill()
            await asyncio.sleep(3_600)
            mesh.server.start()
            await asyncio.sleep(600)
            assert {event["event"] for event in events} == {"coordinator_watch_waits"}

    in_no_time(story)


@pytest.mark.nats
@pytest.mark.req("M17")
async def test_on_a_real_server_silence_is_noticed_and_so_is_the_return():
    async with a_mesh("nats") as mesh:
        owner, hub = (await mesh.connection(mesh.owner)), (await mesh.connection())
        body = CoordinatorBody(node=hub.keyring.did)
        await write_one(owner.session, Intent(MeshCoordinator, body))
        before = await end_of_log(owner)
        async with following(await mesh.connection()) as node:
            coordinator_watch = CoordinatorWatch(
                node, lambda _: None, round_s=0.1, listen_s=0.3, quiet_after_ms=LONG_MS
            )
            async with beside(coordinator_watch.run()):
                async with answering(hub):
                    await eventually(
                        lambda: (watch := coordinator_watch._watch) and watch.has_answered
                    )
                    assert coordinator_watch.quiet_since_ms is None
                coordinator_watch.quiet_after_ms = 1_000
                await eventually(lambda: coordinator_watch.quiet_since_ms is not None)
                async with answering(hub):
                    await eventually(lambda: coordinator_watch.quiet_since_ms is None)
        assert await end_of_log(owner) == before


@pytest.mark.exact_times
def test_asked_once_it_says_who_coordinates_and_whether_it_was_heard():
    async def story(mesh):
        owner, hub = await mesh.connection("owner", mesh.owner), await mesh.connection("hub")

        async def ask():
            async with following(await mesh.connection("asker")) as node:
                return await ask_once(node.session, node.replica, wait_s=0.4)

        began_ms = mesh.wall.now_ms()
        told = await ask()
        assert told.coordinator == mesh.owner.did
        assert (told.is_owner, told.answers, told.is_quiet) == (True, False, False)
        assert told.last_op_ms == began_ms, "the genesis"

        await mesh.designate(owner, hub.keyring.did)
        assert (await ask()).is_quiet
        async with answering(hub):
            told = await ask()
        assert (told.alias, told.answers, told.is_quiet) == ("hub", True, False)
        assert told.last_op_ms is None

        await asyncio.sleep(1_000)
        wrote_ms = mesh.wall.now_ms()
        await call(hub.session, 1)
        told = await ask()
        assert (told.answers, told.is_quiet) == (False, False), "it wrote just now"
        assert wrote_ms <= told.last_op_ms <= wrote_ms + 10
        await asyncio.sleep(LIMIT_S)
        assert (await ask()).is_quiet

    in_no_time(story)


HERE = {"coordinator": "did:key:z6MkhubHUBhub", "alias": "hub", "is_owner": False, "answers": True}
SILENT = HERE | {"alias": "", "answers": False}


@pytest.mark.req("M17")
@pytest.mark.parametrize(
    "told, level, said, hint",
    [
        (HERE, "ok", "hub (ubHUBhub) coordinates and is online", ""),
        (SILENT | {"last_op_ms": 0}, "ok", "but its last op was", ""),
        (SILENT | {"is_owner": True}, "ok", "no job needs one now", ""),
        (SILENT | {"is_owner": True, "waiting": 3}, "warning", "3 jobs cannot start", "NODE"),
        (SILENT | {"is_quiet": True}, "warning", "coordinates but does not answer", "NODE"),
        (
            SILENT | {"is_quiet": True, "last_op_ms": 0},
            "warning",
            "and its last op was",
            "start it again, or name one that is online: antiphon coordinator NODE",
        ),
    ],
)
def test_the_doctor_says_it_in_words(told, level, said, hint):
    plain = {"last_op_ms": None, "is_quiet": False, "waiting": 0}
    finding = coordinator_finding(CoordinatorStatus(**plain | told))
    assert (finding.level, finding.check) == (level, "coordinator")
    assert said in finding.sentence
    assert finding.hint.endswith(hint)
    assert bool(finding.hint) == (level == "warning")
