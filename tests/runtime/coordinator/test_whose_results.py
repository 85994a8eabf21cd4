"""For whom the coordinator reads other jobs: nobody gets through it what they may not read."""

import pytest
from msgspec.structs import replace

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    JobCancel,
    JobClaim,
    JobOffer,
    JobYield,
    YieldBody,
)
from antiphon.core.proof.output import Output
from antiphon.errors import Rejected
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.caller.retry import retry
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_records
from tests.runtime.by_hand import called, completed, finished
from tests.runtime.coordinator.test_coordinator import (
    cancelled_because,
    coordinated,
    result_of,
    state,
    submit,
)
from tests.runtime.meshes import CALM, call, eventually, on_both_engines
from tests.runtime.plans.plan_meshes import grant

CLOSED = replace(CALM, authority="chain")
RENDER, SECRET = "render.video", "secret.salary"
ANSWER = "123,456"


def result(text=ANSWER):
    return Output(name="result", text=text)


async def member(mesh, owner, *can, kinds=("render.*",)):
    """A key with these permissions and no others."""
    connection = await mesh.connection()
    await grant(owner, connection.session.author.did, can=can, kinds=kinds)
    await connection.session.sync_control()
    return connection.session


async def given_back(worker, job, *after, kind=RENDER):
    """Claim a job and give it back until other jobs have ended; where that is on the log."""
    await worker.sync_control()
    await worker.read_lane(kind, job.id, at_least=job.seq)  # its clock is then past the schedule
    lease_ms = worker.control.rules.lease_ms
    claim = ClaimBody(kind=kind, job=job.id, lease_ms=lease_ms, begin=True)
    draft = worker.draft(JobClaim, claim, prev=0)
    seq = await worker.commit(draft)
    fence = hlc.pack(draft.op.hlc)
    body = YieldBody(kind=kind, job=job.id, fence=fence, reason="after", after=after)
    return await worker.commit(worker.draft(JobYield, body, prev=seq))


async def on_the_lane(session, node, kind, name, wanted):
    """The ops of a type on a lane, once there is one."""

    def found():
        ops = [session.open(one.record).op for one in job_records(node.replica, kind, name)]
        return [op for op in ops if isinstance(op, wanted)]

    return await eventually(found)


@on_both_engines
async def test_a_worker_gets_no_result_of_a_kind_that_it_may_not_read(engine):
    async with coordinated(engine, CLOSED) as (mesh, owner, node):
        contractor = await member(mesh, owner, "claim")
        secret = await completed(owner, owner, SECRET, result())
        job = await called(owner, RENDER)
        await given_back(contractor, job, (SECRET, secret.id))
        await on_the_lane(owner, node, RENDER, job.id, JobCancel)
        reason = "predecessor: its worker may not read jobs of kind secret.salary"
        assert cancelled_because(node, node.replica.ask(ReplicaJobs).job(RENDER, job.id)) == reason
        records = [one.record.payload for one in job_records(node.replica, RENDER, job.id)]
        assert not any(ANSWER.encode() in one for one in records)


@on_both_engines
async def test_a_submitter_gets_no_result_through_a_worker_that_may_read_more(engine):
    async with coordinated(engine, CLOSED) as (mesh, owner, node):
        caller = await member(mesh, owner, "schedule")
        secret = await completed(owner, owner, SECRET, result())
        job = await called(caller, RENDER)
        await given_back(owner, job, (SECRET, secret.id))
        await on_the_lane(owner, node, RENDER, job.id, JobCancel)
        reason = "predecessor: its submitter may not read jobs of kind secret.salary"
        assert cancelled_because(node, node.replica.ask(ReplicaJobs).job(RENDER, job.id)) == reason


@on_both_engines
async def test_a_worker_gets_the_results_of_children_that_it_and_the_submitter_may_read(engine):
    async with coordinated(engine, CLOSED) as (mesh, owner, node):
        worker = await member(mesh, owner, "claim", kinds=("render.*", "fetch.*"))
        child = await completed(owner, owner, "fetch.page", result())
        job = await called(owner, RENDER)
        await given_back(worker, job, ("fetch.page", child.id))
        (offer,) = await on_the_lane(owner, node, RENDER, job.id, JobOffer)
        assert [one.text for one in offer.body.results] == [ANSWER]


async def test_who_comes_after_the_order_to_forget_a_job_gets_nothing_of_it():
    async with coordinated("memory") as (_, session, node):
        secret = await completed(session, session, SECRET, result())
        asked = await called(session, RENDER)
        order = await forget(session, SECRET, secret.id)
        await node.reached(order.seq)
        late = await called(session, RENDER)
        for job in (asked, late):
            await given_back(session, job, (SECRET, secret.id))
        (offer,) = await on_the_lane(session, node, RENDER, asked.id, JobOffer)
        assert [one.text for one in offer.body.results] == [ANSWER], "it was promised to that one"
        await on_the_lane(session, node, RENDER, late.id, JobCancel)
        reader = await submit(session, RENDER, None, reads=[result_of(secret)])
        await eventually(lambda: state(node, reader) == "aborted")
        why = f"predecessor: {SECRET} {secret.id[:12]} was forgotten before it"
        for job in (late, reader):
            lane = job_records(node.replica, RENDER, job.id)
            assert cancelled_because(node, node.replica.ask(ReplicaJobs).job(RENDER, job.id)) == why
            assert not any(ANSWER.encode() in one.record.payload for one in lane)


@on_both_engines
@pytest.mark.parametrize("other", ["succeeded", "failed", "running", "never submitted"])
async def test_nobody_learns_what_became_of_a_job_that_they_may_not_read(engine, other):
    async with coordinated(engine, CLOSED) as (mesh, owner, node):
        caller = await member(mesh, owner, "schedule")
        secret = await called(owner, SECRET)
        if other == "succeeded":
            await finished(owner, SECRET, secret, result())
        elif other == "failed":
            await submission.cancel(owner, SECRET, secret.id, reason="")
        name = "0" * 64 if other == "never submitted" else secret.id
        job = await call(caller, other, kind=RENDER, after=((SECRET, name),))
        await node.reached(job.seq)
        await eventually(lambda: state(node, job) == "aborted")
        reason = "predecessor: its submitter may not read jobs of kind secret.salary"
        assert cancelled_because(node, job) == reason


@on_both_engines
async def test_who_may_read_a_job_may_wait_for_it(engine):
    async with coordinated(engine, CLOSED) as (mesh, owner, node):
        caller = await member(mesh, owner, "schedule")
        first = await called(owner, RENDER)
        job = await call(caller, "later", kind=RENDER, after=((RENDER, first.id),))
        await node.reached(job.seq)
        assert state(node, job) == "waiting"
        await finished(owner, RENDER, first, result())
        await eventually(lambda: state(node, job) == "pending")


@on_both_engines
async def test_who_may_read_more_does_not_retry_a_job_for_one_who_may_not(engine):
    """A retry is judged by its own submitter's rights; its result stays where the first was."""
    async with coordinated(engine, CLOSED) as (mesh, owner, node):
        caller = await member(mesh, owner, "schedule")
        secret = await completed(owner, owner, SECRET, result())
        job = await call(caller, "again", kind=RENDER, after=((SECRET, secret.id),))
        await node.reached(job.seq)
        await eventually(lambda: state(node, job) == "aborted")
        with pytest.raises(Rejected, match=r"secret\.salary, which its submitter may not read"):
            await retry(owner, RENDER, job.id)
        await grant(owner, caller.author.did, can=("read",), kinds=("secret.*",))
        assert (await retry(owner, RENDER, job.id)).is_new
