"""Seals that nobody needs leave the log with the lanes that they covered."""

import asyncio

import pytest

from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.node.full_node import SEAL_LANE, FullNode
from antiphon.runtime.replica.replica import Replica
from tests.runtime.coordinator.test_archived_predecessors import HOUR_S, submitted
from tests.runtime.coordinator.test_archiver import OPEN, an_archiver, sealed
from tests.runtime.log.test_archived_lanes import end
from tests.runtime.meshes import a_mesh
from tests.runtime.node.test_snapshots import archived, assert_same, both

pytestmark = pytest.mark.virtual_time


async def seals_of(session):
    found = []
    async for page in session.log.read_lane([subjects.seal(session.mesh)]):
        found += [record.seq for record in page]
    return found


async def some_hours(session, node, archiver, hours):
    for hour in range(hours):
        for turn in range(3):
            await end(session, (await submitted(session, f"{hour} {turn}")).id)
            await sealed(node)
        await archived(node, archiver)


async def test_the_log_keeps_the_seals_of_the_retention_and_no_more():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        counts = []
        for _ in range(4):
            await some_hours(session, node, archiver, 1)
            counts.append(len(await seals_of(session)))
        assert counts[-1] == counts[-2] <= 4
        assert len(node.replica.lane_records(SEAL_LANE)) == 16, "replicas have all of them"
        newest = node.seals.tail
        assert (await seals_of(session))[-1] == newest
        await asyncio.sleep(10 * HOUR_S)
        await archived(node, archiver)
        assert (await seals_of(session))[-1] == node.seals.tail > newest
        newcomer = await both(mesh, node)
        assert newcomer.replica.tree.base > 0
        assert_same(node, newcomer)
        await submitted(session, "more")
        await sealed(node)
        await newcomer.reached(node.applied)
        assert_same(node, newcomer)


async def test_who_reads_some_kinds_takes_the_first_seal_that_is_left():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        await some_hours(session, node, archiver, 3)
        left = await seals_of(session)
        assert left[0] > node.replica.lane_records(SEAL_LANE)[0].record.seq
        connection = await mesh.connection()
        connection.session.log.reads = ("ctl.>", "jobs.>", "seal")
        replica = Replica(":memory:", mesh=mesh.mesh)
        mesh.stack.callback(replica.close)
        scoped = FullNode(connection.session, replica)
        running = asyncio.ensure_future(scoped.run())
        mesh.stack.callback(running.cancel)
        await scoped.reached(left[-1])
        found = [replica.record(seq).verdict for seq in left]
        assert set(found) == {Verdict.UNSEEN}
