"""Takes features out, one at a time, and runs the tests of their rows.

This is `scripts/conformance --break`. Each break has processes of its own: that of the tests
(pytest, which stops at the first failure) and those that they start. A break that no test of its
row notices is a survivor: they would stay green without the feature. What noticed one has to pass
with the feature, under the same conditions.
"""

import asyncio
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.breaks.replacement import Break
from tests.breaks.table import BREAKS
from tests.pytest_process import PASSED, Ran, environment, limit, run_pytest

PROCESS = Path(__file__).parent / "process"
TEST_S = 120
"""A test that hangs without its feature has noticed; it is ended after this time."""
LIMIT_S = 3_600.0
"""For all tests of a row."""


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


async def run_tests(tests: list[str], taken_out: str = "") -> Ran:
    """Run tests until one fails, without a feature: a row and the place of a break in it."""
    arguments = ("-x", "-p", "cheap_first", *limit(TEST_S), *tests)
    env = environment(PROCESS, {"TAKEN_OUT": taken_out})
    return await run_pytest(arguments, env, limit_s=LIMIT_S)


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
