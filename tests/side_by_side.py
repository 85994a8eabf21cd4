"""Runs test files in several processes, each forked from the one that has read them all.

`pytest --processes 6`. Reading eleven thousand tests takes 12 s of processor: done once here, where
every worker of pytest-xdist does it again. The tests of one file run one after another in one
process; a process that has nothing to do takes the next file. One that dies fails the test that it
ran, and another takes over the rest of its file.
"""

import atexit
import ctypes
import gc
import os
import random
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis.internal.charmap import charmap

from tests.left_processes import OwnedRun

PR_SET_PDEATHSIG = 1
Indices = list[int]
"""Which of the session's tests a process runs next."""


def grouped(files: Sequence[str], together: frozenset[str]) -> Iterator[Indices]:
    """The tests of each file, in the order in which files first appear; some files are one."""
    groups: dict[str, Indices] = {}
    for index, file in enumerate(files):
        groups.setdefault("" if file in together else file, []).append(index)
    return iter(groups.values())


class Worker:
    """One forked process, as the process that reports sees it."""

    def __init__(self, work: Callable[[Connection], None], others: Sequence["Worker"]) -> None:
        self.connection, theirs = Pipe()
        self.left: deque[int] = deque()
        """What it was given and has not ended; the first is what it runs."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            for worker in (self, *others):  # so that each notices when the parent is gone
                worker.connection.close()
            _end_with_parent()
            _run_and_exit(lambda: work(theirs))
        theirs.close()

    def end(self) -> int:
        """Close its connection, on which it ends, and wait for that."""
        self.connection.close()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def _end_with_parent() -> None:
    """Also if it is killed while a test waits; elsewhere than on Linux, after that test."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _run_and_exit(work: Callable[[], None]) -> NoReturn:
    """Work and end, with what the work left to be done at exit, and nothing of the parent's."""
    atexit._clear()
    code = 1
    try:
        work()
        atexit._run_exitfuncs()
        code = 0
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # nobody wants its results any more
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 - nothing of pytest's own may run in a child's name
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Relay:
    """In a worker: sends what its tests report."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[Any, ...]) -> None:
        self._connection.send(("logstart", nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("logreport", data, None))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[Any, ...]) -> None:
        self._connection.send(("logfinish", nodeid, location))


class SideBySide:
    """Replaces the loop in which pytest runs one test after another."""

    def __init__(
        self, config: pytest.Config, *, processes: int, together: frozenset[str], meter: Any
    ) -> None:
        self._config = config
        self._processes = processes
        self._together = together
        self._meter = meter

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Give each process a file at a time until there is none left."""
        if session.testsfailed or self._config.option.collectonly or not session.items:
            return None
        files = [item.nodeid.partition("::")[0] for item in session.items]
        waiting = deque(grouped(files, self._together))
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        reporter.showfspath = False  # reports of several files come in turns
        charmap()  # once for all: Hypothesis works out what letters there are
        gc.collect()
        gc.freeze()  # what was read is never looked at again: neither here nor in a worker
        begun = min(self._processes, len(waiting))
        workers: list[Worker] = []
        try:
            for number in range(begun):
                workers.append(self._begin(session, number, workers))
            while workers:
                ready = wait([worker.connection for worker in workers])
                for worker in [one for one in workers if one.connection in ready]:
                    if self._hear(session, worker, waiting):
                        continue
                    workers.remove(worker)
                    code = worker.end()
                    if worker.left:
                        self._tell_of_its_death(session.items[worker.left.popleft()], code)
                        waiting.appendleft(list(worker.left))
                        workers.append(self._begin(session, begun, workers))
                        begun += 1
                    elif code:
                        reporter.write_line(f"a process of tests ended with exit code {code}")
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            for worker in workers:  # none, unless the run is broken off
                os.kill(worker.pid, signal.SIGTERM)
                worker.end()
        return True

    def _begin(self, session: pytest.Session, number: int, others: Sequence[Worker]) -> Worker:
        return Worker(lambda connection: self._work(session, number, connection), others)

    def _hear(self, session: pytest.Session, worker: Worker, waiting: deque[Indices]) -> bool:
        """Pass on what a worker says; whether it goes on."""
        hook = self._config.hook
        try:
            said, what, more = worker.connection.recv()
        except EOFError:
            return False
        match said:
            case "next":
                self._meter.add(what)
                while waiting and not worker.left:
                    worker.left.extend(waiting.popleft())
                worker.connection.send(list(worker.left))
            case "logstart":
                hook.pytest_runtest_logstart(nodeid=what, location=more)
            case "logfinish":
                worker.left.popleft()
                hook.pytest_runtest_logfinish(nodeid=what, location=more)
            case "logreport":
                report = hook.pytest_report_from_serializable(config=self._config, data=what)
                hook.pytest_runtest_logreport(report=report)
        return True

    def _tell_of_its_death(self, item: pytest.Item, code: int) -> None:
        """Fail the test that a process ran when it ended."""
        text = f"the process of this test ended (exit code {code}) while it ran"
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "failed", text, "call", sections=[], duration=0
        )
        self._config.hook.pytest_runtest_logreport(report=report)
        self._config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _work(self, session: pytest.Session, number: int, connection: Connection) -> None:
        """In a worker: run what it is given, until it is given nothing."""
        self._make_its_own(number)
        plugins = self._config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.getplugin(OwnedRun.NAME).leave_to_parent()
        plugins.register(Relay(self._config, connection))
        self._meter.begin_anew()
        while True:
            connection.send(("next", self._meter.begin_anew(), None))
            items = [session.items[index] for index in connection.recv()]
            if not items:
                return
            for item, following in zip(items, [*items[1:], None], strict=True):
                self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def _make_its_own(self, number: int) -> None:
        """What two processes must not share: random numbers, captured output, temporary folders."""
        random.seed()
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        folders: Any = self._config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = Path(folders.getbasetemp()) / f"process{number}"
        with suppress(FileExistsError):
            folders._basetemp.mkdir(mode=0o700)
