"""After the engine was away: calls are made again as soon as it is back."""

import pytest

from antiphon import CircuitOpen, Mesh, OutcomeUnknown
from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.policy.circuit_breaker import CircuitBreaker
from antiphon.engines.nats import LocalServer
from antiphon.errors import Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.log.session import APPEND_TRIES
from tests.runtime.meshes import a_mesh, eventually

FOR_EVER_S = 1e9
"""A breaker that nothing but a new line closes."""


def body(number: int) -> ScheduleBody:
    content = manifest.author({"command": ["@test.work"], "args": [f"[{number}]"], "timeout": 30})
    return ScheduleBody(kind="test.work", manifest=content)


async def until_it_is_open(breaker: CircuitBreaker, session) -> None:
    for number in range(1, breaker.failures + 1):
        with pytest.raises(Unavailable) as told:
            await submission.submit(session, body(number), breaker=breaker)
        assert not isinstance(told.value, CircuitOpen)
    with pytest.raises(CircuitOpen, match="submissions in a row") as told:
        await submission.submit(session, body(0), breaker=breaker)
    assert told.value.retry_s > 0


@pytest.mark.nats
async def test_calls_are_made_again_once_the_server_is_back():
    async with LocalServer() as server, a_mesh("nats") as mesh:
        mesh.server = server
        session = (await mesh.connection()).session
        breaker = CircuitBreaker(failures=2, reset_s=FOR_EVER_S)
        for _ in range(2):
            server.kill()
            await until_it_is_open(breaker, session)
            await server.start()
            await eventually(lambda: session.engine.connected)
            called = [
                await submission.submit(session, body(number), breaker=breaker)
                for number in range(3)
            ]
            assert len({one.id for one in called}) == 3


@pytest.mark.virtual_time
async def test_while_it_stays_away_the_breaker_stays_open():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        breaker = CircuitBreaker(failures=2, reset_s=FOR_EVER_S)
        session.engine.sever()
        await until_it_is_open(breaker, session)
        with pytest.raises(CircuitOpen):
            await submission.submit(session, body(3), breaker=breaker)
        session.engine.heal()
        assert (await submission.submit(session, body(3), breaker=breaker)).is_new


@pytest.mark.virtual_time
async def test_without_a_breaker_every_call_is_tried(monkeypatch):
    monkeypatch.setenv("ANTIPHON_BREAKER", "off")
    monkeypatch.setenv("ANTIPHON_BREAKER_FAILURES", "1")
    mesh = Mesh.open(engine="memory")
    async with mesh:
        mesh._memory._server.kill()
        for number in range(3):
            with pytest.raises(Unavailable, match=f"in {APPEND_TRIES} tries"):
                await mesh.submit("test.work", number)
        mesh._memory._server.start()
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
