"""How a command runs: its event loop, and how signals stop it.

The first SIGINT or SIGTERM asks for a graceful stop, the second ends the process at once. A
handler that blocks a thread must not keep a worker alive after its drain: threads that are still
busy when everything else has ended are abandoned.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.terminal import err
from antiphon.telemetry import LEVELS

T = TypeVar("T")
THREADS: Final = 64
"""Plain functions that can run at the same time."""
LAST_CHANCE_S: Final = 0.5
REPEATED_S: Final = 5.0
"""The same message is printed once within this time."""
COLLECTED_AFTER: Final = (20_000, 20, 10)
"""Objects until the collector looks for cycles among the youngest, and how many such looks until it
looks at older ones. By Python's own setting it takes an eighth of a busy worker's time."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one command to its end, on uvloop where it is installed."""
    ours, notices = logging.getLogger("antiphon"), Notices()
    ours.addHandler(notices)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(work)
    finally:
        ours.removeHandler(notices)


class Notices(logging.Handler):
    """Prints warnings while a command runs, such as that the engine is unreachable.

    Every connection of a process logs such a warning; it is printed once.
    """

    def __init__(self) -> None:
        wanted = LEVELS.get(os.environ.get("ANTIPHON_LOG_LEVEL", "").lower(), logging.WARNING)
        super().__init__(max(wanted, logging.WARNING))
        self._last = ("", -REPEATED_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Print it above the progress line, if there is one."""
        text, now = record.getMessage(), time.monotonic()
        if text == self._last[0] and now - self._last[1] < REPEATED_S:
            return
        self._last = (text, now)
        err.erase()
        err.hanging([("! ", "running")], [(text, "")])


async def serving(serve: Callable[[Stop], Coroutine[Any, Any, int]]) -> int:
    """Run what keeps running until it is told to stop."""
    threads: list[threading.Thread] = []
    pool = ThreadPoolExecutor(
        THREADS,
        thread_name_prefix="handler",
        initializer=lambda: threads.append(threading.current_thread()),
    )
    asyncio.get_running_loop().set_default_executor(pool)
    with Stop() as stop:
        code = await serve(stop)
    _leave_threads(pool, threads, code)
    return code


def _leave_threads(pool: ThreadPoolExecutor, threads: list[threading.Thread], code: int) -> None:
    """End the process now if the interpreter would wait for a handler's thread."""
    pool.shutdown(wait=False, cancel_futures=True)
    deadline = time.monotonic() + LAST_CHANCE_S
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    if any(thread.is_alive() for thread in threads):
        end_now(code)


def end_now(code: int) -> None:
    """Exit without waiting for anything."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Stop:
    """Waits for the signal to stop. A second signal ends the process at once."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.last_acts: list[Callable[[], None]] = []
        """What an immediate exit still does, such as ending a child process."""
        self.on_asked: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signal)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    def _signal(self) -> None:
        if not self._asked.is_set():
            self._asked.set()
            self.on_asked()
            return
        for act in self.last_acts:
            act()
        end_now(Exit.INTERRUPTED)

    async def wait(self) -> None:
        """Return once the process is asked to stop. What it serves with has been loaded by now."""
        collect_less_often()
        await self._asked.wait()


def collect_less_often() -> None:
    """Have garbage collected seldom, and never what is loaded now.

    Only for processes that are ours alone: how often a user's own program collects is not ours to
    decide.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
