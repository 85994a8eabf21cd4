"""Handlers in processes of their own: what comes back, what they see, and how they end."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from antiphon.core.families.jobs.ops import Failure
from antiphon.core.families.jobs.state import State
from antiphon.core.manifest import author
from antiphon.core.proof import statement
from antiphon.errors import Misconfigured
from antiphon.runtime.caller import submission
from antiphon.runtime.executors import process_child
from antiphon.runtime.executors.executor import Assignment
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.executors.handlers import HandlerOptions, Handlers
from antiphon.runtime.executors.run_services import WithoutWorker
from tests.runtime import spawned
from tests.runtime.meshes import KIND, a_mesh, call, eventually, on_both_engines_in_real_time

pytestmark = pytest.mark.processes

OWN = HandlerOptions(run_in="process")


class Heard(WithoutWorker):
    def __init__(self) -> None:
        super().__init__()
        self.notes = []

    def progress(self, done, note=""):
        self.notes.append((done, note))


def executors_of(function, how=OWN):
    handlers = Handlers()
    handlers.register(KIND, function, how)
    return handlers.executors()


async def run(function, *args, how=OWN, heard=None, executors=None, timeout_s=30):
    """Run a function as a worker would; what it says of the run."""
    own = executors or executors_of(function, how)
    content = author({"command": [f"@{KIND}"], "args": [call_text(args, {})], "timeout": timeout_s})
    assignment = Assignment(
        kind=KIND,
        job_id="0" * 64,
        fence="f" * 16,
        attempt=2,
        manifest=content,
        run=heard or Heard(),
    )
    try:
        return await own.find(KIND, content).run(assignment)
    finally:
        if executors is None:
            await own.close()


def value_of(ran):
    import json

    return json.loads(ran.outputs[0].text)


async def test_a_function_runs_in_another_process_and_its_result_comes_back():
    heard = Heard()
    ran = await run(spawned.add, 2, 3, heard=heard)
    assert value_of(ran) == 5
    assert ran.isolation == statement.Isolation(level="process")
    assert heard.gauge.now().max_rss_kb > 0
    assert value_of(await run(spawned.slowly, 7)) == 7, "coroutine functions, too"


async def test_a_handler_knows_its_job_and_is_heard():
    heard = Heard()
    assert value_of(await run(spawned.about, heard=heard)) == [KIND, 2, "f" * 16]
    assert heard.notes == [(0.5, "half")]


async def test_a_child_is_used_again_and_ended_with_the_worker():
    executors = executors_of(spawned.whoami)
    pids = {value_of(await run(spawned.whoami, executors=executors))[0] for _ in range(3)}
    assert len(pids) == 1
    both = await asyncio.gather(*(run(spawned.whoami, executors=executors) for _ in range(2)))
    assert len({value_of(ran)[0] for ran in both}) == 2, "one job at a time each"
    await executors.close()
    assert not any(is_alive(pid) for pid in pids)


async def test_failures_come_back_by_name_with_their_lineage():
    ran = await run(spawned.missing_file)
    assert (ran.failure.name, ran.failure.message) == ("FileNotFoundError", "no such file")
    assert "OSError" in ran.fault.lineage
    assert not ran.fault.is_final
    assert (await run(spawned.hopeless)).fault.is_final
    assert (await run(spawned.leave)).failure.name == "SystemExit"


async def test_a_process_that_dies_is_a_failure_that_says_so():
    ran = await run(spawned.crash)
    assert ran.failure.name == "ProcessDied"
    assert "SIGSEGV" in ran.failure.message
    assert ran.isolation.level == "process"


async def test_a_process_whose_worker_died_before_it_began_runs_nothing():
    """It would go on without a lease: its socket has the call already."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            process_child.__name__,
            str(theirs.fileno()),
            "1",  # which is not this process
            pass_fds=(theirs.fileno(),),
        )
        assert await child.wait() == 1


async def test_a_process_that_takes_too_long_is_ended(tmp_path):
    notes = tmp_path / "family"
    for timeout_s in (2, 60):  # a slow machine may need more than two to come that far
        ran = await run(spawned.endless, str(notes), timeout_s=timeout_s)
        message = f"took longer than {timeout_s} s"
        assert ran.failure == Failure(name="TimeoutError", message=message)
        if notes.exists():
            break
    pids = [int(word) for word in notes.read_text().split()]
    assert len(pids) == 4
    await eventually(lambda: not any(map(is_alive, pids)))


async def test_a_process_sees_nothing_of_the_workers_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("ANTIPHON_ENGINE_TOKEN", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("DATABASE_URL", "wanted")
    with (tmp_path / "key").open("w") as key:
        os.set_inheritable(key.fileno(), False)
        seen = value_of(await run(spawned.environment))
        assert "secret" not in seen.values()
        assert not {"ANTIPHON_ENGINE_TOKEN", "DATABASE_URL"} & set(seen)
        assert str(tmp_path / "key") not in value_of(await run(spawned.open_files))
    asked = HandlerOptions(run_in="process", env=("DATABASE_URL",))
    assert value_of(await run(spawned.environment, how=asked))["DATABASE_URL"] == "wanted"


@pytest.mark.parametrize(
    "function, how, words",
    [
        (lambda: None, OWN, "cannot be imported by name"),
        (
            spawned.add,
            HandlerOptions(run_in="process", env=("ANTIPHON_HOME",)),
            "for the worker alone",
        ),
        (spawned.add, HandlerOptions(run_in="loop"), "cannot run in a loop"),
        (spawned.slowly, HandlerOptions(run_in="thread"), "cannot run in a thread"),
        (spawned.add, HandlerOptions(run_in="moon"), "cannot run in a moon"),
        (spawned.add, HandlerOptions(env=("HOME",)), "whole environment"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_registered(function, how, words):
    with pytest.raises(Misconfigured, match=words):
        Handlers().register(KIND, function, how)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def family_in(notes: Path) -> list[int]:
    await eventually(lambda: notes.exists() and len(notes.read_text().split()) == 4)
    pids = [int(word) for word in notes.read_text().split()]
    assert all(map(is_alive, pids))
    return pids


async def test_a_cancelled_run_takes_everything_that_it_started_with_it(tmp_path):
    notes = tmp_path / "family"
    running = asyncio.ensure_future(run(spawned.endless, str(notes)))
    pids = await family_in(notes)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: not any(map(is_alive, pids)))


@on_both_engines_in_real_time
async def test_cancelling_a_job_on_the_mesh_ends_its_processes(engine, tmp_path):
    notes = tmp_path / "family"
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        worker = await mesh.worker(spawned.endless, how=OWN)
        called = await call(caller, str(notes))
        pids = await family_in(notes)
        await asyncio.sleep(1.1)  # from here on its lane is followed
        job = await submission.cancel(caller, KIND, called.id, reason="enough")
        assert job.state is State.ABORTED
        await eventually(lambda: not any(map(is_alive, pids)))
        await eventually(lambda: worker.busy == 0)
