"""Runs `async def` tests, keeps pure ones pure, and decides what a missing nats-server means.

Each async test gets an event loop of its own, closed afterwards, and a time limit: 840 s, or what
its `timeout` mark says; one that needs only this process ends after 20 s in which nothing happens.
Marked `virtual_time` it runs on a clock that jumps, which owns no socket and no thread. Async
fixtures are not supported on purpose: a resource that needs the loop is an async context manager,
entered by the test that uses it, so that its life is visible.
"""

import asyncio
import functools
import gc
import inspect
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from antiphon.testing.virtual_time import new_loop
from tests import late_answers
from tests.cpu_budgets import CpuMeter
from tests.examples import IS_FAST, IS_LONG, IS_SOAK, draw_at_leisure
from tests.left_processes import OwnedRun
from tests.side_by_side import SideBySide

ASYNC_TEST_LIMIT_S = 840
IDLE_S = 20.0
IDLE_SHARE = 0.02
"""Of a core: what timers of a mesh that has nothing to do stay below."""


def listen_to_interrupts() -> None:
    """Undo what a shell does to the jobs it starts in the background: they ignore SIGINT.

    Every process that a test starts would ignore it too, and some tests send it.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if on_main_thread and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


listen_to_interrupts()
draw_at_leisure()


@pytest.fixture(autouse=True)
def logs_as_structlog_has_them() -> Iterator[None]:
    """Tests may capture events of every level, whatever the test before them configured."""
    structlog.reset_defaults()
    structlog.configure()
    yield
    logging.getLogger("antiphon").setLevel(logging.NOTSET)


@pytest.fixture(autouse=late_answers.SEED != "")
def answers_that_come_late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scripts/check shake`: other orders of events than a quiet machine has."""
    late_answers.shake(monkeypatch, request.node.nodeid)


async def end_when_idle(limit: asyncio.Timeout) -> None:
    """End a test in which nothing has happened for `IDLE_S`.

    Processor time is what tells waiting for nothing from being slow on a busy machine.
    """
    while True:
        before_s = time.process_time()
        await asyncio.sleep(IDLE_S)
        if time.process_time() - before_s < IDLE_S * IDLE_SHARE:
            limit.reschedule(0)


def in_its_own_loop(
    test: Callable[..., Awaitable[Any]], limit_s: float, *, waits: bool = True
) -> Callable[..., Any]:
    """Wrap a coroutine function so that calling it runs it to the end, or to the limit.

    Unless it `waits` for something outside this process, it also ends when nothing happens.
    """

    async def bounded(*args: Any, **kwargs: Any) -> Any:
        async with asyncio.timeout(limit_s) as limit:
            watch = None if waits else asyncio.create_task(end_when_idle(limit))
            try:
                result = await test(*args, **kwargs)
            finally:
                if watch is not None:
                    watch.cancel()
        if limit.expired():  # the test swallowed the cancellation that ended it
            raise TimeoutError(f"ran past its {limit_s:g} s")
        return result

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        with asyncio.Runner() as runner:
            return runner.run(bounded(*args, **kwargs))

    return run


