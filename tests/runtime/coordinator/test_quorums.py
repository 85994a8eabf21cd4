"""The coordinator submits replicas and resolves a job when enough of them agree."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.families.jobs.derivation import Reaction
from antiphon.core.families.jobs.ops import (
    CancelBody,
    JobCancel,
    JobSchedule,
    ScheduleBody,
)
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.families.plans.state import PlanLane
from antiphon.core.record.verdict import Verdict
from antiphon.errors import JobFailed
from antiphon.runtime.caller import submission
from antiphon.runtime.coordinator.offer_audit import OfferAudit
from antiphon.runtime.coordinator.quorum_children import QuorumChildren
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.worker.worker import WorkerSettings
from tests.runtime.by_hand import finished
from tests.runtime.meshes import CALM, KIND, a_mesh, call, eventually, on_both_engines


@asynccontextmanager
async def coordinated(engine, rules=CALM):
    """A mesh whose owner is connected and runs the coordinator."""
    async with a_mesh(engine, rules) as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(connection=owner)
        yield mesh, owner.session, node


async def worker(mesh, answer, *, slots=1, gate=None):
    """A worker of its own key; the number of jobs that it began."""
    began = []

    async def work(number: int) -> int:
        began.append(number)
        if gate is not None:
            await gate.wait()
        return answer(number)

    await mesh.worker(work, slots=slots)
    return began


def children(node, job):
    view = QuorumChildren(node.replica, node.session)
    parent = view.parent(KIND, job.id)
    return [] if parent is None else view.children(parent)


@on_both_engines
async def test_two_that_agree_outvote_one_that_lies(engine):
    async with coordinated(engine) as (mesh, session, node):
        gate = asyncio.Event()  # each takes one
        workers = [await worker(mesh, answer, gate=gate) for answer in (true, false, true)]
        job = await call(session, 7, replicas=3, quorum=2)
        await eventually(lambda: sum(map(len, workers)) == 3)
        gate.set()
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert ended.job.outcome == "succeeded"
        assert [one.text for one in ended.outputs] == ["49"]
        light = (await mesh.connection()).session  # it reads the lanes of the children
        assert (await submission.wait_for_end(light, KIND, job.id)) == ended
        assert node.replica.ask(ReplicaJobs).job(KIND, job.id).state.value == "succeeded"


@on_both_engines
async def test_a_worker_that_took_two_costs_one_more_child(engine):
    async with coordinated(engine) as (mesh, session, node):
        began = []

        async def work(number: int) -> int:
            began.append(number)
            if len(began) > 2:
                await asyncio.Event().wait()  # the third is for somebody else
            return true(number)

        handlers = Handlers()
        handlers.register(KIND, work)
        settings = WorkerSettings(slots=4, drain_s=0.1)
        async with assembly.working(await mesh.connection(), handlers.executors(), settings):
            job = await call(session, 7, replicas=2, quorum=2)
            await eventually(lambda: len(children(node, job)) == 3)
        await worker(mesh, true)
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert ended.job.outcome == "succeeded"
        assert len(children(node, job)) == 3


@on_both_engines
async def test_a_worker_with_free_slots_leaves_the_second_replica_to_others(engine):
    async with coordinated(engine) as (mesh, session, node):
        workers = [await worker(mesh, true, slots=4) for _ in range(3)]
        jobs = [await call(session, number, replicas=3, quorum=3) for number in range(5)]
        for job in jobs:
            ended = await submission.wait_for_end(session, KIND, job.id)
            assert ended.job.outcome == "succeeded"
            # Where the others are slow, one of them takes a second replica in the end: one more.
            assert 3 <= len(children(node, job)) <= 4
        assert [set(began) for began in workers] == [set(range(5))] * 3


@on_both_engines
async def test_a_worker_alone_runs_every_replica_in_the_end(engine):
    drawn = replace(CALM, selection=((KIND, "rendezvous"),))
    async with coordinated(engine, drawn) as (mesh, session, node):
        began = await worker(mesh, true, slots=4)
        job = await call(session, 7, replicas=2, quorum=2)
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert ended.reason.startswith("quorum: 1 of the 2 needed agree; ")
        assert len(began) == len(children(node, job)) == 4


@on_both_engines
async def test_without_agreement_the_job_is_cancelled_with_who_said_what(engine):
    async with coordinated(engine) as (mesh, session, node):
        gate = asyncio.Event()
        workers = [await worker(mesh, answer, gate=gate) for answer in (true, false)]
        job = await call(session, 7, replicas=2, quorum=2)
        await eventually(lambda: all(workers))
        gate.set()
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert ended.job.outcome == "cancelled"
        assert ended.reason.startswith("quorum: 1 of the 2 needed agree; ")
        with pytest.raises(JobFailed, match="needed agree"):
            raise submission.failure(ended)
        assert len(children(node, job)) == 2


@on_both_engines
async def test_children_of_a_cancelled_job_are_cancelled(engine):
    async with coordinated(engine) as (_, session, node):
        job = await call(session, 7, replicas=3, quorum=2)
        await eventually(lambda: len(children(node, job)) == 3)
        await submission.cancel(session, KIND, job.id, reason="enough")
        await eventually(lambda: all(one.is_terminal for one in children(node, job)))
        assert {one.outcome for one in children(node, job)} == {"cancelled"}


@on_both_engines
async def test_another_coordinator_goes_on_and_derives_no_child_twice(engine):
    async with a_mesh(engine) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        gate, ended = asyncio.Event(), None
        workers = [await worker(mesh, true, gate=gate) for _ in range(3)]
        job = await call(owner, 7, replicas=3, quorum=2)
        for at in range(2):
            connection = await mesh.connection()
            body = CoordinatorBody(node=connection.session.author.did)
            await write_one(owner, Intent(MeshCoordinator, body))
            replica = Replica(":memory:", mesh=mesh.mesh)
            async with assembly.replicating(connection, replica, caretaking=True) as node:
                await eventually(lambda: len(children(node, job)) == 3)
                await eventually(lambda: all(workers))
                if at:
                    gate.set()
                    ended = await submission.wait_for_end(owner, KIND, job.id)
                    assert len(children(node, job)) == 3
            replica.close()
        assert ended.job.outcome == "succeeded"
        assert sum(map(len, workers)) == 3


@on_both_engines
async def test_a_job_that_reads_the_result_of_a_quorum_gets_it(engine):
    async with coordinated(engine) as (mesh, session, _):
        gate = asyncio.Event()
        workers = [await worker(mesh, true, gate=gate) for _ in range(2)]
        job = await call(session, 7, replicas=2, quorum=2)
        content = manifest.author(
            {
                "command": [f"@{KIND}"],
                "args": [call_text((None,), {})],
                "timeout": 30,
                "inputs": [{"kind": "result", "of": [KIND, job.id], "name": "/args/0"}],
            }
        )
        after = await submission.submit(session, ScheduleBody(kind=KIND, manifest=content))
        await eventually(lambda: all(workers))
        gate.set()
        ended = await submission.wait_for_end(session, KIND, after.id)
        assert ended.outputs[0].text == str(49 * 49)


@on_both_engines
async def test_a_reaction_to_a_job_with_replicas_comes_once_and_may_have_replicas_too(engine):
    async with coordinated(engine) as (mesh, session, node):
        for _ in range(2):
            await worker(mesh, true)
        content = manifest.author(
            {"command": ["@after.work"], "args": [call_text((), {})], "timeout": 30}
        )
        body = PlanBody(
            kind="after.work",
            name="then",
            manifest=content,
            trigger=Reaction(on="succeeded", kinds=KIND),
            replicas=2,
            quorum=2,
        )
        for _ in range(2):
            await mesh.worker(constant, kind="after.work")
        await write_one(session, Intent(PlanPut, body, PlanLane()))
        job = await call(session, 7, replicas=2, quorum=2)
        assert (await submission.wait_for_end(session, KIND, job.id)).job.outcome == "succeeded"

        def follows():
            found = node.replica.ask(ReplicaJobs).jobs(kind="after.work")
            return [one for one in found if not one.replica_of]

        await eventually(lambda: follows() and follows()[0].is_terminal)
        assert [(one.outcome, one.derived.job) for one in follows()] == [("succeeded", job.id)]
        assert len(node.replica.ask(ReplicaJobs).jobs(kind="after.work")) == 3


async def test_full_nodes_name_a_replica_too_many_and_a_cancellation_too_early():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection(mesh.owner)).session  # a coordinator that writes by hand
        node = await mesh.node(caretaking=False)
        audit = OfferAudit(node)
        node.watchers.append(audit.applied)
        job = await call(session, 7, replicas=2, quorum=2)
        await node.reached(job.seq)
        view = QuorumChildren(node.replica, node.session)
        parent = view.parent(KIND, job.id)

        async def write(op, body, lane_of, **more):
            lane = (await session.read_lane(KIND, lane_of)).lane
            written = await write_one(session, Intent(op, body, lane, **more))
            assert written.verdict is Verdict.OK
            await node.reached(written.seq)
            return [one.what for one in audit.differences]

        for index, said in ((0, []), (1, []), (2, ["replica 3 was submitted, and none more"])):
            body = parent.child(index)
            child = manifest.job_id(body.manifest)
            found = await write(JobSchedule, body, child, deps=parent.named)
            assert [one[: len(word)] for one, word in zip(found, said, strict=True)] == said
        body = CancelBody(kind=KIND, job=job.id, reason="quorum: I do not like it")
        found = await write(JobCancel, body, job.id)
        assert found[1:] == ["it was cancelled, and its replicas could still agree"]


async def test_full_nodes_do_not_accuse_a_coordinator_that_replaces_several_replicas_at_once():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection(mesh.owner)).session
        node = await mesh.node(caretaking=False)
        audit = OfferAudit(node)
        node.watchers.append(audit.applied)
        job = await call(session, 7, replicas=3, quorum=3)
        await node.reached(job.seq)
        parent = QuorumChildren(node.replica, node.session).parent(KIND, job.id)
        one = (await mesh.connection()).session

        async def child(index):
            body = parent.child(index)
            lane = (await session.read_lane(KIND, manifest.job_id(body.manifest))).lane
            intent = Intent(JobSchedule, body, lane, deps=parent.named)
            written = await write_one(session, intent)
            assert written.verdict is Verdict.OK
            await node.reached(written.seq)
            return submission.Submitted(KIND, manifest.job_id(body.manifest), written.seq, True)

        for index in range(3):  # all of them for one party: two told nothing new
            await node.reached(await finished(one, KIND, await child(index)))
        assert QuorumChildren(node.replica, node.session).derive(
            node.session.control, parent
        ).submit == (3, 4)
        for index in (3, 4):
            await child(index)
        assert list(audit.differences) == []
        await child(5)
        assert len(audit.differences) == 1


def true(number):
    return number * number


def false(number):
    return number * number + 1


async def constant():
    return 1
