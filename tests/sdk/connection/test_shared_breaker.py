"""One breaker for everything that a process asks of its engine (S16)."""

import pytest

from antiphon import CircuitOpen, Mesh
from antiphon.errors import Unavailable
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory

pytestmark = pytest.mark.req("S16")
NOWHERE = "nats://127.0.0.1:1"
SOMEBODY = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK/main"

ASKED = {
    "submit": lambda mesh: mesh.submit("test.work", 1),
    "submit_many": lambda mesh: mesh.submit_many([mesh.bind("test.work", 1)]),
    "lock": lambda mesh: mesh.lock("report").take(),
    "lock now": lambda mesh: mesh.locks.try_take("report"),
    "break": lambda mesh: mesh.locks.break_hold("report"),
    "adopt": lambda mesh: mesh.locks.adopt("report"),
    "document": lambda mesh: mesh.memory["notes"].put("plan", 1),
    "message": lambda mesh: mesh.messages.send(SOMEBODY, "hello"),
    "message by alias": lambda mesh: mesh.messages.send("somebody", "hello"),
    "ack": lambda mesh: mesh.messages.ack("0" * 32),
}


@pytest.mark.virtual_time
@pytest.mark.parametrize("asked", ASKED)
async def test_what_one_part_found_out_about_the_engine_all_others_are_told_at_once(
    asked, monkeypatch
):
    monkeypatch.setenv("ANTIPHON_BREAKER_FAILURES", "2")
    mesh = Mesh.open(engine="memory")
    async with mesh:
        await mesh.submit("test.work", 0)
        mesh.connection.memory._server.kill()
        for _ in range(2):
            with pytest.raises(Unavailable):
                await mesh.memory["notes"].put("plan", 1)
        with pytest.raises(CircuitOpen, match="2 requests in a row") as told:
            await ASKED[asked](mesh)
        assert told.value.retry_s == pytest.approx(30, abs=1)
        mesh.connection.memory._server.start()
        await mesh.submit("test.work", 2)


@pytest.mark.virtual_time
@pytest.mark.parametrize("asked", ["submit", "lock now", "document", "message"])
async def test_silence_towards_any_part_opens_it(asked, monkeypatch):
    monkeypatch.setenv("ANTIPHON_BREAKER_FAILURES", "1")
    mesh = Mesh.open(engine="memory")
    async with mesh:
        mesh.connection.memory._server.kill()
        with pytest.raises(Unavailable) as told:
            await ASKED[asked](mesh)
        assert not isinstance(told.value, CircuitOpen)
        with pytest.raises(CircuitOpen):
            await mesh.submit("test.work", 1)


@pytest.mark.processes
async def test_a_program_that_cannot_connect_is_told_so_at_once_after_some_tries(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("ANTIPHON_BREAKER_FAILURES", "2")
    home = StateDirectory(tmp_path)
    home.write(
        MeshFile(mesh="a" * 16, name="there", engine=NOWHERE), Access(user="u", password="p")
    )
    mesh = Mesh.open(home=tmp_path)
    for _ in range(2):
        with pytest.raises(Unavailable) as told:
            await mesh.__aenter__()
        assert not isinstance(told.value, CircuitOpen)
    with pytest.raises(CircuitOpen, match="2 requests in a row"):
        await mesh.__aenter__()
