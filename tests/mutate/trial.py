"""Runs tests with mutants, and says which of them noticed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.mutate.mutants import Mutant, Tree
from tests.mutate.nearest import FAR, Nearness
from tests.mutate.overlay import MUTANT
from tests.mutate.survey import Survey, survey
from tests.mutate.warm import Warm
from tests.pytest_process import NONE_RUN, PASSED, TOO_LONG, Ran, limit

Pool = asyncio.Queue[Warm]
"""Those processes that run nothing now."""

PURE = "not nats and not processes and not slow"
OTHERS = "(nats or processes) and not slow"
FAST = {"ANTIPHON_TESTS_FAST": "1"}
NEAREST = 6
"""How many files are asked first, before anything is known of them."""
NEAREST_S = 90.0
FIRST_S, FIRST_FILES = 4.0, 4
"""What is run first of the tests that reach a mutant."""
MOST_S = 60.0
"""What is run of all of them, by the time they take without it."""
PATIENT_S, SLOWER = 20.0, 6.0
"""A test hangs that takes six times as long as without the mutant, and 20 s."""
AGAIN_S = 600.0
LIMITS = len(limit(PATIENT_S))
"""How many arguments say how long a test may take; they come first."""


@dataclass(frozen=True)
class Trial:
    """What came of one mutant."""

    mutant: Mutant
    noticed_by: str
    """The test that failed, or nothing."""

    def sentence(self) -> str:
        """For people."""
        if self.noticed_by:
            return f"{self.mutant.sentence()}: noticed by {self.noticed_by}"
        return f"not noticed so far: {self.mutant.sentence()}"


class Trials:
    """Tries mutants against the pure tests, and those that survive against the others."""

    def __init__(self, tree: Tree, jobs: int) -> None:
        self._tree = tree
        self._jobs = jobs
        self._near = Nearness(tree)

    async def run(self, mutants: Sequence[Mutant], *, is_quick: bool = False) -> list[Trial]:
        """One trial for each mutant, in their order; a quick one asks the nearest tests alone."""
        async with self._warm() as warm:
            rounds = [await _all(warm, mutants, self._try_nearest_pure)]
            left = _survivors(rounds[-1])
            rounds.append(await _all(warm, left, self._try_nearest_others))
            if not is_quick:
                for marks, more in ((PURE, FAST), (OTHERS, {})):
                    left = _survivors(rounds[-1])
                    rounds.append(await self._round(warm, left, marks, more))
        last = {trial.mutant: trial for trials in rounds for trial in trials}
        return [last[mutant] for mutant in mutants]

    async def _round(
        self, warm: Pool, mutants: Sequence[Mutant], marks: str, more: dict[str, str]
    ) -> list[Trial]:
        """Try them against the tests that reach them, of all that are near one of them."""
        if not mutants:
            return []
        files = sorted({file for mutant in mutants for file in self._near.of(mutant.path)})
        _say(f"{len(mutants)} are left; {len(files)} files of tests without mutants ({marks})")
        known = await survey(self._tree, mutants, ("-m", marks, *files), more, self._jobs)
        _say(f"{len(known.seconds)} tests passed, in {sum(known.seconds.values()):.0f} s")
        return await _all(warm, mutants, lambda one, each: self._try(one, each, known, more))

    async def _try_nearest_pure(self, warm: Warm, mutant: Mutant) -> Trial:
        files = self._near.ordered(mutant)
        return await self._try_files(warm, mutant, files, PURE, FAST)

    async def _try_nearest_others(self, warm: Warm, mutant: Mutant) -> Trial:
        files = [file for file in self._near.ordered(mutant) if self._near.has_others(file)]
        return await self._try_files(warm, mutant, files, OTHERS, {})

    async def _try_files(
        self, warm: Warm, mutant: Mutant, files: Sequence[str], marks: str, more: dict[str, str]
    ) -> Trial:
        """Try it against the first files, whatever they reach."""
        if not files:
            return Trial(mutant, "")
        arguments = (*limit(PATIENT_S), "-m", marks, *files[:NEAREST])
        ran = await warm.run(arguments, {**more, **self._mutated(mutant)}, NEAREST_S)
        if ran.code in {PASSED, NONE_RUN, TOO_LONG}:
            return Trial(mutant, "")
        return await self._confirmed(warm, mutant, ran, arguments, more)

    @asynccontextmanager
    async def _warm(self) -> AsyncIterator[Pool]:
        modules = self._near.modules_of_others()
        some = [await Warm.start(self._tree.root, modules) for _ in range(self._jobs)]
        pool: Pool = asyncio.Queue()
        for one in some:
            pool.put_nowait(one)
        try:
            yield pool
        finally:
            for one in some:
                await one.stop()

    def _mutated(self, mutant: Mutant) -> dict[str, str]:
        module, file = self._tree.module(mutant.path), str(self._tree.root / mutant.path)
        return {MUTANT: json.dumps([module, file, mutant.key])}

    async def _try(self, warm: Warm, mutant: Mutant, known: Survey, more: dict[str, str]) -> Trial:
        for tests in _portions(self._asked(mutant, known), known):
            seconds = [known.seconds[test] for test in tests]
            arguments = (*limit(PATIENT_S + SLOWER * max(seconds)), *tests)
            limit_s = 3 * PATIENT_S + SLOWER * sum(seconds)
            ran = await warm.run(arguments, {**more, **self._mutated(mutant)}, limit_s)
            if ran.code != PASSED:
                trial = await self._confirmed(warm, mutant, ran, arguments, more)
                if trial.noticed_by:
                    return trial
        return Trial(mutant, "")

    async def _confirmed(
        self, warm: Warm, mutant: Mutant, ran: Ran, arguments: Sequence[str], more: dict[str, str]
    ) -> Trial:
        """It is noticed if what failed passes without it, and fails again with it.

        On a busy machine a test may take longer than it is given, with the mutant or without.
        """
        again = [*arguments[:LIMITS], ran.failed] if ran.failed else list(arguments)
        without = await warm.run(again, more, AGAIN_S)
        once_more = await warm.run(again, {**more, **self._mutated(mutant)}, AGAIN_S)
        noticed = ran.failed or f"pytest, which ended with {ran.code}"
        is_noticed = without.code == PASSED and once_more.code != PASSED
        return Trial(mutant, noticed if is_noticed else "")

    def _asked(self, mutant: Mutant, known: Survey) -> list[str]:
        """The tests that reach it; if it is run by an import, those that are near."""
        near = self._near.of(mutant.path)
        reaching: Iterable[str] = known.reached.get(mutant.name, ())
        if not reaching:
            reaching = (test for test in known.seconds if _file(test) in near)
        return sorted(
            reaching, key=lambda test: (near.get(_file(test), FAR), known.seconds[test], test)
        )


def _file(test: str) -> str:
    return test.partition("::")[0]


def _portions(tests: Sequence[str], known: Survey) -> Iterator[list[str]]:
    """A few that are near and quick, then the others as far as there is time."""
    first: list[str] = []
    files: set[str] = set()
    total_s = 0.0
    for test in tests:
        files.add(_file(test))
        total_s += known.seconds[test]
        if first and (len(files) > FIRST_FILES or total_s > FIRST_S):
            break
        first.append(test)
    if first:
        yield first
    rest: list[str] = []
    for test in tests[len(first) :]:
        total_s += known.seconds[test]
        if total_s > MOST_S:
            break
        rest.append(test)
    if rest:
        yield rest


async def _all(
    pool: Pool, mutants: Sequence[Mutant], attempt: Callable[[Warm, Mutant], Awaitable[Trial]]
) -> list[Trial]:
    """Try each, as many at a time as there are processes."""

    async def each(mutant: Mutant) -> Trial:
        warm = await pool.get()
        try:
            trial = await attempt(warm, mutant)
        finally:
            pool.put_nowait(warm)
        _say(trial.sentence())
        return trial

    return await asyncio.gather(*(each(mutant) for mutant in mutants))


def _survivors(trials: Sequence[Trial]) -> list[Mutant]:
    return [trial.mutant for trial in trials if not trial.noticed_by]


def _say(sentence: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {sentence}", file=sys.stderr, flush=True)


def cores() -> int:
    """How many mutants are tried at a time."""
    return os.cpu_count() or 1
