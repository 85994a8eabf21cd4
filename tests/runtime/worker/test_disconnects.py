"""A worker that loses the engine, or its own sense of time, in the middle of a job."""

import asyncio

import pytest

from antiphon.assembly import MeshConnection
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.state import State
from antiphon.ports import WallClock
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.submission import Submitted
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.worker.worker import Worker
from tests.runtime.meshes import KIND, QUICK, a_mesh, call, eventually, ops_on_lane

ON = HandlerOptions(on_disconnect="continue")
LEASE_S = QUICK.lease_ms / 1000
LONG_LEASES = Rules(authority="open")

pytestmark = pytest.mark.virtual_time


class Diary:
    """A handler that runs for a while, and notes how that ended."""

    def __init__(self, lasts_s: float) -> None:
        self.lasts_s = lasts_s
        self.began = asyncio.Event()
        self.ends: list[str] = []

    async def handle(self, number: int) -> int:
        self.began.set()
        try:
            await asyncio.sleep(self.lasts_s)
        except asyncio.CancelledError:
            self.ends.append("stopped")
            raise
        self.ends.append("finished")
        return number


async def test_by_default_a_job_is_stopped_at_two_thirds_of_a_lease_without_the_engine():
    diary = Diary(lasts_s=5 * LEASE_S)
    async with a_mesh("memory", QUICK) as mesh:
        caller, connection = (await mesh.connection()).session, await mesh.connection()
        await mesh.worker(diary.handle, connection=connection)
        await call(caller, 1)
        await diary.began.wait()
        connection.session.engine.sever()
        loop = asyncio.get_running_loop()
        severed_s = loop.time()
        await eventually(lambda: diary.ends == ["stopped"], within_s=2 * LEASE_S)
        assert loop.time() - severed_s < LEASE_S, "before anyone else may begin"
        connection.session.engine.heal()


async def test_a_lease_is_renewed_as_soon_as_the_engine_is_back():
    """It comes back seconds before the job would be stopped, between two checks of the lease."""
    lease_s = LONG_LEASES.lease_ms / 1000
    diary = Diary(lasts_s=lease_s * 0.9)
    async with a_mesh("memory", LONG_LEASES) as mesh:
        mesh.loan_s = lease_s
        node = await mesh.node()
        caller, connection = (await mesh.connection()).session, await mesh.connection()
        await mesh.worker(diary.handle, connection=connection)
        called = await call(caller, 1)
        await diary.began.wait()
        await asyncio.sleep(lease_s * 0.3)
        connection.session.engine.sever()
        await asyncio.sleep(lease_s * 0.28)
        connection.session.engine.heal()
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert diary.ends == ["finished"]
        await node.reached(ended.job.ended_seq)
        told = [op for op, _ in ops_on_lane(node, called.id)]
        assert set(told) == {"job.schedule", "job.claim", "job.complete"}, "never given back"
        assert told.count("job.claim") > 1


@pytest.mark.req("G10")
async def test_a_job_that_goes_on_completes_after_the_engine_is_back():
    diary = Diary(lasts_s=2 * LEASE_S)
    async with a_mesh("memory", QUICK) as mesh:
        caller, connection = (await mesh.connection()).session, await mesh.connection()
        await mesh.worker(diary.handle, connection=connection, how=ON)
        called = await call(caller, 7)
        await diary.began.wait()
        connection.session.engine.sever()
        await eventually(lambda: diary.ends == ["finished"])
        await asyncio.sleep(LEASE_S / 2)  # it tries in vain meanwhile
        connection.session.engine.heal()
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert (ended.outputs[0].text, ended.job.attempts) == ("7", 0)


async def test_a_lease_that_ran_out_unnoticed_by_others_does_not_stop_a_job_that_goes_on():
    diary = Diary(lasts_s=4 * LEASE_S)
    async with a_mesh("memory", QUICK) as mesh:
        caller, connection = (await mesh.connection()).session, await mesh.connection()
        await mesh.worker(diary.handle, connection=connection, how=ON)
        called = await call(caller, 7)
        await diary.began.wait()
        connection.session.engine.sever()
        await asyncio.sleep(2 * LEASE_S)
        connection.session.engine.heal()  # its renewals are refused from here on
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert ended.job.outcome == "succeeded"
        assert diary.ends == ["finished"]


@pytest.mark.req("G7", "M6")
async def test_of_two_runs_one_result_is_accepted_though_the_first_went_on():
    away, there = Diary(lasts_s=3 * LEASE_S), Diary(lasts_s=0.01)
    async with a_mesh("memory", QUICK) as mesh:
        node = await mesh.node()
        caller, connection = (await mesh.connection()).session, await mesh.connection()
        first = await mesh.worker(away.handle, connection=connection, how=ON)
        called = await call(caller, 7)
        await away.began.wait()
        connection.session.engine.sever()
        await mesh.worker(there.handle)
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 1)
        await eventually(lambda: away.ends == ["finished"])
        connection.session.engine.heal()
        await eventually(lambda: first.busy == 0)
        await node.reached((await caller.read_lane(KIND, called.id)).lane.job_tail)
        told = ops_on_lane(node, called.id)
        assert told.count(("job.complete", "ok")) == 1
        assert node.replica.ask(ReplicaJobs).job(KIND, called.id).state is State.SUCCEEDED


