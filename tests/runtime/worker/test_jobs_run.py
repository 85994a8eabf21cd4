"""A job's way through real workers and full nodes, on both engines."""

import asyncio

import msgspec
import pytest

from antiphon.core.families.jobs.ops import (
    ClaimBody,
    JobClaim,
    JobComplete,
    JobSchedule,
    JobYield,
    Retry,
    ScheduleBody,
    YieldBody,
)
from antiphon.core.families.jobs.state import State
from antiphon.runtime.caller import submission
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.worker.runs import job_run
from tests.runtime.meshes import (
    CALM,
    KIND,
    LONG_MS,
    OFFERED,
    QUICK,
    a_mesh,
    call,
    eventually,
    on_both_engines,
    ops_on_lane,
)


async def double(number: int) -> int:
    return 2 * number


@on_both_engines
async def test_a_job_is_three_records_and_full_and_light_verdicts_agree(engine):
    async with a_mesh(engine) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        await mesh.worker(double)
        called = await call(caller, 21)
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert ended.outputs[0].text == "42"
        light = await caller.read_lane(KIND, called.id)
        await node.reached(light.history[-1].opened.seq)
        told = ops_on_lane(node, called.id)
        assert told == [("job.schedule", "ok"), ("job.claim", "ok"), ("job.complete", "ok")]
        assert [judged.verdict.value for judged in light.history] == [v for _, v in told]
        assert node.replica.ask(ReplicaJobs).job(KIND, called.id) == light.lane.job


@pytest.mark.virtual_time
async def test_a_plain_job_pays_for_nothing_that_it_does_not_use(monkeypatch):
    """No beats, no budget, no checkpoints, nothing printed, nothing measured, nobody to tell."""
    made = []
    for name in (
        "RunBeats",
        "BudgetTimer",
        "CheckpointSaver",
        "KeptOutput",
        "LiveOutputSender",
        "UsageGauge",
    ):
        monkeypatch.setattr(job_run, name, lambda *_, name=name, **__: made.append(name))
    async with a_mesh("memory") as mesh:
        worker = await mesh.worker(double)
        caller = (await mesh.connection()).session
        called = await call(caller, 21)
        assert (await submission.wait_for_end(caller, KIND, called.id)).job.outcome == "succeeded"
        await eventually(lambda: worker.done == 1)
    assert made == []


@on_both_engines
async def test_the_same_manifest_again_is_the_same_job_and_other_kinds_are_others(engine):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        first = await call(caller, 1)
        again = await call(caller, 1)
        other_priority = await call(caller, 1, priority="high")
        assert first.is_new
        assert not again.is_new
        assert not other_priority.is_new
        assert first.id == again.id == other_priority.id
        # Even the same content under another kind is another job, on a lane of its own.
        body = ScheduleBody(kind="test.other", manifest=_content_of(await _lane(caller, first)))
        planted = await submission.submit(caller, body)
        assert planted.is_new
        assert planted.id == first.id


@on_both_engines
@pytest.mark.req("M25")
async def test_a_kind_that_a_worker_does_not_know_is_never_claimed(engine):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(double)
        strange = [await call(caller, 1, kind=kind) for kind in ("test.strange", f"{KIND}.deeper")]
        known = await call(caller, 2)
        ended = await submission.wait_for_end(caller, KIND, known.id)
        assert ended.job.outcome == "succeeded"
        for called in strange:
            view = await _lane(caller, called)
            assert [type(judged.opened.op) for judged in view.history] == [JobSchedule]


async def _lane(session, called):
    return await session.read_lane(called.kind, called.id)


def _content_of(view):
    op = view.history[0].opened.op
    assert isinstance(op, JobSchedule)
    return op.body.manifest


@on_both_engines
@pytest.mark.req("M21")
async def test_a_worker_holds_no_more_leases_than_it_has_slots(engine):
    running = most = 0

    async def counted(_number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.03)
        running -= 1

    async with a_mesh(engine) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        for number in range(12):
            await call(caller, number)
        await mesh.worker(counted, slots=2)
        await eventually(lambda: node.replica.sizes.by_state() == {"succeeded": 12})
        assert most == 2
        # The leases on the log say the same: never three between claim and completion.
        held = deepest = 0
        for seq in range(1, node.applied + 1):
            stored = node.replica.record(seq)
            op = node.session.open(stored.record).op
            held += isinstance(op, JobClaim) - isinstance(op, JobComplete)
            deepest = max(deepest, held)
        assert deepest <= 2


@on_both_engines
@pytest.mark.req("M22", "P10")
async def test_an_error_with_attempts_left_is_given_back_and_without_ends_the_job(engine):
    tries: dict[int, int] = {}

    async def shaky(number: int) -> str:
        tries[number] = tries.get(number, 0) + 1
        if number == 1 and tries[number] == 2:
            return "second time lucky"
        raise ValueError(f"no luck with {number}")

    retry = Retry(attempts=2, base_ms=10, cap_ms=20)
    async with a_mesh(engine) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        await mesh.worker(shaky)
        lucky = await call(caller, 1, retry=retry)
        doomed = await call(caller, 2, retry=retry)
        ended = await submission.wait_for_end(caller, KIND, lucky.id)
        assert ended.job.state is State.SUCCEEDED
        ended = await submission.wait_for_end(caller, KIND, doomed.id)
        assert ended.job.outcome == "failed"
        assert (ended.error.name, ended.error.message) == ("ValueError", "no luck with 2")
        assert tries == {1: 2, 2: 2}
        await node.reached(ended.job.ended_seq)
        assert ("job.yield", "ok") in ops_on_lane(node, doomed.id)


