"""What the environment changes for a program that opens a mesh."""

import asyncio
import sqlite3

import pytest

from antiphon import Mesh, Misconfigured, Unavailable
from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.policy.circuit_breaker import CircuitBreaker, Phase
from antiphon.errors import (
    CircuitOpen,
    EngineDenied,
    Held,
    InboxFull,
    OutcomeUnknown,
    RateLimited,
    Rejected,
)
from antiphon.runtime.caller import submission
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from antiphon.sdk.environment import read_environment
from antiphon.sdk.jobs.job_lookup import recent_jobs
from tests.patience import PATIENCE_S
from tests.runtime.timeless import in_no_time

HERE = "a" * 16
ELSEWHERE = "b" * 16
NOWHERE = "nats://127.0.0.1:1"
"""Where no engine can be."""


@pytest.fixture
def home(tmp_path):
    """A state directory whose engine is away."""
    described = MeshFile(mesh=HERE, name="gone", engine=NOWHERE)
    found = StateDirectory(tmp_path / ".antiphon")
    found.write(described, Access(user="mesh", password="secret"))
    return found


async def enter(mesh: Mesh) -> None:
    async with mesh:
        pass


@pytest.mark.req("S1")
@pytest.mark.req("S17")
async def test_a_mesh_in_memory_runs_in_the_process_and_founds_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("ANTIPHON_ENGINE", "memory")
    monkeypatch.setenv("ANTIPHON_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    mesh = Mesh.open()

    @mesh.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with mesh, mesh.worker():
        assert await (await add.submit(2, 3)).result(timeout=PATIENCE_S) == 5
    assert mesh.engine == "memory"
    assert not list(tmp_path.iterdir())


@pytest.mark.req("S17")
@pytest.mark.parametrize("how", ["home", "engine"])
async def test_a_program_that_names_its_server_is_told_that_the_mesh_is_in_memory(
    monkeypatch, home, how
):
    monkeypatch.setenv("ANTIPHON_ENGINE", "memory")
    named = Mesh.open(home=home.path) if how == "home" else Mesh.open(engine="nats")
    with pytest.raises(Misconfigured, match=r"ANTIPHON_ENGINE=memory: .* a server") as refused:
        await enter(named)
    assert refused.value.hint == "unset ANTIPHON_ENGINE"
    assert not (home.path / "keys").exists(), "not even a key was made"


@pytest.mark.processes
@pytest.mark.req("S17")
async def test_a_state_directory_of_another_mesh_than_expected_is_refused(monkeypatch, home):
    monkeypatch.setenv("ANTIPHON_ONLY_MESH", ELSEWHERE)
    with pytest.raises(Misconfigured, match=HERE):
        await enter(Mesh.open(home=home.path))
    with pytest.raises(Misconfigured, match=HERE):
        recent_jobs(home.path, limit=1)
    monkeypatch.setenv("ANTIPHON_ONLY_MESH", HERE)
    with pytest.raises(Unavailable):
        await enter(Mesh.open(home=home.path))
    monkeypatch.setenv("ANTIPHON_ONLY_MESH", ELSEWHERE)
    await enter(Mesh.open(engine="memory"))


@pytest.mark.processes
@pytest.mark.req("S17")
async def test_a_process_uses_the_key_that_it_is_named_after(monkeypatch, home):
    monkeypatch.setenv("ANTIPHON_NODE", "gpu-box")
    for mesh in (Mesh.open(home=home.path), Mesh.open(home=home.path, key="by-hand")):
        with pytest.raises(Unavailable):
            await enter(mesh)
    made = sorted(path.stem for path in home.path.glob("keys/*.key"))
    assert made == ["by-hand", "gpu-box"], "what is said in code wins"
    assert read_environment().key_for("worker") == "gpu-box-worker"

    in_use = home.key("gpu-box", SystemEntropy())
    try:
        with pytest.raises(Held) as refused:
            await enter(Mesh.open(home=home.path))
    finally:
        in_use.release()
    assert "ANTIPHON_NODE" in refused.value.hint


@pytest.mark.req("S17")
def test_engine_and_replica_can_be_elsewhere_than_the_state_directory_says(
    monkeypatch, home, tmp_path
):
    plain = Mesh.open(home=home.path).home
    assert (plain.mesh().engine, plain.replica) == (NOWHERE, home.path / "replica.db")
    monkeypatch.setenv("ANTIPHON_ENGINE", "nats://there:4222")
    monkeypatch.setenv("ANTIPHON_REPLICA", str(tmp_path / "fast" / "disk.db"))
    moved = Mesh.open(home=home.path).home
    assert (moved.mesh().engine, moved.mesh().mesh) == ("nats://there:4222", HERE)
    assert moved.replica == tmp_path / "fast" / "disk.db"
    lock = moved.lock_replica()
    try:
        monkeypatch.setenv("ANTIPHON_HOME", str(tmp_path / "other"))
        with pytest.raises(Held):
            read_environment().state_directory(tmp_path / "other").lock_replica()
    finally:
        lock.release()
    with pytest.raises(sqlite3.OperationalError):
        recent_jobs(home.path, limit=1)


# --- the breaker ------------------------------------------------------------------------------


def body(number: int) -> ScheduleBody:
    content = manifest.author({"command": ["@test.work"], "args": [f"[{number}]"], "timeout": 30})
    return ScheduleBody(kind="test.work", manifest=content)


@pytest.mark.req("S17")
def test_calls_pause_while_the_engine_is_away_and_no_longer():
    async def story(mesh):
        session = (await mesh.connection("caller")).session
        session.breaker = breaker = CircuitBreaker(failures=2, reset_s=30)
        assert (await submission.submit(session, body(0))).is_new
        mesh.server.kill()
        for number in (1, 2):
            with pytest.raises(Unavailable):
                await submission.submit(session, body(number))
        opened_ms = mesh.wall.now_ms()
        await asyncio.sleep(10)
        with pytest.raises(Unavailable, match=r"2 requests in a row; .* again in 20 s"):
            await submission.submit(session, body(3))
        assert mesh.wall.now_ms() == opened_ms + 10_000, "nobody waited for anything"
        mesh.server.start()
        assert (await submission.submit(session, body(3))).is_new
        assert breaker.phase is Phase.CLOSED

    in_no_time(story)


@pytest.mark.parametrize(
    "error, counts",
    [
        (Unavailable("away"), True),
        (OutcomeUnknown("no answer"), True),
        (EngineDenied("not yours"), False),
        (Rejected("no chain"), False),
        (Held("busy"), False),
        (InboxFull("no room"), False),
        (RateLimited("too much", retry_s=1), False),
        (asyncio.CancelledError(), False),
    ],
)
def test_only_silence_counts_against_the_engine(monkeypatch, error, counts):
    async def end_so(*_):
        raise error

    async def story(mesh):
        monkeypatch.setattr(submission, "write_one", end_so)
        session = (await mesh.connection("caller")).session
        session.breaker = breaker = CircuitBreaker(failures=3, reset_s=30)
        for _ in range(3):
            with pytest.raises(type(error)):
                await submission.submit(session, body(1))
        assert (breaker.phase is Phase.OPEN) == counts

    in_no_time(story)


@pytest.mark.req("S16")
def test_five_silences_open_it_with_a_named_error_and_after_thirty_seconds_one_probe_decides(
    monkeypatch,
):
    """What is promised while writes are not kept meanwhile: the states, and who is told what."""

    async def story(mesh):
        session = (await mesh.connection("caller")).session
        session.breaker = breaker = read_environment().make_breaker()
        tried, really_write = [], submission.write_one
        is_silent = True

        async def write(*arguments):
            tried.append(mesh.wall.now_ms())
            if is_silent:
                await asyncio.sleep(1)
                raise OutcomeUnknown("no answer")
            return await really_write(*arguments)

        monkeypatch.setattr(submission, "write_one", write)

        async def submit_in_vain() -> Unavailable:
            with pytest.raises(Unavailable) as told:
                await submission.submit(session, body(1))
            return told.value

        for _ in range(5):
            assert not isinstance(await submit_in_vain(), CircuitOpen)
        told = await submit_in_vain()
        assert isinstance(told, CircuitOpen)
        assert (told.retry_s, len(tried)) == (30, 5), "at once, and it says when the probe is due"
        assert "ANTIPHON_BREAKER=off" in told.hint
        await asyncio.sleep(30)
        probing = asyncio.ensure_future(submit_in_vain())
        await asyncio.sleep(0.5)
        assert breaker.phase is Phase.HALF_OPEN
        assert isinstance(await submit_in_vain(), CircuitOpen), "one probe, and nobody beside it"
        assert not isinstance(await probing, CircuitOpen)
        assert (breaker.phase, len(tried)) == (Phase.OPEN, 6)
        await asyncio.sleep(30)
        is_silent = False
        assert (await submission.submit(session, body(1))).is_new
        assert breaker.phase is Phase.CLOSED

    in_no_time(story)


@pytest.mark.req("S17")
def test_the_breaker_has_a_switch(monkeypatch):
    monkeypatch.setenv("ANTIPHON_BREAKER", "off")

    async def story(mesh):
        session = (await mesh.connection("caller")).session
        session.breaker = read_environment().make_breaker()
        assert session.breaker is None
        mesh.server.kill()
        for number in range(7):
            with pytest.raises(Unavailable) as told:
                await submission.submit(session, body(number))
            assert not isinstance(told.value, CircuitOpen), "every submission is tried"

    in_no_time(story)


@pytest.mark.req("S17")
async def test_a_mesh_takes_its_breaker_from_the_environment(monkeypatch):
    monkeypatch.setenv("ANTIPHON_BREAKER_FAILURES", "1")
    monkeypatch.setenv("ANTIPHON_BREAKER_RESET_S", "77")
    mesh = Mesh.open(engine="memory")
    async with mesh:
        mesh.connection.memory._server.kill()
        with pytest.raises(Unavailable, match="tries"):
            await mesh.submit("test.work")
        with pytest.raises(Unavailable, match=r"again in 7\d s"):
            await mesh.submit("test.work")
