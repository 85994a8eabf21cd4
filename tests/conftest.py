"""Runs `async def` tests, listens to Ctrl-C, and decides what a missing nats-server means.

Each async test gets an event loop of its own, closed afterwards, and a time limit: 240 s, or what
its `timeout` mark says. Async fixtures are not supported on purpose: a resource that needs the
loop is an async context manager, entered by the test that uses it, so that its life is visible.
"""

import asyncio
import functools
import inspect
import os
import shutil
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

ASYNC_TEST_LIMIT_S = 240.0


def listen_to_interrupts() -> None:
    """Undo what a shell does to the jobs it starts in the background: they ignore SIGINT.

    Every process that a test starts would ignore it too, and some tests send it.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if on_main_thread and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


listen_to_interrupts()


def in_its_own_loop(test: Callable[..., Awaitable[Any]], limit_s: float) -> Callable[..., Any]:
    """Wrap a coroutine function so that calling it runs it to the end, or to the limit."""

    async def bounded(*args: Any, **kwargs: Any) -> Any:
        async with asyncio.timeout(limit_s) as limit:
            result = await test(*args, **kwargs)
        if limit.expired():  # the test swallowed the cancellation that ended it
            raise TimeoutError(f"ran past its {limit_s:g} s")
        return result

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        with asyncio.Runner() as runner:
            return runner.run(bounded(*args, **kwargs))

    return run


def limit_of(item: pytest.Item) -> float:
    """The seconds an async test may take: its own `timeout` mark, or the default."""
    mark = item.get_closest_marker("timeout")
    if mark is None:
        return ASYNC_TEST_LIMIT_S
    return float(mark.args[0] if mark.args else mark.kwargs["timeout"])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine tests, plain ones and those under Hypothesis' `@given`."""
    test = pyfuncitem.obj
    given = getattr(test, "hypothesis", None)
    if given is not None and inspect.iscoroutinefunction(given.inner_test):
        given.inner_test = in_its_own_loop(given.inner_test, limit_of(pyfuncitem))
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = inspect.signature(test).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    in_its_own_loop(test, limit_of(pyfuncitem))(**arguments)
    return True


@functools.cache
def has_nats_server() -> bool:
    """Whether a server binary stands beside this Python or on PATH."""
    beside = str(Path(sys.executable).parent)
    return (
        shutil.which("nats-server", path=os.pathsep.join([beside, os.environ["PATH"]])) is not None
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a server: skip at a desk, fail in CI, so that CI cannot go green by skipping."""
    if item.get_closest_marker("nats") is None or has_nats_server():
        return
    if os.environ.get("CI"):
        pytest.fail("nats-server is missing, and CI must not skip what needs it")
    pytest.skip("nats-server is missing: scripts/setup installs it")