@on_both_engines
async def test_an_error_that_is_not_worth_retrying_ends_the_job_at_once(engine):
    async def hopeless() -> None:
        raise KeyError("never")

    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(hopeless)
        called = await call(caller, retry=Retry(attempts=5, give_up_on=("KeyError",)))
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert (ended.job.outcome, ended.job.attempts) == ("failed", 0)


@on_both_engines
@pytest.mark.req("M22")
async def test_a_worker_that_is_told_to_stop_gives_back_what_it_cannot_finish(engine):
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.sleep(3600)

    async with a_mesh(engine) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        worker = await mesh.worker(endless, drain_s=0.1)
        called = await call(caller)
        await started.wait()
        worker.drain()
        job = await eventually(
            lambda: (
                (job := node.replica.ask(ReplicaJobs).job(KIND, called.id)) and job.yields and job
            )
        )
        assert job.state is State.PENDING
        assert job.attempts == 0, "stopping is nobody's failure"


@on_both_engines
@pytest.mark.req("M21", "M9")
async def test_a_job_longer_than_its_lease_is_kept_by_renewing(engine):
    may_end = asyncio.Event()

    async def slow() -> str:
        await may_end.wait()
        return "still mine"

    # Renewed after two seconds each, so a machine may stand still for four and lose nothing.
    rules = msgspec.structs.replace(QUICK, lease_ms=6_000, lease_ms_max=6_000)
    async with a_mesh(engine, rules) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        await mesh.worker(slow)
        called = await call(caller)
        await eventually(lambda: ops_on_lane(node, called.id).count(("job.claim", "ok")) >= 3)
        may_end.set()
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert ended.job.outcome == "succeeded"
        await node.reached(ended.job.ended_seq)
        assert "job.expire" not in dict(ops_on_lane(node, called.id))


@on_both_engines
@pytest.mark.req("M5", "P10")
async def test_a_dead_workers_job_is_expired_called_again_and_taken_over(engine):
    async with a_mesh(engine, OFFERED) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        called = await call(caller, 5)
        dead = (await mesh.connection()).session
        view = await dead.read_lane(KIND, called.id)
        body = ClaimBody(kind=KIND, job=called.id, lease_ms=300, begin=True)
        await dead.commit(dead.draft(JobClaim, body, prev=view.lane.job_tail))
        await mesh.worker(double)
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert ended.outputs[0].text == "10"
        assert ended.job.attempts == 1
        await node.reached(ended.job.ended_seq)
        assert ("job.expire", "ok") in ops_on_lane(node, called.id)


@on_both_engines
@pytest.mark.req("M12", "M23")
async def test_a_worker_stays_away_from_a_held_job_until_it_is_given_back(engine):
    async with a_mesh(engine, OFFERED) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        called = await call(caller, 4)
        holder = (await mesh.connection()).session
        view = await holder.read_lane(KIND, called.id)
        body = ClaimBody(kind=KIND, job=called.id, lease_ms=LONG_MS, begin=True)
        claim = holder.draft(JobClaim, body, prev=view.lane.job_tail)
        claimed_seq = await holder.commit(claim)
        await mesh.worker(double)
        await asyncio.sleep(0.5)
        await node.reached(claimed_seq)
        assert ops_on_lane(node, called.id)[-1] == ("job.claim", "ok"), "nobody else wrote"
        view = await holder.read_lane(KIND, called.id)
        back = YieldBody(kind=KIND, job=called.id, fence=view.lane.job.fence, reason="battery")
        await holder.commit(holder.draft(JobYield, back, prev=claimed_seq))
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert ended.job.outcome == "succeeded"
        await node.reached(ended.job.ended_seq)
        rejected = [verdict for _, verdict in ops_on_lane(node, called.id) if verdict != "ok"]
        assert rejected == [], "it never raced"


@pytest.mark.req("P10")
@on_both_engines
async def test_cancelling_ends_a_pending_job_and_later_claims_are_refused(engine):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        called = await call(caller, 9)
        job = await submission.cancel(caller, KIND, called.id, reason="changed my mind")
        assert (job.state, job.outcome) == (State.ABORTED, "cancelled")
        again = await submission.cancel(caller, KIND, called.id, reason="twice")
        assert again.ended_seq == job.ended_seq


@on_both_engines
async def test_cancelling_a_running_job_stops_its_handler_long_before_a_renewal(engine):
    stopped = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    async with a_mesh(engine, CALM) as mesh:
        caller = (await mesh.connection()).session
        worker = await mesh.worker(endless)
        called = await call(caller)
        await eventually(lambda: worker.busy)
        await asyncio.sleep(1.2)
        job = await submission.cancel(caller, KIND, called.id, reason="enough")
        assert job.outcome == "cancelled"
        await stopped.wait()
        await eventually(lambda: worker.busy == 0)
