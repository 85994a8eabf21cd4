"""Roles are what a key may do, so one node can hold several at once (M1)."""

import pytest

from antiphon.core.authority.rules import Rules
from antiphon.core.families.mesh.ops import MeshRoute, RouteBody
from antiphon.runtime.caller import submission
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.roster import Roster
from tests.runtime.meshes import KIND, a_mesh, call, eventually, on_both_engines, ops_on_lane

CLOSED = Rules(max_drift_ms=100)


@on_both_engines
@pytest.mark.req("M1")
async def test_one_node_is_owner_coordinator_worker_and_caller_at_once(engine):
    async def double(number: int) -> int:
        return 2 * number

    async with a_mesh(engine, CLOSED) as mesh:
        one = await mesh.connection(mesh.owner)
        did = one.session.author.did
        node = await mesh.node(connection=one, bar_s=0.2)
        await mesh.worker(double, connection=one)
        await write_one(one.session, Intent(MeshRoute, RouteBody(kind=KIND, target=did)))
        job = await call(one.session, 21, not_before=mesh.wall.now_ms() + 200)
        ended = await submission.wait_for_end(one.session, KIND, job.id)
        assert (ended.job.outcome, ended.outputs[0].text) == ("succeeded", "42")
        assert (ended.job.scheduler, ended.job.claimer) == (did, did)
        assert one.session.control.coordinator == did
        await eventually(lambda: node.seals.upto >= ended.job.ended_seq)
        offered = ops_on_lane(node, job.id)
        assert [op for op, verdict in offered if verdict == "ok"] == [
            "job.schedule",
            "job.offer",
            "job.claim",
            "job.complete",
        ]

        # A peer without any of these roles follows, verifies and answers the same.
        peer = await mesh.node(caretaking=False)
        await peer.reached(node.seals.state.seq)
        assert ops_on_lane(peer, job.id) == offered
        assert Roster(peer.session, peer.replica).state_of(KIND, job.id) == Roster(
            node.session, node.replica
        ).state_of(KIND, job.id)
        assert peer.seals == node.seals