def in_virtual_time(test: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """Wrap a coroutine function so that no time passes while it sleeps."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        loop = new_loop()
        try:
            result = loop.run_until_complete(test(*args, **kwargs))
        finally:
            loop.close()
        assert loop.problems == []
        return result

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
    waits = not is_pure(pyfuncitem) or pyfuncitem.get_closest_marker("timeout") is not None
    given = getattr(test, "hypothesis", None)
    if given is not None and inspect.iscoroutinefunction(given.inner_test):
        given.inner_test = in_its_own_loop(given.inner_test, limit_of(pyfuncitem), waits=waits)
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = inspect.signature(test).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    if pyfuncitem.get_closest_marker("virtual_time"):
        in_virtual_time(test)(**arguments)
    else:
        in_its_own_loop(test, limit_of(pyfuncitem), waits=waits)(**arguments)
    return True


# --- side by side -----------------------------------------------------------------------------

WHOLE_TREE = frozenset(
    {
        "tests/core/test_one_reducer.py",
        "tests/interfaces/cli/screen/test_ascii_output.py",
        "tests/makers/test_makers.py",
        "tests/test_glossary.py",
        "tests/test_layout.py",
        "tests/test_tidy.py",
    }
)
"""Files that ask what all sources say (tests/source_tree.py): one process parses them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say how many files run at a time."""
    parser.addoption("--processes", type=int, default=1, help="run this many test files at a time")


def pytest_configure(config: pytest.Config) -> None:
    """Measure what each file of tests costs, run files side by side, leave no process behind."""
    meter = CpuMeter(config)
    config.pluginmanager.register(meter)
    processes = config.option.processes
    if processes > 1:
        config.pluginmanager.register(
            SideBySide(config, processes=processes, together=WHOLE_TREE, meter=meter)
        )
    config.pluginmanager.register(OwnedRun(), OwnedRun.NAME)


# --- pure tests -------------------------------------------------------------------------------

TESTS = Path(__file__).parent
FOLDER_MARKS = {
    "acceptance": "processes",
    "chaos": "processes",
    "sandbox": "processes",
    "simulation": "slow",
}
"""Folders, at any depth, all of whose tests have a mark."""
LONG_FOLDERS = ("chaos", "simulation")
"""Where tests may be `long`: `scripts/check long` reads no others."""
IMPURE_MARKS = ("nats", "processes", "slow", "long")
IMPURE_EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "socket.bind", "socket.connect"})
pure_item: list[pytest.Item] = []
"""The pure test that is running now."""


def is_pure(item: pytest.Item) -> bool:
    """Whether a test needs nothing but this process: what `scripts/check fast` runs."""
    return not any(item.get_closest_marker(name) for name in IMPURE_MARKS)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not even read what a part of the tests leaves out as a whole."""
    if collection_path.parent != TESTS or not collection_path.is_dir():
        return None
    if IS_LONG:
        return collection_path.name not in LONG_FOLDERS or None
    return ((IS_FAST or late_answers.SEED) and collection_path.name in FOLDER_MARKS) or None


def is_chosen(item: pytest.Item, *, is_whole: bool) -> bool:
    """Whether a test belongs to the part of all tests that runs now."""
    is_long = item.get_closest_marker("long") is not None
    if is_long and item.path.relative_to(TESTS).parts[0] not in LONG_FOLDERS:
        raise pytest.UsageError(f"{item.nodeid}: `long` is for {', '.join(LONG_FOLDERS)}")
    if IS_SOAK or item.get_closest_marker("soak"):
        return IS_SOAK
    return is_long if IS_LONG else not (is_long and is_whole)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs in another step, and mark what lies in marked folders.

    The files that take longest come first: whoever runs files side by side is then not left with a
    long one at the end. A long test whose folder is named runs; one that is for soak does not.
    """
    is_whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS
    chosen = [item for item in items if is_chosen(item, is_whole=is_whole)]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
    for item in items:
        below = item.path.parts[len(TESTS.parts) :] if item.path.is_relative_to(TESTS) else ()
        for folder in FOLDER_MARKS.keys() & set(below):
            item.add_marker(FOLDER_MARKS[folder])
    weights: dict[Path, int] = {}
    for item in items:
        weight = sum(2**at for at, mark in enumerate(IMPURE_MARKS) if item.get_closest_marker(mark))
        weights[item.path] = max(weight, weights.get(item.path, 0))
    items.sort(key=lambda item: -weights[item.path])


def keep_pure(event: str, _arguments: tuple[Any, ...]) -> None:
    """Refuse what a pure test must not do; so each test says itself what it needs."""
    if event in IMPURE_EVENTS and pure_item:
        raise RuntimeError(f"{event} in a test that is not marked: add @pytest.mark.processes")


sys.addaudithook(keep_pure)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watch a pure test from its first fixture to its last."""
    if is_pure(item):
        pure_item.append(item)
    try:
        return (yield)
    finally:
        pure_item.clear()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Tell of a failure without a garbage collection.

    CPython 3.11 loses count when a finalizer formats a traceback while another is being parsed
    (gh-106905). The SystemError would end the process, and nobody would hear which test failed.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


# --- servers ----------------------------------------------------------------------------------


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