async def test_what_is_done_when_the_engine_goes_is_completed_within_the_lease():
    diary = Diary(lasts_s=0.05)
    async with a_mesh("memory", LONG_LEASES) as mesh:
        caller, connection = (await mesh.connection()).session, await mesh.connection()
        await mesh.worker(diary.handle, connection=connection)
        called = await call(caller, 3)
        await diary.began.wait()
        connection.session.engine.sever()
        await eventually(lambda: diary.ends == ["finished"])
        await asyncio.sleep(0.3)
        connection.session.engine.heal()
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 0)


class Sleeper:
    """A machine that can be suspended: both clocks go on, the event loop's does not."""

    def __init__(self, awake: WallClock) -> None:
        self.awake, self.slept_s = awake, 0.0

    def now_ms(self) -> int:
        return self.awake.now_ms() + round(self.slept_s * 1000)

    def boot_s(self) -> float:
        return self.awake.boot_s() + self.slept_s


async def test_a_machine_that_slept_through_its_lease_stops_its_job_when_it_wakes():
    diary = Diary(lasts_s=60)
    async with a_mesh("memory", LONG_LEASES) as mesh:
        caller = (await mesh.connection()).session
        mesh.wall = Sleeper(mesh.wall)
        connection = await mesh.connection()
        await mesh.worker(diary.handle, connection=connection)
        await call(caller, 1)
        await diary.began.wait()
        connection.session.engine.sever()  # or it would renew on waking, in time or not
        await asyncio.sleep(1)
        assert diary.ends == []
        mesh.wall.slept_s = 25.0  # of a lease of 30 seconds
        await eventually(lambda: diary.ends == ["stopped"], within_s=3)
        connection.session.engine.heal()


@pytest.mark.req("M21")
async def test_a_job_past_its_time_to_start_is_not_claimed():
    diary = Diary(lasts_s=0.01)
    async with a_mesh("memory", QUICK) as mesh:
        caller = (await mesh.connection()).session
        late = await call(caller, 1, start_by=mesh.wall.now_ms() + 150)
        await asyncio.sleep(0.3)
        worker = await mesh.worker(diary.handle)
        other = await call(caller, 2)
        await submission.wait_for_end(caller, KIND, other.id)
        await eventually(lambda: worker.done == 1)
        view = await caller.read_lane(KIND, late.id)
        assert [type(judged.opened.op) for judged in view.history] == [JobSchedule]


async def _finished_away(mesh, diary: Diary, tmp_path) -> tuple[Submitted, MeshConnection, Worker]:
    """A job whose worker has finished it, and cannot say so."""
    caller, connection = (await mesh.connection()).session, await mesh.connection()
    worker = await mesh.worker(
        diary.handle, connection=connection, how=ON, outbox=tmp_path, drain_s=0.1
    )
    called = await call(caller, 7)
    await diary.began.wait()
    connection.session.engine.sever()
    await eventually(lambda: diary.ends == ["finished"])
    await eventually(OutboxStore(tmp_path).items)
    return called, connection, worker


@pytest.mark.req("P12")
async def test_a_result_waits_on_disk_and_is_accepted_if_nobody_took_over(tmp_path):
    diary = Diary(lasts_s=2 * LEASE_S)
    async with a_mesh("memory", QUICK) as mesh:
        called, connection, worker = await _finished_away(mesh, diary, tmp_path)
        (kept,) = OutboxStore(tmp_path).items()
        assert (kept.what.words, kept.state) == (f"complete {KIND} {called.id[:8]}", "waiting")
        connection.session.engine.heal()
        ended = await submission.wait_for_end((await mesh.connection()).session, KIND, called.id)
        assert (ended.outputs[0].text, ended.job.attempts) == ("7", 0)
        await eventually(lambda: worker.done == 1)
        assert OutboxStore(tmp_path).items() == [], "the worker knows: nobody else has to be told"


@pytest.mark.req("P12")
async def test_a_result_outlives_its_worker(tmp_path):
    diary, again = Diary(lasts_s=2 * LEASE_S), Diary(lasts_s=0.01)
    async with a_mesh("memory", QUICK) as mesh:
        called, connection, worker = await _finished_away(mesh, diary, tmp_path)
        worker.drain()
        await eventually(lambda: worker.held == 0)
        assert [one.state for one in OutboxStore(tmp_path).items()] == ["waiting"]
        connection.session.engine.heal()
        await mesh.worker(again.handle, connection=connection, how=ON, outbox=tmp_path)
        ended = await submission.wait_for_end((await mesh.connection()).session, KIND, called.id)
        assert (ended.outputs[0].text, ended.job.attempts, again.ends) == ("7", 0, [])
        assert [one.state for one in OutboxStore(tmp_path).items()] == ["held"]


@pytest.mark.req("P12", "G7")
async def test_a_result_is_dropped_and_told_if_somebody_took_over(tmp_path):
    away, there = Diary(lasts_s=3 * LEASE_S), Diary(lasts_s=0.01)
    async with a_mesh("memory", QUICK) as mesh:
        await mesh.node()
        caller = (await mesh.connection()).session
        finished = asyncio.ensure_future(_finished_away(mesh, away, tmp_path))
        await away.began.wait()
        await mesh.worker(there.handle)
        called, connection, worker = await finished
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 1)
        connection.session.engine.heal()
        await eventually(lambda: worker.busy == 0)
        (told,) = OutboxStore(tmp_path).items()
        assert (told.state, told.why) == ("dropped", "another worker took over (fence)")
