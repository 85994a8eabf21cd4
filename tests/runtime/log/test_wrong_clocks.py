"""Machines whose clocks are wrong: refused in words, harmless to others, back by themselves."""

import asyncio

import pytest

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.clock.mesh_time import READ_BELIEVED_MS
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobSchedule, ScheduleBody
from antiphon.core.families.jobs.state import EMPTY
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, Rejected
from antiphon.ports import WallClock
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.presence.worker_presence import Traits, WorkerPresence
from tests.runtime.meshes import KIND, QUICK, a_mesh, eventually

DRIFT_MS = 100
HOUR_MS = 3_600_000

pytestmark = pytest.mark.virtual_time


class WrongClock:
    def __init__(self, right: WallClock, off_ms: int = 0) -> None:
        self.right, self.off_ms = right, off_ms

    def now_ms(self) -> int:
        return self.right.now_ms() + self.off_ms

    def boot_s(self) -> float:
        return self.right.boot_s()


def schedule_body(number):
    content = {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    return ScheduleBody(kind=KIND, manifest=manifest.author(content))


async def peer_with(mesh, wall) -> Session:
    connection = await mesh.connection()
    key = SeedKeyring(mesh.entropy.token(32))
    author = Author(mesh.mesh, key, wall, max_drift_ms=DRIFT_MS, mark=NoMark())
    session = Session(connection.session.engine, author, wall, mesh.entropy)
    await session.sync_control()
    return session


async def test_a_call_with_a_clock_far_ahead_is_refused_in_words_and_can_be_made_again():
    async with a_mesh("memory", QUICK) as mesh:
        wall = WrongClock(mesh.wall, 3 * HOUR_MS + 90_000)
        caller = await peer_with(mesh, wall)
        body = schedule_body(1)
        with pytest.raises(Rejected, match="clock is 3 h 1 min ahead of the mesh's") as refused:
            await submission.submit(caller, body)
        assert refused.value.reason == "drift"
        assert "timedatectl" in refused.value.hint
        with pytest.raises(AntiphonError, match="clock is 3 h 1 min ahead of the mesh's"):
            await submission.submit(caller, body)
        wall.off_ms = 0
        called = await submission.submit(caller, body)
        assert called.is_new, "the refused one lies in the way and is stepped behind"
        records = (await caller.read_lane(KIND, called.id)).history
        verdicts = [judged.verdict for judged in records]
        assert verdicts[-1] is Verdict.OK
        assert len(verdicts) <= 2, "what can only be refused is not written over and over"


async def test_a_worker_with_a_clock_far_behind_is_told_so():
    async with a_mesh("memory", QUICK) as mesh:
        called = await submission.submit((await mesh.connection()).session, schedule_body(2))
        slow = await peer_with(mesh, WrongClock(mesh.wall, -2 * HOUR_MS - 90_000))
        lane = (await slow.read_lane(KIND, called.id)).lane
        body = ClaimBody(kind=KIND, job=called.id, lease_ms=lane.job.lease_ms, begin=True)
        assert slow.foresee(JobClaim, body, lane, prev=0) is Verdict.STALE
        assert "clock is 2 h 1 min behind" in slow.author.mesh_time.fault(DRIFT_MS)


async def test_a_worker_whose_clock_is_ahead_leaves_the_work_to_others_until_it_is_right():
    async with a_mesh("memory", QUICK) as mesh:
        caller = (await mesh.connection()).session
        wall, done = WrongClock(mesh.wall, HOUR_MS), []

        async def note(number):
            done.append(number)

        connection = assembly.MeshConnection(await peer_with(mesh, wall), mesh.owner, "wrong")
        worker = await mesh.worker(note, connection=connection)
        await submission.submit(caller, schedule_body(10))
        await eventually(lambda: worker.session.author.is_ahead)
        await mesh.worker(note)
        others = range(11, 31)
        for number in others:
            await submission.submit(caller, schedule_body(number))
        # What it took and gave back would come again after a second at the earliest.
        await eventually(lambda: set(others) <= set(done), within_s=0.9)
        wall.off_ms = 0
        await eventually(lambda: worker._free() > 0)
        await eventually(lambda: 10 in done)


async def test_an_op_beyond_the_drift_pulls_nobody_ahead_whose_clock_is_a_little_fast():
    async with a_mesh("memory", QUICK) as mesh:
        far = await peer_with(mesh, WrongClock(mesh.wall, DRIFT_MS + 60))
        body = schedule_body(3)
        with pytest.raises(Rejected):
            await submission.submit(far, body)
        fast = await peer_with(mesh, WrongClock(mesh.wall, DRIFT_MS - 30))
        view = await fast.read_lane(KIND, manifest.job_id(body.manifest))
        assert [judged.verdict for judged in view.history] == [Verdict.DRIFT]
        other = schedule_body(4)
        assert fast.foresee(JobSchedule, other, EMPTY, prev=0) is Verdict.OK
        assert (await submission.submit(fast, other)).is_new


async def test_a_full_node_with_a_clock_far_ahead_does_not_fill_the_lanes_of_held_jobs():
    async with a_mesh("memory", QUICK) as mesh:
        connection = await mesh.connection()
        called = await submission.submit(connection.session, schedule_body(5))
        held = asyncio.Event()

        async def hold(_number):
            held.set()
            await asyncio.sleep(60)

        await mesh.worker(hold, drain_s=0.1)
        await held.wait()
        wrong = await peer_with(mesh, WrongClock(mesh.wall, HOUR_MS))
        await mesh.node(connection=assembly.MeshConnection(wrong, mesh.owner, "wrong"))
        await asyncio.sleep(3)
        view = await connection.session.read_lane(KIND, called.id)
        refused = [judged for judged in view.history if judged.verdict is Verdict.DRIFT]
        # None, if what others say or write has told it the time before its turn came.
        assert len(refused) <= 1, "one, to learn by; not one in each round"


async def test_a_worker_that_spoke_with_a_clock_far_ahead_is_heard_when_it_is_right():
    async with a_mesh("memory", QUICK) as mesh:
        wall, heard = WrongClock(mesh.wall), []
        speaker = WorkerPresence(await peer_with(mesh, wall), KIND, Traits())
        listener = WorkerPresence(await peer_with(mesh, WrongClock(mesh.wall)), KIND, Traits())
        listener.listeners.append(heard.append)
        async with listener.listening(silently=True):
            wall.off_ms = HOUR_MS
            await speaker.point_to("a" * 64, 1)
            wall.off_ms = 0
            await speaker.point_to("b" * 64, 1)
            await eventually(lambda: heard)
        assert [word.body.calls[0][0] for word in heard] == ["b" * 64]


async def test_a_caller_goes_on_after_its_clock_and_then_the_engines_were_ahead():
    """It went back behind its hours of tomorrow only while it did not seem to be late itself."""
    async with a_mesh("memory", QUICK) as mesh:
        wall = WrongClock(mesh.wall, 2 * HOUR_MS)
        caller = await peer_with(mesh, wall)
        with pytest.raises(Rejected, match="ahead of the mesh's"):
            await submission.submit(caller, schedule_body(20))
        wall.off_ms = 0
        engine_ms = mesh.wall.now_ms() + 300_000  # what its clock showed for a moment
        caller.author.mesh_time.saw(engine_ms, max_drift_ms=DRIFT_MS)
        await asyncio.sleep(2 * READ_BELIEVED_MS / 1000 + 1)
        assert (await submission.submit(caller, schedule_body(21))).is_new
