"""The loop thread: how a blocking call runs, fails, is interrupted and ends."""

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import asynccontextmanager

import pytest

from antiphon.errors import Misconfigured
from antiphon.sdk.blocking import loop_thread
from antiphon.sdk.blocking.loop_thread import OpenContext, entered, iterate, run
from tests.patience import NEVER_S, PATIENCE_S

REQUEST = contextvars.ContextVar("request", default="none")


async def where() -> tuple[int, str]:
    return threading.get_ident(), REQUEST.get()


def test_all_calls_of_a_process_run_on_one_thread_with_the_callers_context():
    token = REQUEST.set("42")
    try:
        first = run(where())
    finally:
        REQUEST.reset(token)
    assert first == (run(where())[0], "42")
    assert run(where())[1] == "none"
    assert first[0] != threading.get_ident()


def test_an_error_keeps_its_type_and_message_and_shows_where_it_was_raised():
    async def fail():
        raise LookupError("no luck")

    with pytest.raises(LookupError, match=r"^no luck$") as raised:
        run(fail())
    assert raised.traceback[-1].name == "fail"


def test_an_interrupt_returns_at_once_and_cancels_what_was_waited_for():
    cancelled = threading.Event()

    async def wait():
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(NEVER_S)
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        run(wait())
    assert cancelled.wait(PATIENCE_S)
    assert run(where())


def test_a_call_from_the_loops_own_thread_says_what_to_do():
    async def call():
        run(where())

    with pytest.raises(Misconfigured, match="inside the event loop") as refused:
        run(call())
    assert "plain 'def'" in refused.value.hint


def test_inside_another_loop_it_works_and_warns_once(monkeypatch):
    monkeypatch.setattr(loop_thread._process, "has_warned", False)

    async def cell():
        with pytest.warns(RuntimeWarning, match="use Mesh and await"):
            run(where())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return run(where())

    assert asyncio.run(cell())


def test_a_context_is_entered_and_left_by_one_task():
    tasks = []

    @asynccontextmanager
    async def manager():
        tasks.append(asyncio.current_task())
        yield "value"
        tasks.append(asyncio.current_task())

    with entered(manager()) as opened:
        assert opened.value == "value"
        assert opened.is_open
    assert tasks[0] is tasks[1]
    assert not opened.is_open
    opened.close()


def test_what_entering_raises_is_raised_and_what_fails_meanwhile_at_the_end():
    @asynccontextmanager
    async def broken():
        raise LookupError("cannot be entered")
        yield

    @asynccontextmanager
    async def failing():
        async with asyncio.TaskGroup() as tasks:

            async def fail():
                raise LookupError("failed meanwhile")

            tasks.create_task(fail())
            yield

    with pytest.raises(LookupError, match="cannot be entered"):
        OpenContext(broken()).open()
    with pytest.raises(ExceptionGroup) as failed, entered(failing()):
        pass
    assert str(failed.value.exceptions[0]) == "failed meanwhile"


def test_an_interrupted_entering_is_undone():
    undone = threading.Event()

    @asynccontextmanager
    async def slow():
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(NEVER_S)
            yield
        finally:
            undone.set()

    with pytest.raises(KeyboardInterrupt):
        OpenContext(slow()).open()
    assert undone.wait(PATIENCE_S)


def test_an_async_iterator_is_a_plain_one():
    async def numbers():
        for number in range(3):
            yield number

    assert list(iterate(numbers())) == [0, 1, 2]


PROGRAM = """
import asyncio, sys
from contextlib import asynccontextmanager
from antiphon.sdk.blocking.loop_thread import OpenContext

@asynccontextmanager
async def manager():
    try:
        yield
    finally:
        await asyncio.sleep(float(sys.argv[1]))
        print("closed", flush=True)

opened = OpenContext(manager())
opened.open()
"""


@pytest.mark.processes
@pytest.mark.parametrize("takes_s, out", [(0.0, "closed\n"), (NEVER_S, "")])
def test_a_program_that_ends_closes_what_is_open_but_does_not_wait_for_ever(takes_s, out):
    words = [sys.executable, "-c", PROGRAM, str(takes_s)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert (done.stdout, done.stderr) == (out, "")
