"""A worker that is told to stop: what can finish does, the rest is given back at once."""

import asyncio
import threading

import pytest

from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.worker.runs import run_work
from tests.runtime import spawned
from tests.runtime.executors.test_process_pool import is_alive
from tests.runtime.meshes import (
    KIND,
    OFFERED,
    a_mesh,
    call,
    eventually,
    on_both_engines,
    on_both_engines_in_real_time,
)


@on_both_engines
@pytest.mark.req("M22", "G10")
async def test_fifty_jobs_are_finished_or_given_back_and_nobody_waits_for_a_lease(engine):
    async def sleeping(number: int) -> int:
        await asyncio.sleep(0.3 if number % 2 else 600)
        return number

    async def quick(number: int) -> int:
        return number

    async with a_mesh(engine, OFFERED) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        first = await mesh.worker(sleeping, slots=50, drain_s=1.0)
        calls = [await call(caller, number) for number in range(50)]
        await eventually(lambda: first.busy + first.done == 50)
        first.drain()
        await mesh.worker(quick, slots=8)
        for called in calls:
            ended = await submission.wait_for_end(caller, KIND, called.id)
            assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 0)
        await eventually(lambda: node.replica.sizes.by_state() == {"succeeded": 50})
        jobs = [node.replica.ask(ReplicaJobs).job(KIND, called.id) for called in calls]
        assert {job.yields for job in jobs} == {0, 1}
        assert first.busy == 0


@on_both_engines
async def test_a_handler_that_swallows_its_end_keeps_neither_its_job_nor_its_worker(
    engine, monkeypatch
):
    monkeypatch.setattr(run_work, "STUBBORN_S", 0.3)
    over = asyncio.Event()

    async def stubborn() -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    async with a_mesh(engine, OFFERED) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        worker = await mesh.worker(stubborn, drain_s=0.1)
        called = await call(caller)
        await eventually(lambda: worker.busy)
        worker.drain()
        await eventually(lambda: node.replica.ask(ReplicaJobs).job(KIND, called.id).yields == 1)
        await eventually(lambda: worker.busy == 0)
        over.set()


@pytest.mark.processes
@on_both_engines_in_real_time
async def test_threads_and_processes_are_given_back_too(engine, tmp_path):
    let_go = threading.Event()
    async with a_mesh(engine, OFFERED) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        notes = tmp_path / "pid"
        threaded = await mesh.worker(lambda: let_go.wait(60), kind="test.thread", drain_s=0.1)
        spawning = await mesh.worker(
            spawned.stubborn, kind="test.process", drain_s=0.1, how=HandlerOptions(run_in="process")
        )
        in_thread = await call(caller, kind="test.thread")
        in_process = await call(caller, str(notes), kind="test.process")
        await eventually(lambda: threaded.busy and notes.exists() and notes.read_text())
        threaded.drain()
        spawning.drain()
        for called in (in_thread, in_process):
            job = await eventually(
                lambda called=called: (
                    (job := node.replica.ask(ReplicaJobs).job(called.kind, called.id))
                    and job.yields
                    and job
                ),
            )
            assert job.attempts == 0
        await eventually(lambda: not is_alive(int(notes.read_text())))
        let_go.set()


@on_both_engines
async def test_a_worker_that_comes_back_under_the_same_key_begins_clean(engine):
    async def endless() -> None:
        await asyncio.sleep(600)

    async def quick() -> str:
        return "done"

    async with a_mesh(engine, OFFERED) as mesh:
        key = SeedKeyring(mesh.entropy.token(32))
        caller = (await mesh.connection()).session
        first = await mesh.worker(endless, drain_s=0.1, connection=await mesh.connection(key))
        called = await call(caller)
        await eventually(lambda: first.busy)
        first.drain()
        await eventually(lambda: first.busy == 0)
        await mesh.worker(quick, connection=await mesh.connection(key))
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert ended.job.outcome == "succeeded"
