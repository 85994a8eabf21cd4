"""A full node that begins with a snapshot agrees with one that has read everything."""

import asyncio

import pytest

from antiphon.core.authority.scope import Scope
from antiphon.core.lane_archive import behind
from antiphon.core.record.branches import LaneKey
from antiphon.errors import Corrupt, Unavailable
from antiphon.runtime.archive.record_source import ReplicaSource
from antiphon.runtime.caller import submission
from antiphon.runtime.gate.blob_rights import BlobRights
from antiphon.runtime.node.full_node import SEAL_LANE, FullNode
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.node.snapshot_search import (
    SNAPSHOT,
    newest_seal,
    newest_snapshot,
    stored_snapshot,
)
from antiphon.runtime.replica.replica import Replica
from tests.runtime.coordinator.test_archived_predecessors import HOUR_S, submitted
from tests.runtime.coordinator.test_archiver import OPEN, an_archiver, sealed
from tests.runtime.log.test_archived_lanes import end
from tests.runtime.meshes import KIND, a_mesh

pytestmark = pytest.mark.virtual_time


async def archived(node, archiver):
    """Time passes; what has ended leaves the log."""
    await asyncio.sleep(1.1 * HOUR_S)
    assert await archiver.archive()
    assert await archiver.make_snapshot()
    await sealed(node)
    return await archiver.purge()


async def some_history(session, node, archiver, *, before=0):
    """Jobs that ended and went, with so many records before, and others that stay; what stays."""
    staying = [await submitted(session, "first stays")]
    for number in range(20):
        await end(session, (await submitted(session, f"{number}")).id)
    staying.append(await submitted(session, "second stays"))
    assert await archived(node, archiver) == 40 + before
    staying.append(await submitted(session, "later"))
    return staying


def lanes(node):
    control = node.session.control
    rows = node.replica._db.execute("select kind, name from lanes_jobs")
    keys = [LaneKey("jobs", *row) for row in rows.fetchall()]
    found = {key: behind(control, node.replica.lane(key)).state for key in keys}
    return {key: state for key, state in found.items() if state is not None}


async def both(mesh, node):
    """A node that begins now, once both are at the end of the log."""
    newcomer = await mesh.node(caretaking=False)
    last = await node.session.log.last()
    await asyncio.gather(node.reached(last.seq), newcomer.reached(last.seq))
    for one in (node, newcomer):
        one.replica.flush()
    return newcomer


def assert_same(node, other):
    assert lanes(other) == lanes(node)
    assert other.seals == node.seals
    upto = node.replica.cursor.seq
    assert other.replica.tree.mark_at(upto) == node.replica.tree.mark_at(upto)


async def test_a_newcomer_reads_what_is_left_and_comes_to_the_same_root():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        staying = await some_history(session, node, archiver)
        newcomer = await both(mesh, node)
        assert newcomer.replica.tree.base == archiver.snapshot.head.size
        assert_same(node, newcomer)
        for job in staying:
            await end(session, job.id)
        await sealed(node)
        await newcomer.reached(node.applied)
        assert_same(node, newcomer)
        seal = await ReplicaSource(newcomer.replica).newest_seal()
        assert seal is not None, "it recomputes seals"
        source = ReplicaSource(newcomer.replica)
        for job in staying:
            for record in await source.accepted(LaneKey("jobs", KIND, job.id)):
                path = await source.path(record.leaf, seal.body.size)
                here = await ReplicaSource(node.replica).path(record.leaf, seal.body.size)
                assert path == here, "it proves what it has"
        with pytest.raises(Unavailable, match="began with a snapshot"):
            newcomer.replica.tree.rows(3, 2)


async def test_a_node_goes_on_from_its_file_after_it_began_with_a_snapshot(tmp_path):
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        await some_history(session, node, archiver)
        connection = await mesh.connection()
        for _ in range(2):
            replica = Replica(tmp_path / "r.db", mesh=mesh.mesh)
            newcomer = FullNode(connection.session, replica)
            running = asyncio.ensure_future(newcomer.run())
            await newcomer.ready.wait()
            await submitted(session, f"more {replica.cursor.seq}")
            last = await session.log.last()
            await asyncio.gather(node.reached(last.seq), newcomer.reached(last.seq))
            node.replica.flush()
            assert_same(node, newcomer)
            running.cancel()
            replica.close()


async def test_who_was_away_while_records_were_purged_begins_anew():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        away = await mesh.connection()
        replica = Replica(":memory:", mesh=mesh.mesh)
        mesh.stack.callback(replica.close)
        first = await submitted(session, "ends while nobody looks")
        back = FullNode(away.session, replica)
        running = asyncio.ensure_future(back.run())
        await back.reached(first.seq)
        running.cancel()
        await end(session, first.id)
        await some_history(session, node, archiver, before=2)
        back = FullNode(away.session, replica)
        running = asyncio.ensure_future(back.run())
        last = await session.log.last()
        await back.reached(last.seq)
        await node.reached(last.seq)
        node.replica.flush()
        assert_same(node, back)
        running.cancel()


