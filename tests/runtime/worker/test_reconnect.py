"""After the engine was away: calls are made again, and leases renewed, as soon as it is back."""

import asyncio

import pytest

from antiphon import CircuitOpen, Mesh, OutcomeUnknown
from antiphon.core import manifest
from antiphon.core.families.jobs.ops import JobClaim, JobComplete, JobSchedule, ScheduleBody
from antiphon.core.policy.circuit_breaker import CircuitBreaker
from antiphon.engines.nats import LocalServer
from antiphon.errors import Unavailable
from antiphon.ports import WallClock
from antiphon.runtime.caller import submission
from antiphon.runtime.log.appending import APPEND_TRIES
from tests.runtime.meshes import CALM, KIND, LONG_MS, a_mesh, call, eventually

FOR_EVER_S = 1e9
"""A breaker that nothing but a new line closes."""


class LaterClock:
    """A machine's clock that leases are counted by; it can be put forward."""

    def __init__(self, really: WallClock) -> None:
        self._really, self.later_s = really, 0.0

    def now_ms(self) -> int:
        return self._really.now_ms()

    def boot_s(self) -> float:
        return self._really.boot_s() + self.later_s


def body(number: int) -> ScheduleBody:
    content = manifest.author({"command": ["@test.work"], "args": [f"[{number}]"], "timeout": 30})
    return ScheduleBody(kind="test.work", manifest=content)


async def until_it_is_open(session) -> None:
    for number in range(1, session.breaker.failures + 1):
        with pytest.raises(Unavailable) as told:
            await submission.submit(session, body(number))
        assert not isinstance(told.value, CircuitOpen)
    with pytest.raises(CircuitOpen, match="requests in a row") as told:
        await submission.submit(session, body(0))
    assert told.value.retry_s > 0


@pytest.mark.nats
async def test_calls_are_made_again_once_the_server_is_back():
    async with LocalServer() as server, a_mesh("nats") as mesh:
        mesh.server = server
        session = (await mesh.connection()).session
        session.breaker = CircuitBreaker(failures=2, reset_s=FOR_EVER_S)
        for _ in range(2):
            server.kill()
            await until_it_is_open(session)
            await server.start()
            await eventually(lambda: session.engine.connected)
            called = [await submission.submit(session, body(number)) for number in range(3)]
            assert len({one.id for one in called}) == 3


@pytest.mark.nats
async def test_a_job_keeps_its_lease_over_a_restart_of_the_server():
    """The server is down when the renewal is due; what counts is on the log."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def run(number: int) -> int:
        began.set()
        await may_end.wait()
        return number

    async with LocalServer() as server, a_mesh("nats", CALM) as mesh:
        mesh.server = server
        caller = (await mesh.connection()).session
        mesh.wall = wall = LaterClock(mesh.wall)
        connection = await mesh.connection()
        await mesh.worker(run, connection=connection)
        job = await call(caller, 7)
        await began.wait()
        server.kill()
        await eventually(lambda: not connection.session.engine.connected)
        wall.later_s = 0.4 * LONG_MS / 1000
        await asyncio.sleep(0.5)  # it tries in vain
        await server.start()

        async def ops() -> list[type]:
            view = await caller.read_lane(KIND, job.id)
            return [type(one.opened.op) for one in view.history]

        await eventually(lambda: caller.engine.connected)
        while await ops() != [JobSchedule, JobClaim, JobClaim]:
            await asyncio.sleep(0.05)
        may_end.set()
        ended = await submission.wait_for_end(caller, KIND, job.id)
        assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 0)
        assert await ops() == [JobSchedule, JobClaim, JobClaim, JobComplete]


@pytest.mark.virtual_time
async def test_while_it_stays_away_the_breaker_stays_open():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        session.breaker = CircuitBreaker(failures=2, reset_s=FOR_EVER_S)
        session.engine.sever()
        await until_it_is_open(session)
        with pytest.raises(CircuitOpen):
            await submission.submit(session, body(3))
        session.engine.heal()
        assert (await submission.submit(session, body(3))).is_new


@pytest.mark.virtual_time
async def test_without_a_breaker_every_call_is_tried(monkeypatch):
    monkeypatch.setenv("ANTIPHON_BREAKER", "off")
    monkeypatch.setenv("ANTIPHON_BREAKER_FAILURES", "1")
    mesh = Mesh.open(engine="memory")
    async with mesh:
        mesh.connection.memory._server.kill()
        for number in range(3):
            with pytest.raises(Unavailable, match=f"in {APPEND_TRIES} tries"):
                await mesh.submit("test.work", number)
        mesh.connection.memory._server.start()
        assert (await mesh.submit("test.work", 7)).is_new


@pytest.mark.virtual_time
async def test_an_unknown_outcome_names_the_job(monkeypatch):
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session

        async def stay_silent(*_, **__):
            raise OutcomeUnknown("no answer")

        monkeypatch.setattr(session.log, "append", stay_silent)
        wanted = body(1)
        with pytest.raises(OutcomeUnknown) as told:
            await submission.submit(session, wanted)
        job = manifest.job_id(wanted.manifest)
        assert (told.value.kind, told.value.job_id) == ("test.work", job)
        assert job in told.value.message
        assert f"antiphon show {job[:8]}" in told.value.hint


@pytest.mark.virtual_time
async def test_what_was_never_sent_is_not_unknown():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        session.engine.sever()
        with pytest.raises(Unavailable, match="was not written") as told:
            await submission.submit(session, body(1))
        assert not isinstance(told.value, OutcomeUnknown)
