"""Heartbeats on a mesh: one node answers for all, silence is noticed, and lies are not believed."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw
from msgspec.structs import replace

from antiphon import Mesh
from antiphon.assembly import announcing
from antiphon.core.bus.subjects import HEARTBEAT, ROLL
from antiphon.core.families.grants.ops import RevokeBody, UcanRevoke
from antiphon.core.presence.cards import (
    CARDS,
    HEARTBEATS,
    HEARTBEATS_WANTED,
    LONGEST_BEAT_MS,
    ROLL_PAGES,
    SHORTEST_BEAT_MS,
    Card,
    KnownHeartbeat,
    RollPage,
)
from antiphon.core.presence.presence_table import PresenceChange
from antiphon.engines.memory import MemoryEngine
from antiphon.engines.nats.gate.roll_call_service import LIMITS
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.presence import heartbeat_watch
from antiphon.runtime.presence.heartbeat_watch import HeartbeatWatch
from antiphon.runtime.presence.live_nodes import live_nodes
from antiphon.runtime.presence.presence_changes import PresenceChanges
from antiphon.runtime.presence.roll_call import FOR_ALL, OwnPresence, roll_call
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.services import beside
from tests.patience import PATIENCE_S
from tests.runtime.meshes import a_mesh
from tests.runtime.plans.plan_meshes import CLOSED, grant
from tests.runtime.timeless import in_no_time

COMPLETE_S = 14.0
"""After which full nodes know that others answer for all too."""


def describing(connection, role, **fields):
    def card():
        return Card(
            node=connection.keyring.did,
            alias=connection.alias,
            role=role,
            version="0",
            at_ms=connection.session.wall.now_ms(),
            agent=connection.agent,
            **fields,
        )

    return card


@asynccontextmanager
async def present(connection, role="worker", **fields):
    """A node that sends heartbeats and answers roll calls."""
    card = describing(connection, role, **fields)
    async with beside(OwnPresence(connection.session, connection.keyring, card).run()):
        await asyncio.sleep(0)
        yield


@asynccontextmanager
async def listening(connection, changes):
    """A full node's part of it."""
    watch = HeartbeatWatch(connection.session, lambda at_ms, change: changes.append(change))
    card = describing(connection, "node")
    presence = OwnPresence(connection.session, connection.keyring, card, watch)
    async with beside(watch.run(), presence.run(), ready=watch.ready):
        yield watch


def told(changes, alias):
    return [(one.was, one.level) for one in changes if one.alias == alias]


async def cut(connection):
    """Its process is gone without a word."""
    engine = connection.session.engine
    assert isinstance(engine, MemoryEngine)
    await engine.close()


@pytest.mark.req("S11")
def test_one_node_answers_for_all_with_what_each_says_of_itself():
    async def story(timeless):
        asker = await timeless.connection("asker")
        workers = [await timeless.connection(f"w{number}") for number in range(3)]
        nodes = [await timeless.connection(f"n{number}") for number in range(2)]
        heard = []
        async with (
            listening(nodes[0], []),
            listening(nodes[1], []),
            present(replace(workers[0], agent="reviewer"), kinds=("k.a",), busy=1, slots=2),
            present(workers[1], labels=("gpu",)),
            present(workers[2]),
            asker.session.engine.bus.subscribe("inbox.>") as answers,
        ):

            async def count():
                async for message in answers:
                    heard.append(message)

            counting = asyncio.ensure_future(count())
            await asyncio.sleep(COMPLETE_S)
            found = {one.card.alias: one for one in await live_nodes(asker.session, wait_s=0.4)}
            assert set(found) == {"w0", "w1", "w2", "n0", "n1"}
            first = found["w0"].card
            assert (first.agent, first.kinds, first.busy) == ("reviewer", ("k.a",), 1)
            assert found["w1"].card.labels == ("gpu",)
            assert {one.level for one in found.values()} == {"alive"}
            assert all(one.silent_ms <= one.card.next_ms for one in found.values())
            assert len(heard) == 1, "one page of one node"
            assert len(await roll_call(asker.session)) == 5, "everybody still answers if asked to"
            counting.cancel()
            await asyncio.wait([counting])

    in_no_time(story)