async def test_a_node_that_stopped_before_the_snapshots_place_begins_again(tmp_path):
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        await some_history(session, node, archiver)
        connection = await mesh.connection()
        replica = Replica(tmp_path / "r.db", mesh=mesh.mesh)
        half = FullNode(connection.session, replica)
        await half.resume()
        page = await connection.session.log.read(0, limit=3)
        await half.apply(half._counting(page.records))
        replica.close()
        newcomer = await mesh.node(path=tmp_path / "r.db", caretaking=False)
        last = await session.log.last()
        await asyncio.gather(node.reached(last.seq), newcomer.reached(last.seq))
        node.replica.flush()
        assert_same(node, newcomer)


async def test_a_snapshot_that_was_changed_is_refused():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        await some_history(session, node, archiver)
        good = archiver.snapshot.encoded()
        blobs = session.engine.blobs
        seal = await newest_seal(session)
        for at in range(len(good)):
            forged = good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :]
            with pytest.raises(Corrupt):
                await stored_snapshot(Stored(forged), seal.state)
        with pytest.raises(Corrupt):
            await newest_snapshot(session, Stored(forged))
        with pytest.raises(Corrupt):
            await newest_snapshot(session, Stored(good[:-32]))
        assert (await newest_snapshot(session, blobs)).encoded() == good


async def test_hashes_that_the_coordinator_made_up_lead_to_another_root(monkeypatch):
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        really = node.replica.tree.subtree
        monkeypatch.setattr(
            node.replica.tree, "subtree", lambda level, place: really(level, place)[::-1]
        )
        await some_history(session, node, archiver)
        connection = await mesh.connection()
        replica = Replica(":memory:", mesh=mesh.mesh)
        mesh.stack.callback(replica.close)
        with pytest.raises(Corrupt, match="the same root"):
            await FullNode(connection.session, replica).run()


async def test_a_record_that_counted_and_went_is_waited_for_in_a_newer_snapshot():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        staying = await some_history(session, node, archiver)
        connection = await mesh.connection()
        replica = Replica(":memory:", mesh=mesh.mesh)
        mesh.stack.callback(replica.close)
        slow = FullNode(connection.session, replica)
        await slow.resume()
        for job in staying:
            await end(session, job.id)
        assert await archived(node, archiver) == 7, "and a seal"
        page = await connection.session.log.read(0, limit=1_000)
        with pytest.raises(Unavailable, match="counts on"):
            await slow.apply(slow._counting(page.records))
        running = asyncio.ensure_future(slow.run())
        last = await session.log.last()
        await slow.reached(last.seq)
        node.replica.flush()
        assert_same(node, slow)
        running.cancel()


async def test_seals_go_on_naming_the_snapshot_whoever_coordinates():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        await some_history(session, node, archiver)
        named = node.seals.state.snapshot
        assert named == node.snapshot_made[1]
        other = await both(mesh, node)
        other.session.author = session.author
        await submitted(session, "one more")
        last = await session.log.last()
        await asyncio.gather(node.reached(last.seq), other.reached(last.seq))
        assert await Sealer(other, bar_s=1).seal()
        await node.reached(last.seq + 1)
        assert node.replica.lane(SEAL_LANE).state.snapshot == named


async def test_a_lane_stays_while_a_job_waits_for_it():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        first, last = await submitted(session, "first"), await submitted(session, "last")
        waiting = await submitted(
            session, "waiting", after=((KIND, first.id), (KIND, last.id)), after_any_outcome=True
        )
        await end(session, first.id)
        assert await archived(node, archiver) == 0
        newcomer = await both(mesh, node)
        assert newcomer.replica.lane(LaneKey("jobs", KIND, first.id)).state.is_terminal
        await submission.cancel(session, KIND, waiting.id, reason="done with")
        assert await archived(node, archiver) == 5, "both, and a seal"


class Stored:
    """A blob store with one blob, whatever its digest is."""

    def __init__(self, data):
        self.data = data

    def get(self, _digest, *, job=None):
        return self

    async def __aenter__(self):
        async def chunks():
            yield self.data

        return chunks()

    async def __aexit__(self, *_):
        return None


async def test_every_member_may_read_the_newest_snapshot_and_nothing_else_by_its_name():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        await some_history(session, node, archiver)
        rights = BlobRights(session, lambda _: Scope(), lambda user: (user,), lambda _: ())
        newest = node.snapshot_made[1]
        assert rights.may_read("anyone", *SNAPSHOT)
        assert await rights.vouches("anyone", *SNAPSHOT, newest) == "others"
        assert await rights.vouches("anyone", *SNAPSHOT, "blake3:" + "0" * 64) == frozenset()
        assert await rights.vouches("", *SNAPSHOT, newest) == frozenset(), "no machine"


async def test_a_replica_in_another_versions_form_begins_anew_with_a_snapshot(tmp_path):
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        await submitted(session, "read before")
        old = Replica(tmp_path / "r.db", mesh=mesh.mesh)
        before = FullNode((await mesh.connection()).session, old)
        running = asyncio.ensure_future(before.run())
        await before.reached(2)
        running.cancel()
        old._db.execute("update meta set value = '1' where name = 'schema'")
        old._db.execute("drop table hot")
        old.close()
        await some_history(session, node, archiver)
        newcomer = await mesh.node(path=tmp_path / "r.db", caretaking=False)
        last = await session.log.last()
        await asyncio.gather(node.reached(last.seq), newcomer.reached(last.seq))
        node.replica.flush()
        assert newcomer.replica.tree.base
        assert_same(node, newcomer)
