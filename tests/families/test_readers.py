"""Steps 3 to 5 of the recipe, on both engines: read, replicated, queried, watched and proved."""

import asyncio

import pytest

from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Rejected
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import BEHIND, Intent, Policy, write_one
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.lane_lists import Lists
from antiphon.runtime.replica.replica import Replica
from antiphon.sdk.log_watch import watching
from antiphon.sdk.proofs import bundles
from antiphon.sdk.proofs.bundles import open_bundle
from chaos.tamper.sealed_jobs import ExportSource
from tests.families.polls import WITH_POLLS
from tests.families.polls.namespace import BEST
from tests.families.polls.ops import CloseBody, OpenBody, PollClose, PollOpen, PollVote, VoteBody
from tests.families.polls.table import PollLane
from tests.runtime.meshes import a_mesh, call, eventually, on_both_engines

KIND, NAME = "team.lunch", "pizza"
KEY = LaneKey("polls", KIND, NAME)


async def opened(session: Session, name: str = NAME) -> tuple[int, str]:
    """A poll; how a vote names the record that opened it."""
    body = OpenBody(kind=KIND, poll=name, question="Pizza?")
    written = await write_one(session, Intent(PollOpen, body, PollLane()))
    return written.seq, written.view.history[0].opened.op_id


async def voted(session: Session, dep, *, choice: bool = True) -> Verdict:
    lane = (await session.read(KEY)).lane
    body = VoteBody(kind=KIND, poll=NAME, choice=choice)
    policy = Policy(again=BEHIND.again, insists=False)
    return (await write_one(session, Intent(PollVote, body, lane, deps=(dep,)), policy)).verdict


async def closed(session: Session) -> None:
    lane = (await session.read(KEY)).lane
    await write_one(session, Intent(PollClose, CloseBody(kind=KIND, poll=NAME), lane), BEHIND)


async def a_whole_poll(peers: list[Session]) -> None:
    dep = await opened(peers[0])
    assert await voted(peers[1], dep) is Verdict.OK
    assert await voted(peers[1], dep) is Verdict.ALREADY
    assert await voted(peers[2], dep, choice=False) is Verdict.OK
    await closed(peers[0])
    assert await voted(peers[0], dep) is Verdict.FINISHED


@on_both_engines
async def test_full_and_light_readers_come_to_the_same(engine):
    async with a_mesh(engine, protocol=WITH_POLLS) as mesh:
        peers = [(await mesh.connection()).session for _ in range(4)]
        node = await mesh.node(caretaking=False)
        await a_whole_poll(peers[:3])
        light = await peers[3].read(KEY)
        await node.reached(max(light.lane.tails))
        assert node.replica.lane(KEY) == light.lane
        assert light.lane.state.ayes == 1
        stored = {one.record.seq: one.verdict for one in node.replica.lane_records(KEY)}
        assert {one.opened.seq: one.verdict for one in light.history} == stored


async def test_a_replica_keeps_its_columns_across_a_restart(tmp_path):
    path = tmp_path / "replica.db"
    async with a_mesh("memory", protocol=WITH_POLLS) as mesh:
        peers = [(await mesh.connection()).session for _ in range(3)]
        replica = Replica(path, mesh=mesh.mesh, protocol=WITH_POLLS)
        node = FullNode(peers[0], replica)
        following = asyncio.create_task(node.run())
        await call(peers[0], 1)
        await a_whole_poll(peers)
        await node.reached((await peers[0].log.last()).seq)
        following.cancel()
        (best,) = Lists(replica, peers[0].control).shared(BEST, limit=2).rows
        assert (best.kind, best.name, best.at) == (KIND, NAME, 1)
        assert not best.state.is_open
        assert replica.sizes.by_state() == {"pending": 1}, "jobs are counted apart"
        before = replica.lane(KEY)
        replica.close()
        again = Replica(path, mesh=mesh.mesh, protocol=WITH_POLLS)
        assert again.lane(KEY) == before
        assert [key for key, _ in again.find_lanes("piz")] == [KEY]
        again.close()


async def test_a_replica_of_code_without_the_family_is_made_anew(tmp_path):
    """What lay on its subjects belonged to no lane then, and is what the first op follows now."""
    path = tmp_path / "replica.db"
    async with a_mesh("memory", protocol=WITH_POLLS) as mesh:
        session, older = (await mesh.connection()).session, (await mesh.connection()).session
        subject = f"ap.{mesh.mesh}.poll.{KIND}.{NAME}"
        junk = await session.log.append(subject, b"junk", message_id="junk", expected_last=0)
        older.protocol = older.author.protocol = PROTOCOL
        replica = Replica(path, mesh=mesh.mesh)
        node = FullNode(older, replica)
        following = asyncio.create_task(node.run())
        await node.reached(junk)
        following.cancel()
        replica.close()

        again = Replica(path, mesh=mesh.mesh, protocol=WITH_POLLS)
        node = FullNode((await mesh.connection()).session, again)
        following = asyncio.create_task(node.run())
        body = OpenBody(kind=KIND, poll=NAME, question="Pizza?")
        written = await write_one(session, Intent(PollOpen, body, (await session.read(KEY)).lane))
        await node.reached(written.seq)
        following.cancel()
        assert again.record(written.seq).verdict is Verdict.OK
        assert again.lane(KEY) == (await session.read(KEY)).lane
        again.close()


@on_both_engines
async def test_who_watches_is_told_in_the_familys_own_words(engine):
    async with a_mesh(engine, protocol=WITH_POLLS) as mesh:
        peers = [(await mesh.connection()).session for _ in range(3)]
        watcher = (await mesh.connection()).session
        events = []
        async with watching(watcher) as batches:
            await a_whole_poll(peers)
            while len(events) < 6:
                events += await anext(batches)
        assert [event.verdict.value for event in events] == [
            "ok", "ok", "already", "ok", "ok", "finished",
        ]  # fmt: skip
        assert {(event.family, event.kind, event.job_id) for event in events} == {tuple(KEY)}
        assert events[0].words.endswith("asked 'Pizza?'")
        assert "rejected: it has already ended (finished)" in events[5].words


@on_both_engines
async def test_it_is_carried_and_verified_in_a_bundle(engine):
    async with a_mesh(engine, protocol=WITH_POLLS) as mesh:
        peers = [(await mesh.connection()).session for _ in range(3)]
        node = await mesh.node(connection=await mesh.connection(mesh.owner), bar_s=0.2)
        await call(peers[0], 1)
        await a_whole_poll(peers)
        newest = max((await peers[0].read(KEY)).lane.tails)
        await eventually(lambda: node.seals.upto >= newest)
        data = await bundles.export_lane(ExportSource(node), KEY, wait_s=10)
        report = open_bundle(data, owner=mesh.owner.did, protocol=WITH_POLLS)
        assert (report.key, report.is_job, report.state.ayes) == (KEY, False, 1)
        assert [line.op for line in report.story()][:2] == ["poll.open", "poll.vote"]
        with pytest.raises(Rejected, match="cannot be in a bundle"):
            open_bundle(data, owner=mesh.owner.did)
        bent = data.replace(b'"verdict":"already"', b'"verdict":"ok"', 1)
        assert bent != data
        with pytest.raises(Rejected, match="is not what was sealed"):
            open_bundle(bent, owner=mesh.owner.did, protocol=WITH_POLLS)
