"""A light session on an engine that was restored from an older copy: it stops, and says so.

It reads only what it needs and remembers the rest. What it remembers is worth nothing on a log that
has other records in the same places.
"""

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest

from antiphon import assembly
from antiphon.core.families.jobs.ops import CancelBody, JobCancel
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.mesh.ops import MeshRules, RulesBody
from antiphon.engines.nats import LocalServer
from antiphon.errors import Corrupt, LogReplaced
from antiphon.runtime.caller.submission import wait_for_end
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.log import known_end, lane_reader
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.worker.worker import WorkerSettings
from tests.patience import NEVER_S, PATIENCE_S
from tests.runtime.meshes import CALM, KIND, a_mesh, call, eventually, on_both_engines


class Copies:
    """The engine of one mesh, whose store can be put back."""

    def __init__(self, mesh, server) -> None:
        self._mesh, self._server = mesh, server
        self._images = None

    async def keep(self, *sessions) -> None:
        """Put a copy of the store aside; the sessions are connected afterwards."""
        if self._server is None:
            self._images = self._mesh.memory.snapshot()
            return
        async with _reconnected(sessions):
            self._server.kill()
            shutil.copytree(self._server.store, self._server.directory / "copy")
            await self._server.start()

    async def restart(self, *sessions, older: bool = False) -> None:
        """Stop the engine and start it again, on the copy if `older`."""
        async with _reconnected(sessions):
            if self._server is None:
                self._mesh.memory.kill()
                if older:
                    self._mesh.memory.restore(self._images)
                self._mesh.memory.start()
                return
            self._server.kill()
            if older:
                shutil.rmtree(self._server.store)
                shutil.copytree(self._server.directory / "copy", self._server.store)
            await self._server.start()


@asynccontextmanager
async def _reconnected(sessions):
    """Wait at the end until each session has lost its connection and has another."""
    lines = [(one.engine, one.engine.reconnects) for one in sessions]
    yield
    await eventually(lambda: all(one.connected and one.reconnects > n for one, n in lines))


@asynccontextmanager
async def a_restorable_mesh(engine):
    if engine == "memory":
        async with a_mesh(engine) as mesh:
            yield mesh, Copies(mesh, None)
        return
    async with LocalServer() as server, a_mesh(engine) as mesh:
        mesh.server = server
        yield mesh, Copies(mesh, server)


async def set_attempts(owner, attempts: int) -> None:
    rules = type(CALM)(authority="open", attempts=attempts)
    await write_one(owner, Intent(MeshRules, RulesBody(rules=rules)))


async def grown(mesh, count: int = 8):
    """Another node that writes so much that the log is longer than it ever was; its session."""
    other = (await mesh.connection()).session
    for number in range(count):
        await call(other, 1_000 + number)
    return other


@on_both_engines
async def test_a_session_that_knows_control_which_the_log_lost_stops(engine):
    async with a_restorable_mesh(engine) as (mesh, copies):
        owner = (await mesh.connection(mesh.owner)).session
        light = (await mesh.connection()).session
        await copies.keep(owner, light)
        await set_attempts(owner, 7)
        assert (await light.sync_control()).rules.attempts == 7
        await copies.restart(light, older=True)
        await set_attempts((await mesh.connection(mesh.owner)).session, 5)
        await grown(mesh)
        with pytest.raises(Corrupt, match="restored from an older copy"):
            await light.sync_control()


@on_both_engines
@pytest.mark.parametrize("grows", [False, True], ids=["shorter", "longer"])
async def test_a_session_does_not_go_on_from_a_remembered_lane(engine, grows, monkeypatch):
    monkeypatch.setattr(lane_reader, "LONG", 1)
    monkeypatch.setattr(known_end, "LOOKS", 2)
    async with a_restorable_mesh(engine) as (mesh, copies):
        caller, light = [(await mesh.connection()).session for _ in range(2)]
        job = await call(caller, 1)
        await copies.keep(caller, light)
        lane = (await caller.read_lane(KIND, job.id)).lane
        cancel = CancelBody(kind=KIND, job=job.id, reason="one story")
        await write_one(caller, Intent(JobCancel, cancel, lane))
        view = await light.read_lane(KIND, job.id)
        assert view.lane.job.is_terminal
        await copies.restart(light, older=True)
        if grows:
            await grown(mesh)
        for _ in range(2):
            with pytest.raises(LogReplaced, match="restored from an older copy"):
                await light.read_lane(KIND, job.id)
        with pytest.raises(LogReplaced):
            await light.read_on({job_key(KIND, job.id): view.lane})


@on_both_engines
async def test_a_session_goes_on_after_a_restart_that_lost_nothing(engine, monkeypatch):
    monkeypatch.setattr(lane_reader, "LONG", 1)
    async with a_restorable_mesh(engine) as (mesh, copies):
        caller, light = [(await mesh.connection()).session for _ in range(2)]
        job = await call(caller, 1)
        await light.read_lane(KIND, job.id)
        await copies.restart(caller, light)
        lane = (await caller.read_lane(KIND, job.id)).lane
        await write_one(
            caller, Intent(JobCancel, CancelBody(kind=KIND, job=job.id, reason="enough"), lane)
        )
        assert (await light.read_lane(KIND, job.id)).lane.job.is_terminal
        await light.sync_control()


@on_both_engines
async def test_a_worker_stops_instead_of_working_on_another_log(engine):
    async def work(number: int) -> int:
        return number

    async with a_restorable_mesh(engine) as (mesh, copies):
        caller, connection = (await mesh.connection()).session, await mesh.connection()
        handlers, works = Handlers(), asyncio.Event()
        handlers.register(KIND, work)

        async def working() -> None:
            async with assembly.working(connection, handlers.executors(), WorkerSettings(slots=1)):
                works.set()
                await asyncio.sleep(NEVER_S)

        worker = asyncio.ensure_future(working())
        await works.wait()
        await copies.keep(caller, connection.session)
        job = await call(caller, 1)
        await wait_for_end(caller, KIND, job.id)
        await copies.restart(connection.session, older=True)
        await grown(mesh)
        with pytest.raises(LogReplaced):
            async with asyncio.timeout(PATIENCE_S):
                await worker
