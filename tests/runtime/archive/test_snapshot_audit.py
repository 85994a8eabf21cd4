"""A coordinator whose snapshot leaves out what counts is found by every node that has read it."""

import asyncio

import pytest

from antiphon.core.archive import snapshot as snapshots
from antiphon.core.record.branches import CONTROL
from antiphon.runtime.archive.snapshot_audit import SnapshotAudit
from antiphon.runtime.coordinator import archiver as archivers
from antiphon.runtime.coordinator.archiver import Archiver
from tests.runtime.coordinator.test_archived_predecessors import HOUR_S, submitted
from tests.runtime.coordinator.test_archiver import OPEN, an_archiver, sealed
from tests.runtime.log.test_archived_lanes import end
from tests.runtime.meshes import KIND, a_mesh
from tests.runtime.node.test_snapshots import archived, some_history

pytestmark = pytest.mark.virtual_time


async def beside(mesh):
    """A node that reads everything, and its audit."""
    return SnapshotAudit(await mesh.node(caretaking=False))


async def audited(session, audit):
    await audit.node.reached((await session.log.last()).seq)
    assert await audit.look()
    return [(one.key.family, one.key.name) for one in audit.left_out]


async def test_nothing_is_missing_from_an_honest_snapshot_through_many_archives():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        audit = await beside(mesh)
        await some_history(session, node, archiver)
        assert await audited(session, audit) == []
        live = [row[0] for row in audit.node.replica._db.execute("select lane from live")]
        assert len(live) < 10, "what was archived is not looked at again"
        for turn in range(3):
            again = await submitted(session, "0")  # a lane that begins anew
            if turn % 2:
                await end(session, again.id)
            await archived(node, archiver)
            newcomer = await beside(mesh)
            for one in (audit, newcomer):
                assert await audited(session, one) == []


async def a_false_one(monkeypatch, leave_out):
    """A mesh whose coordinator makes a snapshot without what `leave_out` says; what is found."""
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        audit = await beside(mesh)
        staying = await submitted(session, "stays")
        for number in range(6):
            await end(session, (await submitted(session, f"{number}")).id)
        await asyncio.sleep(1.1 * HOUR_S)
        young = await submitted(session, "young")
        await end(session, young.id)
        leave_out(monkeypatch, node, staying, young)
        assert await archiver.archive()
        assert await archiver.make_snapshot()
        await sealed(node)
        found = await audited(session, audit)
        for one in audit.left_out:
            assert one.coordinator == mesh.owner.did
        return found, staying, young, audit.node.replica.attention.newest(limit=9)


def _lane_of(which):
    def leave_out(monkeypatch, node, staying, young):
        job = staying if which == "staying" else young
        honest = Archiver._find_going

        async def false(self, at):
            rows = self.node.replica._db.execute(
                "select id from lanes_jobs where name = ?", (job.id,)
            )
            return await honest(self, at) | {row for (row,) in rows}

        monkeypatch.setattr(Archiver, "_find_going", false)

    return leave_out


@pytest.mark.parametrize("which", ["staying", "young"])
async def test_a_lane_that_counts_and_is_left_out_is_named(monkeypatch, which):
    found, staying, young, told = await a_false_one(monkeypatch, _lane_of(which))
    job = staying if which == "staying" else young
    assert found == [("jobs", job.id)]
    (one,) = told
    assert "leaves out record" in one.reason
    assert job.id in one.item
    assert KIND in one.item


async def test_a_control_record_that_is_left_out_is_named(monkeypatch):
    def leave_out(monkeypatch, _node, *_):
        def false(leaves):
            return snapshots.ranges(list(leaves)[1:])

        monkeypatch.setattr(archivers, "ranges", false)

    found, *_ = await a_false_one(monkeypatch, leave_out)
    assert [family for family, _ in found] == [CONTROL]


async def test_the_service_looks_at_each_snapshot_that_a_seal_names():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        audit = await beside(mesh)
        looked = []
        honest = audit.look

        async def look():
            looked.append(node.seals.state.snapshot)
            return await honest()

        audit.look = look
        running = asyncio.ensure_future(audit.run())
        mesh.stack.callback(running.cancel)
        await some_history(session, node, archiver)
        await asyncio.sleep(60)
        assert len(looked) == 1
        await submitted(session, "another")
        await sealed(node)
        await asyncio.sleep(60)
        assert len(looked) == 1, "the same snapshot"
        await archived(node, archiver)
        await asyncio.sleep(60)
        assert len(set(looked)) == len(looked) == 2