@pytest.mark.req("S11")
def test_silence_is_noticed_step_by_step_and_a_goodbye_at_once():
    async def story(timeless):
        node, silent, leaver = [await timeless.connection(one) for one in ("n", "silent", "leaver")]
        changes = []
        async with listening(node, changes) as watch:
            async with present(leaver):
                async with present(silent):
                    await asyncio.sleep(20)
                    assert told(changes, "silent") == [("", "alive")], "nothing is missed"
                    await cut(silent)
                await asyncio.sleep((LONGEST_BEAT_MS + 10 * SHORTEST_BEAT_MS) / 1000)
                assert told(changes, "silent")[1:] == [
                    ("alive", "warn"),
                    ("warn", "alert"),
                    ("alert", "critical"),
                    ("critical", "dead"),
                ]
                assert told(changes, "leaver") == [("", "alive")]
            await asyncio.sleep(1)
            assert told(changes, "leaver")[1:] == [("alive", "left")]
            assert {one.card.alias for one in watch.table.live(watch.now_ms)} == {"n"}

    in_no_time(story)


def test_who_has_nothing_new_to_say_says_so_rarely_and_a_change_soon():
    async def story(timeless):
        node, worker = await timeless.connection("n"), await timeless.connection("w")
        changes, heard, done = [], [], 0

        def card():
            return describing(worker, "worker", done=done)()

        presence = OwnPresence(worker.session, worker.keyring, card)
        async with listening(node, changes) as watch, beside(presence.run()):
            real = watch.hear
            watch.hear = lambda subject, payload: (heard.append(subject), real(subject, payload))
            await asyncio.sleep(120)
            mine = HEARTBEAT.at(user=worker.session.engine.bus.user)
            heard.clear()
            await asyncio.sleep(600)
            assert 10 <= heard.count(mine) <= 12, "one a minute"
            assert told(changes, "w") == [("", "alive")], "and none was missed"
            heard.clear()
            done = 1
            await asyncio.sleep(SHORTEST_BEAT_MS / 1000 + 1)
            assert heard.count(mine) == 1
            assert {one.card.done for one in watch.table.live(watch.now_ms)} == {0, 1}
            heard.clear()
            await asyncio.sleep(SHORTEST_BEAT_MS / 1000)
            assert heard.count(mine) == 1, "and whether there is more to say, again soon"

    in_no_time(story)


def test_a_full_node_that_begins_to_listen_soon_knows_those_that_rarely_speak():
    async def story(timeless):
        node, worker = await timeless.connection("n"), await timeless.connection("w")
        async with present(worker):
            await asyncio.sleep(600)
            async with listening(node, []) as watch:
                await asyncio.sleep(SHORTEST_BEAT_MS / 1000)
                assert {one.card.alias for one in watch.table.live(watch.now_ms)} == {"n", "w"}

    in_no_time(story)


def test_who_is_asked_for_heartbeats_again_and_again_sends_few():
    async def story(timeless):
        node, worker, asker = [await timeless.connection(one) for one in ("n", "w", "asker")]
        heard = []
        async with listening(node, []) as watch, present(worker):
            real = watch.hear
            watch.hear = lambda subject, payload: (heard.append(subject), real(subject, payload))
            bus = asker.session.engine.bus
            for _ in range(600):
                await bus.publish(ROLL.at(), HEARTBEATS_WANTED, reply=bus.new_inbox())
                await asyncio.sleep(0.1)
            mine = HEARTBEAT.at(user=worker.session.engine.bus.user)
            assert 12 <= heard.count(mine) <= 60, "at most one a second"

    in_no_time(story)


@pytest.mark.req("S11")
def test_another_threshold_leaves_out_others():
    async def story(timeless):
        node, silent, asker = [await timeless.connection(one) for one in ("n", "silent", "asker")]
        async with listening(node, []):
            async with present(silent):
                await asyncio.sleep(COMPLETE_S)
                await cut(silent)
            await asyncio.sleep(30)
            found = await live_nodes(asker.session, wait_s=0.1)
            assert [(one.card.alias, one.level) for one in found] == [
                ("n", "alive"),
                ("silent", "critical"),
            ]
            strict = await live_nodes(asker.session, stale_ms=10_000, wait_s=0.1)
            assert [one.card.alias for one in strict] == ["n"]
            await asyncio.sleep(60)
            assert len(await live_nodes(asker.session, wait_s=0.1)) == 1

    in_no_time(story)


def test_a_node_that_has_not_listened_for_long_answers_for_nobody_else():
    async def story(timeless):
        node, worker, asker = [await timeless.connection(one) for one in ("n", "w", "asker")]
        async with present(worker):
            await asyncio.sleep(1)
            async with listening(node, []) as watch:
                assert not watch.knows_others
                found = await live_nodes(asker.session, wait_s=0.4)
                assert [one.card.alias for one in found] == ["n", "w"], "each for itself"
                await asyncio.sleep(COMPLETE_S)
                assert watch.knows_others

    in_no_time(story)


