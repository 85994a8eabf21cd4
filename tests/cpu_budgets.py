"""How much processor time each folder of tests may take in CI, and the meter that holds it to that.

Every change waits for the whole run, so a folder that grows unnoticed is everybody's loss. What is
counted is user and system time of the tests and of all processes they start. Machines differ: a
short loop is timed beside the tests, and on a machine where it takes longer than on the one that
the table was measured on, budgets grow alike.
"""

import os
import statistics
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from antiphon.processes import procfs
from tests.examples import IS_FAST, IS_LONG, IS_SOAK

TESTS = Path(__file__).parent
LOOSE = "*.py"
"""The tests that lie in no folder."""
BUDGETS = {
    "acceptance": 260,
    "assembly": 24,
    "bench": 35,
    "browser": 30,
    "chaos": 50,
    "core": 90,
    "engines": 70,
    "families": 14,
    "guard": 12,
    "interfaces": 62,
    "makers": 16,
    "processes": 2,
    "runtime": 200,
    "sandbox": 10,
    "scenarios": 16,
    "sdk": 54,
    "simulation": 70,
    "testing": 8,
    "typing": 24,
    LOOSE: 40,
}
"""Seconds: about twice what each took beside little other work. Beside much of it the same tests
took up to 1.9 times as long, of which the loop shows only a part. So a folder that doubles is
noticed; a run on a quiet machine would allow less."""
LONG_BUDGETS = {"chaos": 320, "simulation": 240}
"""Of `scripts/check long`."""
LOOP_S = 0.0045
"""What `count_up` takes at best on the machine of that measurement."""


def count_up() -> float:
    """Processor seconds of a little work that needs memory, as tests do."""
    began = time.thread_time()
    made = {str(number): [number] for number in range(10_000)}
    sum(made[str(number * 7919 % 10_000)][0] for number in range(10_000))
    return time.thread_time() - began


def spent_s() -> float:
    """Processor seconds of this process and of every process below it, up to now."""
    total_s = 0.0
    for pid in (os.getpid(), *procfs.descendants(os.getpid())):
        with suppress(OSError, ValueError, IndexError):
            total_s += procfs.cpu_s(pid)
    return total_s


def folder_of(path: Path) -> str:
    """The folder of the table that a test file lies in."""
    below = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else (LOOSE,)
    return below[0] if len(below) > 1 else LOOSE


def over_budget(
    spent: Mapping[str, float], loops_s: list[float], budgets: Mapping[str, float] = BUDGETS
) -> list[str]:
    """A sentence about each folder that took too much."""
    slower = max(statistics.median(loops_s or [LOOP_S]) / LOOP_S, 1.0)
    return [
        f"tests/{folder} took {seconds:.0f} s of processor, its budget is"
        f" {budgets.get(folder, 0) * slower:.0f} ({budgets.get(folder, 0):.0f} on a machine that is"
        f" {slower:.1f} times as fast): `pytest --durations=20 tests/{folder}` shows what is slow."
        " CONTRIBUTING.md says how tests stay cheap; if it has to cost more, raise the budget in"
        " tests/cpu_budgets.py and say why."
        for folder, seconds in sorted(spent.items())
        if seconds > budgets.get(folder, 0) * slower
    ]


class Measured(NamedTuple):
    """What a process of a run took, and all processes together."""

    files: Counter[str]
    """Processor seconds by test file."""
    loops_s: list[float]
    collection_s: float = 0.0
    """Processor seconds until the first test: what was imported, and every file that was read."""

    def folders(self) -> Counter[str]:
        """Processor seconds by the folders of the table."""
        folders: Counter[str] = Counter()
        for file, spent in self.files.items():
            folders[folder_of(TESTS / file)] += spent
        return folders


class CpuMeter:
    """Adds up what each file took, in all processes of a run, and judges a whole run in CI."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.measured = Measured(Counter(), [])
        self._before_s = 0.0

    def pytest_collection_finish(self) -> None:
        """What was spent so far belongs to no test."""
        self._before_s = spent_s()
        self.measured = self.measured._replace(collection_s=self._before_s)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, Any, Any]:
        """Take the time when the next test belongs elsewhere."""
        result = yield
        if nextitem is None or nextitem.path != item.path:
            now_s = spent_s()
            # Less than before: a process that was orphaned and ended is in no sum any more.
            file = os.path.relpath(item.path, TESTS)
            self.measured.files[file] += max(now_s - self._before_s, 0.0)
            if nextitem is None or folder_of(nextitem.path) != folder_of(item.path):
                self.measured.loops_s.append(count_up())
            self._before_s = spent_s()
        return result

    def begin_anew(self) -> Measured:
        """In a process of some of the tests: what those took that ran since the call before."""
        measured, self.measured = self.measured, Measured(Counter(), [])
        self._before_s = spent_s()
        return measured

    def add(self, other: Measured) -> None:
        """Take over what such a process measured."""
        self.measured.files.update(other.files)
        self.measured.loops_s.extend(other.loops_s)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that took too much."""
        if self._faults() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what a whole run took, and with `--durations` which files took most of any run."""
        is_asked = self._config.option.durations is not None
        if not self.measured.files or not (is_asked or self._is_whole()):
            return
        folders = self.measured.folders()
        took = ", ".join(f"{folder} {spent:.0f}" for folder, spent in folders.most_common())
        terminalreporter.section("processor seconds")
        loop_ms = statistics.median(self.measured.loops_s) * 1000
        terminalreporter.line(
            f"{folders.total():.0f} s, and a loop of {LOOP_S * 1000:.1f} ms took {loop_ms:.1f}:"
            f" {took}; reading the tests: {self.measured.collection_s:.0f}"
        )
        for file, spent in self.measured.files.most_common(self._config.option.durations or 0):
            terminalreporter.line(f"{spent:7.2f} {file}")
        for fault in self._faults():
            terminalreporter.line(f"OVER BUDGET: {fault}", red=True)

    def _faults(self) -> list[str]:
        if not os.environ.get("CI") or not self._is_whole():
            return []
        budgets = LONG_BUDGETS if IS_LONG else BUDGETS
        return over_budget(self.measured.folders(), self.measured.loops_s, budgets)

    def _is_whole(self) -> bool:
        """Whether every test of a step ran, at the size of CI."""
        chosen = self._config.option.keyword or self._config.option.markexpr
        is_all = self._config.args_source == pytest.Config.ArgsSource.TESTPATHS or IS_LONG
        return is_all and not (chosen or IS_FAST or IS_SOAK)
