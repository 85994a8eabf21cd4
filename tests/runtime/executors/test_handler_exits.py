"""A task cannot end its worker: whatever it raises is its own job's failure."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import structlog

from antiphon import CallOptions, JobContext, JobFailed, Mesh
from antiphon.testing.tested_mesh import TestedMesh
from tests.patience import PATIENCE_S
from tests.runtime import spawned

ONCE = CallOptions(attempts=1)


class Unusual(BaseException):
    """Of the kind that frameworks use to get past `except Exception`."""


def leaves(code: object = "usage: bad") -> None:
    sys.exit(code)


async def leaves_soon() -> None:
    await asyncio.sleep(0)
    leaves()


async def plain() -> None:
    leaves()


async def in_loop(ctx: JobContext) -> None:
    leaves()


def in_thread() -> None:
    leaves()


async def stream() -> AsyncIterator[int]:
    yield 1
    leaves()


async def step(ctx: JobContext) -> None:
    await ctx.step("leave", leaves_soon)


async def plain_step(ctx: JobContext) -> None:
    await ctx.step("leave", leaves)


def step_in_thread(ctx: JobContext) -> None:
    ctx.step("leave", leaves).wait()


async def gathers() -> None:
    await asyncio.gather(leaves_soon(), asyncio.sleep(600))


async def waits() -> None:
    await asyncio.wait_for(leaves_soon(), 600)


async def from_another_thread() -> None:
    await asyncio.to_thread(leaves)


EXITS = [
    plain,
    in_loop,
    in_thread,
    stream,
    step,
    plain_step,
    step_in_thread,
    gathers,
    waits,
    from_another_thread,
]


async def failed_with(mesh: Mesh, kind: str) -> JobFailed:
    with pytest.raises(JobFailed) as failed:
        await (await mesh.submit(kind, options=ONCE)).result(timeout=PATIENCE_S)
    assert await (await mesh.submit("exits.next")).result(timeout=PATIENCE_S) == "still here"
    return failed.value


def a_mesh(function, **options) -> Mesh:
    mesh = Mesh.open(engine="memory")
    mesh.task("exits.now", **options)(function)

    @mesh.task("exits.next")
    async def still_here() -> str:
        return "still here"

    return mesh


@pytest.mark.parametrize("function", EXITS, ids=lambda one: one.__name__)
async def test_a_task_that_calls_sys_exit_fails_its_job_and_its_worker_goes_on(function):
    mesh = a_mesh(function)
    with structlog.testing.capture_logs() as logged:
        async with mesh, mesh.worker():
            failed = await failed_with(mesh, "exits.now")
    assert (failed.error_type, failed.error_message) == ("SystemExit", "usage: bad")
    assert "sys.exit" in failed.hint
    assert "leaves" in failed.traceback
    told = [one for one in logged if one.get("problem")]
    assert [(one["kind"], one["job"], one["problem"]) for one in told] == [
        ("exits.now", failed.job_id, "SystemExit: usage: bad")
    ]


@pytest.mark.processes
async def test_a_process_that_calls_sys_exit_fails_its_job_with_the_same_words():
    mesh = a_mesh(spawned.leave, run_in="process")
    with structlog.testing.capture_logs() as logged:
        async with mesh, mesh.worker():
            failed = await failed_with(mesh, "exits.now")
    assert "SystemExit: 3" in str(failed)
    assert "sys.exit" in failed.hint
    assert [one["job"] for one in logged if one.get("problem")] == [failed.job_id]


@pytest.mark.processes
async def test_a_process_that_ends_at_once_fails_its_job_and_its_worker_goes_on():
    mesh = a_mesh(spawned.vanish, run_in="process")
    async with mesh, mesh.worker():
        failed = await failed_with(mesh, "exits.now")
    assert "ProcessDied: the handler's process exited with code 0" in str(failed)


@pytest.mark.parametrize("code, said", [(0, "0"), (None, "0"), (2, "2"), ("bad", "bad")])
async def test_also_an_exit_without_an_error_is_a_failure(code, said):
    async def now() -> None:
        sys.exit(code)

    mesh = a_mesh(now)
    async with mesh, mesh.worker():
        assert f"SystemExit: {said}" in str(await failed_with(mesh, "exits.now"))


def interrupts() -> None:
    raise KeyboardInterrupt


async def interrupts_in_loop() -> None:
    raise KeyboardInterrupt


def unusual() -> None:
    raise Unusual("past except Exception")


async def unusual_in_loop() -> None:
    raise Unusual("past except Exception")


async def unusual_group(ctx: JobContext) -> None:
    raise BaseExceptionGroup("some", [Unusual("past except Exception"), ValueError("and this")])


async def closes() -> None:
    raise GeneratorExit


def used_up() -> None:
    next(iter(()))


async def used_up_step(ctx: JobContext) -> None:
    await ctx.step("take", used_up)


def cancels_in_thread() -> None:
    raise asyncio.CancelledError


async def cancels() -> None:
    raise asyncio.CancelledError("by its own code")


async def awaits_what_is_cancelled(ctx: JobContext) -> None:
    sleeping = asyncio.ensure_future(asyncio.sleep(600))
    await asyncio.sleep(0)
    sleeping.cancel()
    await sleeping


async def cancels_itself(ctx: JobContext) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(600)


@pytest.mark.parametrize(
    "function, error",
    [
        (interrupts, "KeyboardInterrupt"),
        (interrupts_in_loop, "KeyboardInterrupt"),
        (unusual, "Unusual"),
        (unusual_in_loop, "Unusual"),
        (unusual_group, "BaseExceptionGroup"),
        (closes, "GeneratorExit"),
        (used_up, "RuntimeError"),
        (used_up_step, "RuntimeError"),
        (cancels_in_thread, "CancelledError"),
        (cancels, "CancelledError"),
        (awaits_what_is_cancelled, "CancelledError"),
        (cancels_itself, "CancelledError"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
async def test_whatever_a_task_raises_is_its_jobs_failure(function, error):
    mesh = a_mesh(function)
    async with mesh, mesh.worker():
        failed = await failed_with(mesh, "exits.now")
    assert failed.error_type == error
    assert failed.error_message, "it says something, also where the error has no text"


async def test_a_hook_that_calls_sys_exit_fails_the_job():
    mesh = a_mesh(plain)

    async def hook(assignment, call_next):
        if assignment.kind == "exits.now":
            sys.exit("in a hook")
        return await call_next(assignment)

    mesh.use(hook)
    async with mesh, mesh.worker():
        assert "SystemExit: in a hook" in str(await failed_with(mesh, "exits.now"))


async def test_the_tasks_of_a_program_itself_are_left_as_they_are():
    """Only what a handler starts is watched, and only while a worker runs."""
    mesh = a_mesh(plain)
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    async with mesh, mesh.worker(), mesh.worker():
        own = asyncio.ensure_future(asyncio.sleep(0, "mine"))
        assert asyncio.iscoroutine(own.get_coro())
        assert own.get_coro().__class__.__name__ == "coroutine"
        assert await own == "mine"
    assert loop.get_task_factory() is before


def test_in_the_fixture_of_a_test_it_is_the_jobs_failure_too():
    for function in (plain, in_thread, gathers, interrupts, unusual):
        mesh = TestedMesh()
        task = mesh.task("exits.now", attempts=1)(function)
        try:
            with pytest.raises(JobFailed, match=r"SystemExit|KeyboardInterrupt|Unusual"):
                mesh.call(task)
        finally:
            mesh.close()


# --- signals --------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, signal, sys
from antiphon import Mesh

mesh = Mesh.open(engine="memory")

@mesh.task("exits.spin")
async def spin() -> None:
    print("spinning", flush=True)
    while True:
        pass

async def main():
    {before}
    async with mesh, mesh.worker():
        await (await mesh.submit("exits.spin")).result()

{run}
"""
RUN = "asyncio.run(main())"
BY_HAND = "asyncio.new_event_loop().run_until_complete(main())"
ON_TERM = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"


def ended_by(process: subprocess.Popen[str], number: signal.Signals, pause_s: float) -> int:
    """Its exit code; the signal is sent again after each pause."""
    until_s = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until_s:
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause_s)
    return process.wait(0)


@pytest.mark.processes
@pytest.mark.parametrize(
    "before, run, number, pause_s, code",
    [
        # The first Ctrl-C cancels the main task, which a blocked loop never notices.
        ("", RUN, signal.SIGINT, 0.5, -signal.SIGINT),
        ("", BY_HAND, signal.SIGINT, PATIENCE_S, -signal.SIGINT),
        (ON_TERM, RUN, signal.SIGTERM, PATIENCE_S, 7),
    ],
    ids=["asyncio.run", "a loop by hand", "a handler of SIGTERM"],
)
def test_a_signal_ends_a_program_while_a_handler_blocks_its_loop(
    tmp_path, before, run, number, pause_s, code
):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(before=before or "pass", run=run))
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}  # noqa: PTH109 - as text
    process = subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "spinning\n"
            assert ended_by(process, number, pause_s) == code
        finally:
            process.kill()
