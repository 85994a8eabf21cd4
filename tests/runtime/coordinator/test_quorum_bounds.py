"""How many replicas the coordinator submits for one party within a minute."""

import asyncio
from contextlib import asynccontextmanager

from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.derivations.derived_use import WINDOW_MS
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.mesh.ops import MeshRules, RulesBody
from antiphon.runtime.caller import submission
from antiphon.runtime.coordinator.offer_audit import OfferAudit
from antiphon.runtime.coordinator.quorum_children import QuorumChildren
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.replica.replica_waits import ReplicaWaits
from tests.runtime.meshes import CALM, a_mesh, call, eventually
from tests.runtime.plans.plan_meshes import (
    CLOSED,
    PLANNED,
    a_coordinator,
    grant,
    in_virtual_time,
    plan,
    put,
)

RATE = 6


@asynccontextmanager
async def members(rate=RATE):
    """A closed mesh with a coordinator that is audited, and two members that may submit."""
    async with a_mesh("memory", replace(CLOSED, derived_per_minute=rate)) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        async with a_coordinator(mesh) as node:
            audit = OfferAudit(node)
            node.watchers.append(audit.applied)
            found = [(await mesh.connection()).session for _ in range(2)]
            for member in found:
                await grant(owner, member.author.did, can=("schedule", "claim"))
                await member.sync_control()
            yield mesh, owner, node, audit, *found


async def submit(session, number, replicas=4):
    return await call(session, number, kind=PLANNED, replicas=replicas, quorum=2)


def submitted(node, *jobs):
    """How many replicas each of these has."""
    node.replica.flush()
    view = QuorumChildren(node.replica, node.session)
    return [len(view.children(view.parent(PLANNED, job.id))) for job in jobs]


def told(node):
    return [one for one in node.replica.attention.newest(limit=10) if one.service == "quorums"]


@in_virtual_time
async def test_replicas_come_at_the_rate_of_their_party_and_nobody_else_waits():
    async with members() as (_, _, node, audit, many, few):
        flood = [await submit(many, number) for number in range(4)]
        own = await submit(few, 99)
        await eventually(lambda: submitted(node, own) == [4])
        assert submitted(node, *flood) == [4, 2, 0, 0]
        await asyncio.sleep(WINDOW_MS / 1000)
        await eventually(lambda: submitted(node, *flood) == [4, 4, 4, 0])
        await asyncio.sleep(WINDOW_MS / 1000)
        await eventually(lambda: submitted(node, *flood) == [4, 4, 4, 4])
        times = [
            job.scheduled_ms
            for job in node.replica.ask(ReplicaWaits).replicas_since(0, limit=100)
            if job.scheduler == many.author.did
        ]
        assert len(times) == 16
        assert all(sum(at <= each < at + WINDOW_MS for each in times) <= RATE for at in times)
        assert not audit.differences


@in_virtual_time
async def test_people_are_told_once_whose_replicas_wait_and_for_what_until_none_does():
    async with members() as (_, owner, node, _, many, _):
        flood = [await submit(many, number) for number in range(4)]
        (said,) = await eventually(lambda: told(node))
        assert said.whose == many.author.did
        assert "derived_per_minute" in said.reason
        assert said.reason.startswith("6 replicas")
        rules = replace(owner.control.rules, derived_per_minute=100)
        await write_one(owner, Intent(MeshRules, RulesBody(rules=rules)), BEHIND)
        await eventually(lambda: submitted(node, *flood) == [4, 4, 4, 4])
        await eventually(lambda: not told(node))


@in_virtual_time
async def test_a_cancelled_job_takes_no_room_from_those_that_wait():
    async with members() as (_, _, node, _, many, _):
        flood = [await submit(many, number) for number in range(4)]
        await eventually(lambda: submitted(node, *flood) == [4, 2, 0, 0])
        await submission.cancel(many, PLANNED, flood[2].id, reason="")
        await asyncio.sleep(WINDOW_MS / 1000 + 1)
        await eventually(lambda: submitted(node, *flood) == [4, 4, 0, 4])


@in_virtual_time
async def test_another_coordinator_keeps_to_what_the_last_one_left():
    async with members() as (mesh, _, node, _, many, _):
        flood = [await submit(many, number) for number in range(3)]
        await eventually(lambda: submitted(node, *flood) == [4, 2, 0])
        async with a_coordinator(mesh) as another:
            await asyncio.sleep(10)
            assert submitted(another, *flood) == [4, 2, 0]
            await asyncio.sleep(WINDOW_MS / 1000)
            await eventually(lambda: submitted(another, *flood) == [4, 4, 4])


@in_virtual_time
async def test_replicas_of_a_plan_s_job_are_counted_with_it_and_not_again():
    async with members(rate=5) as (_, _, node, audit, many, _):
        await put(many, plan(replicas=4, quorum=2))  # every second, 5 a minute with its replicas

        def derived():
            return [one for one in node.replica.ask(ReplicaJobs).jobs(kind=PLANNED) if one.plan]

        (first,) = await eventually(derived)
        job = await submit(many, 1)
        await eventually(lambda: submitted(node, first, job) == [4, 4])
        assert not audit.differences


@in_virtual_time
async def test_full_nodes_name_a_coordinator_that_submits_more():
    async with a_mesh("memory", replace(CALM, derived_per_minute=3)) as mesh:
        session = (await mesh.connection(mesh.owner)).session  # a coordinator that writes by hand
        node = await mesh.node(caretaking=False)
        audit = OfferAudit(node)
        node.watchers.append(audit.applied)
        job = await call(session, 7, kind=PLANNED, replicas=8, quorum=2)
        await node.reached(job.seq)
        parent = QuorumChildren(node.replica, node.session).parent(PLANNED, job.id)
        for index in range(6):
            body = parent.child(index)
            lane = (await session.read_lane(PLANNED, manifest.job_id(body.manifest))).lane
            written = await write_one(session, Intent(JobSchedule, body, lane, deps=parent.named))
            await node.reached(written.seq)
            assert len(audit.differences) == (index >= 3), "said once"
        assert "within a minute, and 3 are allowed" in audit.differences[0].what
