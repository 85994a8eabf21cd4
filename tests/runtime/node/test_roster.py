"""The roster's questions, and a worker loop made of nothing else."""

import pytest

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    JobClaim,
    JobComplete,
    JobStart,
    StartBody,
)
from antiphon.core.families.mesh.ops import MeshRoute, RouteBody
from antiphon.core.proof.output import Output
from antiphon.core.record.ids import digest
from antiphon.runtime.caller import submission
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.roster import Roster
from tests.cpu_cost import times_the_cost
from tests.runtime.by_hand import proved
from tests.runtime.meshes import (
    CALM,
    KIND,
    LONG_MS,
    a_mesh,
    call,
    eventually,
    on_both_engines,
    on_both_engines_in_real_time,
)
from tests.runtime.worker.test_disconnects import Sleeper


@on_both_engines_in_real_time
@pytest.mark.req("M20")
async def test_the_roster_answers_its_three_questions(engine):
    async with a_mesh(engine, CALM) as mesh:
        mesh.wall = Sleeper(mesh.wall)
        node = await mesh.node(caretaking=False)
        roster = Roster(node)
        caller, holder = (await mesh.connection()).session, (await mesh.connection()).session
        first, second = await call(caller, 1), await call(caller, 2, kind=f"{KIND}.deep")
        other = await call(caller, 3, kind="test.elsewhere")
        await node.reached(other.seq)
        me = holder.author.did

        # Pending jobs of a kind, those below it included, oldest first.
        assert [job.id for job in roster.claimable(KIND, by=me)] == [first.id, second.id]
        assert roster.state_of(KIND, first.id).state == "pending"
        assert roster.state_of(KIND, "0" * 64) is None

        # Routed elsewhere, they are nobody else's to claim.
        owner = (await mesh.connection(mesh.owner)).session
        route = RouteBody(kind=f"{KIND}.deep", target=owner.author.did)
        await write_one(owner, Intent(MeshRoute, route))
        await node.reached(owner.confirmed)
        assert [job.id for job in roster.claimable(KIND, by=me)] == [first.id]
        assert [job.id for job in roster.claimable(KIND, by=owner.author.did)] == [
            first.id,
            second.id,
        ]

        # Claimed and past its deadline.
        body = ClaimBody(kind=KIND, job=first.id, lease_ms=LONG_MS, begin=True)
        seq = await holder.commit(holder.draft(JobClaim, body, prev=0))
        await node.reached(seq)
        assert roster.overdue() == []
        mesh.wall.slept_s = LONG_MS / 1000
        assert [job.id for job in roster.overdue()] == [first.id]


@on_both_engines
@pytest.mark.req("M30", "M4")
async def test_a_worker_loop_needs_nothing_but_the_roster(engine):
    async with a_mesh(engine, CALM) as mesh:
        node = await mesh.node()
        roster, session = Roster(node), node.session
        caller = (await mesh.connection()).session
        jobs = [await call(caller, number) for number in range(3)]

        async def work_through() -> None:
            for job in roster.claimable(KIND, by=session.author.did):
                body = ClaimBody(kind=KIND, job=job.id, lease_ms=LONG_MS)
                claim = session.draft(JobClaim, body, prev=0)
                claimed = await session.commit(claim)
                fence = hlc.pack(claim.op.hlc)
                start = StartBody(kind=KIND, job=job.id, fence=fence)
                started = await session.commit(session.draft(JobStart, start, prev=claimed))
                output = Output(name="result", hash=digest(b"7"), size=1, text="7")
                done = CompleteBody(
                    kind=KIND, job=job.id, fence=fence, status="succeeded", outputs=(output,)
                )
                schedule = session.open(node.replica.record(job.scheduled_seq).record).op
                done = proved(session, done, schedule.body.manifest)
                await session.commit(session.draft(JobComplete, done, prev=started))

        await node.reached(jobs[-1].seq)
        await work_through()
        for job in jobs:
            ended = await submission.wait_for_end(caller, KIND, job.id)
            assert (ended.job.outcome, ended.outputs[0].text) == ("succeeded", "7")
        await eventually(lambda: node.replica.counts() == {"succeeded": 3})
        assert roster.claimable(KIND, by=session.author.did) == []


@on_both_engines
@pytest.mark.req("S14")
async def test_reads_are_local_and_quick_and_writes_come_back(engine):
    async with a_mesh(engine, CALM) as mesh:
        node = await mesh.node(caretaking=False)
        caller = (await mesh.connection()).session
        jobs = [await call(caller, number) for number in range(200)]
        await node.reached(jobs[-1].seq)  # what was written to the log came back
        assert node.replica.counts() == {"pending": 200}

        def read() -> None:  # nothing is awaited here, so nothing can leave the machine
            for called in jobs:
                assert node.replica.job(KIND, called.id).scheduled_seq == called.seq

        opened_records = [node.replica.record(called.seq).record for called in jobs]
        cost = times_the_cost(read, of=lambda: [caller.open(opened) for opened in opened_records])
        assert cost < 8, "of what checking their signatures takes"
