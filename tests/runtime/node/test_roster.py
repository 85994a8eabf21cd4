"""The roster's questions, and a worker loop made of nothing else."""

import asyncio

import pytest
from msgspec.structs import replace
from nacl.signing import SigningKey

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import (
    CancelBody,
    ClaimBody,
    CompleteBody,
    ExpireBody,
    Failure,
    JobCancel,
    JobClaim,
    JobComplete,
    JobExpire,
    JobStart,
    JobYield,
    StartBody,
    YieldBody,
)
from antiphon.core.families.mesh.ops import MeshRoute, RouteBody
from antiphon.core.proof.output import Output
from antiphon.core.record.verdict import Verdict
from antiphon.errors import LostRace
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_of
from antiphon.runtime.log.writer import Intent, Policy, go_behind, write_one
from antiphon.runtime.node.roster import FOUND, Roster
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_lane, job_records
from tests.cpu_cost import times_the_cost
from tests.patience import PATIENCE_S
from tests.runtime.by_hand import called, finished, proved
from tests.runtime.meshes import (
    CALM,
    KIND,
    LONG_MS,
    a_mesh,
    call,
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
        roster = Roster(node.session, node.replica)
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
        mesh.wall.slept_s = LONG_MS / 1000 + 1
        assert [job.id for job in roster.overdue()] == [first.id]


@on_both_engines
@pytest.mark.req("M20")
async def test_the_roster_finds_what_can_be_claimed_behind_many_that_cannot(engine):
    async with a_mesh(engine, CALM) as mesh:
        node = await mesh.node(caretaking=False)
        owner, caller = (
            (await mesh.connection(mesh.owner)).session,
            (await mesh.connection()).session,
        )
        route = RouteBody(kind=f"{KIND}.deep", target=owner.author.did)
        await write_one(owner, Intent(MeshRoute, route))
        for number in range(FOUND + 5):
            await call(caller, number, kind=f"{KIND}.deep")
        free = await call(caller, 1)
        await node.reached(free.seq)
        claimable = Roster(node.session, node.replica).claimable
        assert [job.id for job in claimable(KIND, by=caller.author.did)] == [free.id]
        assert len(claimable(KIND, by=owner.author.did)) == FOUND


@on_both_engines
@pytest.mark.req("M20")
async def test_the_roster_follows_a_job_through_its_states(engine):
    async with a_mesh(engine, CALM) as mesh:
        node = await mesh.node(caretaking=False)
        roster = Roster(node.session, node.replica)
        caller, holder = (await mesh.connection()).session, (await mesh.connection()).session
        me = holder.author.did
        later = await call(caller, 2, not_before=mesh.wall.now_ms() + LONG_MS)
        job = await call(caller, 1)
        told = []

        async def told_after(seq: int) -> None:
            await node.reached(seq)
            state = roster.state_of(KIND, job.id)
            claimable = [one.id for one in roster.claimable(KIND, by=me)]
            told.append((state.state, state.claimer == me, claimable == [job.id]))
            assert state == (await caller.read_lane(KIND, job.id)).lane.job

        await told_after(job.seq)
        assert roster.state_of(KIND, later.id).state == "waiting"
        await holder.read_lane(KIND, job.id)
        claim = holder.draft(JobClaim, ClaimBody(kind=KIND, job=job.id, lease_ms=LONG_MS), prev=0)
        seq = await holder.commit(claim)
        await told_after(seq)
        fence = hlc.pack(claim.op.hlc)
        start = StartBody(kind=KIND, job=job.id, fence=fence)
        seq = await holder.commit(holder.draft(JobStart, start, prev=seq))
        await told_after(seq)
        back = YieldBody(kind=KIND, job=job.id, fence=fence, reason="drain", retry_after_ms=LONG_MS)
        seq = await holder.commit(holder.draft(JobYield, back, prev=seq))
        await told_after(seq)
        cancel = CancelBody(kind=KIND, job=job.id)
        await told_after(await caller.commit(caller.draft(JobCancel, cancel, prev=seq)))
        assert told == [
            ("pending", False, True),
            ("claimed", True, False),
            ("running", True, False),
            ("pending", False, False),  # given back for later
            ("aborted", False, False),
        ]


class RosterLoop:
    """A worker of nothing but the roster's questions and ops: claims, runs, completes or yields."""

    def __init__(self, node, run) -> None:
        self.roster, self.node, self.session = (
            Roster(node.session, node.replica),
            node,
            node.session,
        )
        self._run = run
        self._policy = Policy(again=go_behind, foresees=True, insists=False)

    async def round(self) -> int:
        """Look once; how many jobs it has claimed."""
        me = self.session.author.did
        for job in self.roster.overdue():
            body = ExpireBody(kind=job.kind, job=job.id, fence=job.fence or None)
            await self._write(JobExpire, body, job)
        mine = 0
        for job in self.roster.claimable(KIND, by=me):
            body = ClaimBody(kind=KIND, job=job.id, lease_ms=LONG_MS, begin=True)
            held = await self._write(JobClaim, body, job)
            if held is not None and held.claimer == me:
                mine += 1
                await self._end(held)
        return mine

    async def _end(self, job) -> None:
        schedule = self.session.open(self.node.replica.record(job.scheduled_seq).record).op
        (number,), _ = call_of(schedule.body.manifest)
        try:
            text = await self._run(number)
        except ValueError as wrong:
            error = Failure(name="ValueError", message=str(wrong))
            back = YieldBody(kind=KIND, job=job.id, fence=job.fence, reason="error", error=error)
            await self._write(JobYield, back, job)
            return
        output = Output(name="result", text=text)
        done = CompleteBody(
            kind=KIND, job=job.id, fence=job.fence, status="succeeded", outputs=(output,)
        )
        await self._write(JobComplete, proved(self.session, done, schedule.body.manifest), job)

    async def _write(self, op, body, job):
        """The job afterwards; None if others were quicker, and it would have no effect."""
        lane = job_lane(self.node.replica, job.kind, job.id)
        try:
            written = await write_one(self.session, Intent(op, body, lane), self._policy)
        except LostRace:
            return None
        await self.node.reached(written.seq)
        return written.lane.job if written.verdict is Verdict.OK else None


@on_both_engines
@pytest.mark.req("M30", "M4")
async def test_worker_loops_need_nothing_but_the_roster(engine):
    """Two loops side by side; one job fails twice, and one was left behind by a dead worker."""
    rules = replace(CALM, lease_min_ms=200, lease_ms=1_000, lease_ms_max=LONG_MS, attempts=5)
    ran: list[int] = []

    async def run(number: int) -> str:
        ran.append(number)
        if number == 1 and ran.count(1) <= 2:
            raise ValueError("not yet")
        return str(number)

    async with a_mesh(engine, rules) as mesh:
        loops = [RosterLoop(await mesh.node(caretaking=False), run) for _ in range(2)]
        caller, dead = (await mesh.connection()).session, (await mesh.connection()).session
        jobs = [await call(caller, number) for number in range(8)]
        await dead.read_lane(KIND, jobs[7].id)
        body = ClaimBody(kind=KIND, job=jobs[7].id, lease_ms=1_000, begin=True)
        newest = await dead.commit(dead.draft(JobClaim, body, prev=0))

        async def work(loop: RosterLoop) -> None:
            await loop.node.reached(newest)
            while loop.node.replica.sizes.by_state() != {"succeeded": 8}:
                await loop.round()
                await asyncio.sleep(0.05)

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            for loop in loops:
                tasks.create_task(work(loop))
        for number, job in enumerate(jobs):
            ended = await submission.wait_for_end(caller, KIND, job.id)
            assert (ended.job.outcome, ended.outputs[0].text) == ("succeeded", str(number))
            assert ended.job.attempts == {1: 2, 7: 1}.get(number, 0)
        assert sorted(ran) == [0, 1, 1, 1, 2, 3, 4, 5, 6, 7], "nothing else ran twice"


@on_both_engines
@pytest.mark.req("S14")
async def test_reads_are_local_and_quick_and_writes_come_back(engine, tmp_path):
    """Of jobs with a whole life: given back once, then completed with a proof."""
    async with a_mesh(engine, CALM) as mesh:
        path = tmp_path / "replica.db"
        node = await mesh.node(caretaking=False, path=path)
        caller, worker = (await mesh.connection()).session, (await mesh.connection()).session
        jobs = []
        for _ in range(60):
            job = await called(caller, KIND)
            await worker.read_lane(KIND, job.id, at_least=job.seq)
            claim = worker.draft(
                JobClaim, ClaimBody(kind=KIND, job=job.id, lease_ms=LONG_MS, begin=True), prev=0
            )
            seq, fence = await worker.commit(claim), hlc.pack(claim.op.hlc)
            back = YieldBody(kind=KIND, job=job.id, fence=fence, reason="battery")
            tail = await worker.commit(worker.draft(JobYield, back, prev=seq))
            ended = await finished(worker, KIND, job, prev=tail)
            jobs.append((job, ended))
        await node.reached(jobs[-1][1])  # what was written to the log came back
        assert node.replica.sizes.by_state() == {"succeeded": 60}
        node.replica.flush()
        cold = Replica(path, mesh=mesh.mesh, read_only=True)  # with nothing in memory
        mesh.stack.callback(cold.close)

        def read(replica: Replica = node.replica) -> None:
            # Nothing is awaited here, so nothing can leave the machine.
            for job, ended in jobs:
                found = replica.ask(ReplicaJobs).job(KIND, job.id)
                assert (found.scheduled_seq, found.ended_seq) == (job.seq, ended)
                assert (found.yields, found.outcome) == (1, "succeeded")
                kinds = [one.verdict.value for one in job_records(replica, KIND, job.id)]
                assert kinds == ["ok"] * 5

        key = SigningKey.generate()
        signed, signed_by = key.sign(b"a record"), key.verify_key

        def check_signatures() -> None:
            for _ in jobs:
                signed_by.verify(signed)

        for replica in (node.replica, cold):
            cost = times_the_cost(lambda replica=replica: read(replica), of=check_signatures)
            assert cost < 5, "to read a job is to check some signatures"