def test_whoever_answers_for_all_can_invent_nobody_and_hide_nobody():
    async def story(timeless):
        node, worker, liar, asker = [
            await timeless.connection(one) for one in ("n", "w", "liar", "asker")
        ]
        me = (liar.keyring.did, liar.keyring.sign)
        mesh, bus = liar.session.mesh, liar.session.engine.bus

        async def lie():
            async with bus.subscribe(ROLL.at()) as calls:
                async for call in calls:
                    nobody = replace(describing(worker, "worker")(), alias="invented")
                    forged = HEARTBEATS.sign(
                        nobody, me, mesh=mesh, subject=HEARTBEAT.at(user=bus.user), at_ms=1
                    )
                    known = (KnownHeartbeat(0, bus.user, Raw(forged)),)
                    page = RollPage(page=1, pages=1, known=known)
                    where = call.reply
                    await bus.publish(where, ROLL_PAGES.sign(page, me, mesh=mesh, subject=where))
                    await bus.publish(where, b"\xff")

        async with listening(node, []), present(worker):
            await asyncio.sleep(COMPLETE_S)
            lying = asyncio.ensure_future(lie())
            await asyncio.sleep(0)
            found = await live_nodes(asker.session, wait_s=0.4)
            assert [one.card.alias for one in found] == ["n", "w"]
            lying.cancel()
            await asyncio.wait([lying])

    in_no_time(story)


def test_a_heartbeat_counts_on_its_senders_subject_in_time_and_once():
    async def story(timeless):
        node, other = await timeless.connection("n"), await timeless.connection("other")
        changes = []
        watch = HeartbeatWatch(node.session, lambda _, change: changes.append(change))
        me, mesh = (other.keyring.did, other.keyring.sign), other.session.mesh
        card = describing(other, "worker")()
        now_ms = other.session.wall.now_ms()

        def heartbeat(at_ms=now_ms, subject="heartbeat.7", body=card, kind=HEARTBEATS):
            return kind.sign(body, me, mesh=mesh, subject=subject, at_ms=at_ms)

        stolen = replace(card, node=node.keyring.did)
        for refused in (
            b"",
            heartbeat(at_ms=now_ms - 11_000),
            heartbeat(at_ms=now_ms + 11_000),
            heartbeat(subject="heartbeat.8"),
            heartbeat(body=stolen),
            heartbeat(kind=CARDS),
        ):
            watch.hear("heartbeat.7", refused)
        assert len(watch.table) == 0
        for at_ms in (now_ms, now_ms, now_ms - 1):
            watch.hear("heartbeat.7", heartbeat(at_ms=at_ms))
        assert [(one.was, one.level) for one in changes] == [("", "alive")]

    in_no_time(story)


def test_who_sends_too_many_is_left_out_alone(monkeypatch):
    async def story(timeless):
        node, other = await timeless.connection("n"), await timeless.connection("other")
        watch = HeartbeatWatch(node.session, lambda *_: None)
        opened = []
        real = HEARTBEATS.open
        monkeypatch.setattr(HEARTBEATS, "open", lambda *a, **k: opened.append(1) or real(*a, **k))
        for _ in range(10 * heartbeat_watch.MAX_OF_USER):
            watch.hear("heartbeat.7", b"junk")
        assert len(opened) == heartbeat_watch.MAX_OF_USER
        payload = HEARTBEATS.sign(
            describing(other, "worker")(),
            (other.keyring.did, other.keyring.sign),
            mesh=other.session.mesh,
            subject="heartbeat.8",
            at_ms=other.session.wall.now_ms(),
        )
        watch.hear("heartbeat.8", payload)
        assert len(watch.table) == 1

    in_no_time(story)


def test_a_full_node_that_comes_knows_the_others_at_once_and_whose_turn_it_is():
    async def story(timeless):
        first, second = await timeless.connection("n1"), await timeless.connection("n2")
        jobs = [f"{number:064x}" for number in range(24)]
        async with listening(first, []) as earlier, present(await timeless.connection("w")):
            await asyncio.sleep(2)
            assert {earlier.turn("any.kind", job, "") for job in jobs} == {0}, "no worker has turns"
            async with listening(second, []) as later:
                await asyncio.sleep(0.5)
                turns = [
                    [one.turn("any.kind", job, "") for job in jobs] for one in (earlier, later)
                ]
                assert all(sorted(pair) == [0, 1] for pair in zip(*turns, strict=True))
            assert {earlier.turn("any.kind", job, "") for job in jobs} == {0}, "it said goodbye"
            await asyncio.sleep(1)
            async with listening(second, []) as again:
                await asyncio.sleep(0.5)
                assert {again.turn("any.kind", job, "") for job in jobs} == {0, 1}

    in_no_time(story)


