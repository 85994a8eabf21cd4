"""Takes features out, one at a time, and runs the tests of their rows.

This is `scripts/conformance --break`. Each break has processes of its own: that of the tests
(pytest, which stops at the first failure) and those that they start. A break that no test of its
row notices is a survivor: they would stay green without the feature. What noticed one has to pass
with the feature, under the same conditions.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.breaks.replacement import Break
from tests.breaks.table import BREAKS

ROOT = Path(__file__).resolve().parent.parent.parent
PROCESS = Path(__file__).parent / "process"
TEST_S = 120
"""A test that hangs without its feature has noticed; it is ended after this time."""
LIMIT_S = 3_600.0
"""For all tests of a row."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
HANGING = re.compile(r"^(tests/.+::.+?)\s*\+{3,} Timeout \+{3,}", re.MULTILINE)
"""A test that began, and was ended by its limit."""
PASSED, FAILING, TOO_LONG = 0, 1, -1
"""Of pytest's exit codes the two that say what the tests found."""


@dataclass(frozen=True)
class Found:
    """What came of one break."""

    row: str
    taken_out: Break
    noticed_by: str
    """The first test that failed, or nothing."""
    fault: str = ""
    """Why the break itself is wrong: the tests could not even be loaded with it."""

    @property
    def is_survivor(self) -> bool:
        return not (self.noticed_by or self.fault)

    def sentence(self) -> str:
        """For people."""
        if self.fault:
            return f"{self.row}: {self.taken_out.where} cannot be taken out: {self.fault}"
        if self.noticed_by:
            return f"{self.row}: {self.taken_out.where}: noticed by {self.noticed_by}"
        return (
            f"SURVIVES {self.row}: {self.taken_out.where}: no test of the row notices that"
            f" {self.taken_out.what}"
        )


@dataclass(frozen=True)
class Ran:
    """How a run of pytest ended."""

    code: int
    said: str

    @property
    def failed(self) -> str:
        """The first test that failed; empty if none did."""
        if self.code != FAILING:
            return ""
        found = FAILED.search(self.said) or HANGING.search(self.said)
        return found[1].strip() if found else ""


async def run_tests(tests: list[str], taken_out: str = "") -> Ran:
    """Run tests until one fails, without a feature: a row and the place of a break in it."""
    paths = (str(PROCESS), str(ROOT), os.environ.get("PYTHONPATH", ""))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "TAKEN_OUT": taken_out,
    }
    # Where asserts are rewritten, pytest itself finds our modules, and the import hook never does.
    plainly = ("-x", "-v", "-rfE", "--tb=line", "--no-header", "--assert=plain")
    # By a thread, which ends the process: an exception could be swallowed by an event loop.
    limit = (f"--timeout={TEST_S}", "--timeout-method=thread")
    plugins = ("-p", "no:cacheprovider", "-p", "cheap_first", *limit)
    with tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pytest", *plainly, *plugins, *tests,
            cwd=ROOT, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = await asyncio.wait_for(process.wait(), LIMIT_S)
        except TimeoutError:
            return Ran(TOO_LONG, f"its tests took longer than {LIMIT_S:g} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with everything that the tests started
            await process.wait()
        said.seek(0)
        return Ran(code, said.read().decode(errors="replace"))


async def take_out(row: str, place: int, tests: list[str]) -> Found:
    """Run a row's tests without one of its features."""
    taken_out = BREAKS[row][place]
    without = await run_tests(tests, f"{row}/{place}")
    if without.failed:
        with_it = await run_tests([without.failed])
        if with_it.code != PASSED:
            return Found(row, taken_out, "", f"{without.failed} fails with the feature, too")
        return Found(row, taken_out, without.failed)
    if without.code == PASSED:
        return Found(row, taken_out, "")
    return Found(row, taken_out, "", f"pytest ended with {without.code}: {without.said[-2000:]}")


async def take_out_all(places: Mapping[str, Collection[str]], at_once: int) -> list[Found]:
    """Take out every feature of these rows, a few at a time; each is told as it is known."""
    slots = asyncio.Semaphore(at_once)

    async def one(row: str, place: int) -> Found:
        async with slots:
            found = await take_out(row, place, sorted(places[row]))
            print(found.sentence(), file=sys.stderr, flush=True)
            return found

    wanted = [(row, place) for row in places for place in range(len(BREAKS.get(row, ())))]
    return await asyncio.gather(*(one(row, place) for row, place in wanted))


def figures(found: Collection[Found]) -> dict[str, Any]:
    """The closing line."""
    return {
        "rows": len({each.row for each in found}),
        "broken": len(found),
        "survivors": sum(each.is_survivor for each in found),
        "faults": sum(bool(each.fault) for each in found),
    }