def test_a_worker_with_very_many_kinds_says_as_many_as_there_is_room_for():
    async def story(timeless):
        node, worker = await timeless.connection("n"), await timeless.connection("w")
        kinds = tuple(f"kind.number{number}" for number in range(2_000))
        async with listening(node, []) as watch, present(worker, kinds=kinds):
            await asyncio.sleep(1)
            (one,) = [one for one in watch.table.live(watch.now_ms) if one.card.alias == "w"]
            assert 100 < len(one.card.kinds) < 2_000

    in_no_time(story)


@pytest.mark.virtual_time
@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_who_has_no_right_any_more_is_over_whatever_it_says(how):
    async with a_mesh("memory", CLOSED) as mesh:
        owner, worker = await mesh.connection(mesh.owner), await mesh.connection()
        soon_s = mesh.wall.now_ms() // 1000 + 20
        ends = {"until_s": soon_s} if how == "expired" else {}
        cids = await grant(owner.session, worker.keyring.did, can=("claim",), **ends)
        await worker.session.sync_control()
        node = await mesh.node(connection=await mesh.connection(mesh.owner))

        def told():
            kept = node.replica.presence.newest(limit=50)
            return [one.change.level for one in kept if one.change.node == worker.keyring.did]

        async with present(worker):
            await asyncio.sleep(10)
            assert told() == ["alive"]
            if how == "revoked":
                for cid in cids:
                    await write_one(owner.session, Intent(UcanRevoke, RevokeBody(cid=cid)))
                await asyncio.sleep(3)
            else:
                await asyncio.sleep(60)
            assert told() == ["alive", "ended"]
            await asyncio.sleep(60)
            assert told() == ["alive", "ended"], "its heartbeats do not bring it back"
        stranger = await mesh.connection()
        async with present(stranger):
            await asyncio.sleep(10)
        known = node.replica.presence.newest(limit=50)
        assert stranger.keyring.did not in {one.change.node for one in known}


def test_an_agent_that_calls_is_there_while_it_is():
    async def story(timeless):
        node, agent = await timeless.connection("n"), await timeless.connection("a")
        changes = []
        async with listening(node, changes):
            async with announcing(replace(agent, agent="planner")):
                await asyncio.sleep(1)
            await asyncio.sleep(1)
        (came, went) = [one for one in changes if one.alias == "a"]
        assert (came.agent, came.role, came.level, went.level) == (
            "planner",
            "agent",
            "alive",
            "left",
        )

    in_no_time(story)


@pytest.mark.req("S11")
async def test_a_program_asks_its_mesh_who_is_live_and_who_came(tmp_path):
    mesh = Mesh.open(engine="memory", agent="planner")

    @mesh.task("own.echo")
    async def echo(text: str) -> str:
        return text

    async with mesh, mesh.worker():
        async with asyncio.timeout(PATIENCE_S):
            roles = {}
            while roles.keys() < {"worker", "node", "agent"}:  # a busy machine answers late
                found = await mesh.presence.live(stale_threshold_ms=60_000)
                roles |= {one.card.role: one.card for one in found}
        assert {card.agent for card in roles.values()} == {"planner"}
        assert roles["worker"].kinds == ("own.echo",)


def test_changes_are_kept_beside_the_replica_and_bounded(tmp_path):
    replica = Replica(tmp_path / "replica.db", mesh="m" * 16)
    few = PresenceChanges(replica._db, kept=3)
    for number in range(10):
        change = PresenceChange(
            node="did:a", alias="a", agent="main", role="worker", was="", level=f"{number}"
        )
        few.add(number, change)
    replica.close()
    again = Replica(tmp_path / "replica.db", mesh="m" * 16, read_only=True)
    assert [(one.at_ms, one.change.level) for one in again.presence.newest(limit=2)] == [
        (8, "8"),
        (9, "9"),
    ]
    assert len(again.presence.newest(limit=100)) == 3
    again.close()


def test_the_gate_passes_the_question_on():
    assert 0 < len(FOR_ALL) <= LIMITS.request_bytes
