"""`bench load`: the highest steady rate at which jobs start soon, and what happens at twice that.

Jobs are submitted at fixed times, whether or not earlier ones have started, and a wait counts from
the time at which a job should have been submitted. So a mesh that falls behind cannot hide it. The
rate rises until 99 of 100 jobs no longer start within 50 ms. The last rate before that is held for
longer, or if it cannot be, the next lower one; then twice of it runs, and then half of it: a mesh
that was overloaded should be as quick as before once it has worked off what waits.

Bare records on the same engine, to a bare consumer in the worker's process, are measured likewise.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.errors import AntiphonError
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from bench.load.arrivals import Arrivals, Course
from bench.measurement import growth_charts
from bench.measurement.process_usage import cpu_s, resident_mb
from bench.measurement.report import conclude, say
from bench.meshes.idle_worker import LatencySetup, idle_worker, publish_bare
from bench.meshes.timed_worker import KIND, boot_ns

LIMIT_MS: Final = 50.0
LATE: Final = 0.01
"""The share of jobs that may start later."""
RATES: Final = tuple(round(50 * 1.25**step) for step in range(24))
STEP_S: Final = 10.0
HELD_S: Final = 600.0
TWICE_S: Final = 30.0
MOST_IN_FLIGHT: Final = 4_096
"""Submits that have not been acknowledged: beyond that a caller waits, and so do its jobs."""
DRAINED_WITHIN_S: Final = 600.0
STEADY: Final = 2
"""A rate has failed when it does so this often: one pause of the machine is no limit of ours."""
LOOKS: Final = 150
"""At the most, in the course of a run."""
READ_S: Final = 0.2


class Run(Struct, frozen=True, kw_only=True):
    """One rate for some time."""

    per_s: float
    sent: int
    refused: int
    is_whole: bool
    """Whether it ran to its end: one that is certain to fail may be broken off."""
    p50_ms: float
    p99_ms: float
    most_waiting: int
    drained_s: float
    """From the last submit to the last start."""

    @property
    def is_held(self) -> bool:
        return self.is_whole and self.p99_ms <= LIMIT_MS and not self.refused


class Load:
    """Sends jobs or bare records to one worker at a rate."""

    def __init__(self, setup: LatencySetup, word: str) -> None:
        """`word` is what the worker writes when one arrives: `start` or `bare`."""
        self._setup, self._word = setup, word
        self._sent = self._refused = self._most = 0
        self.arrivals = Arrivals(setup.times, word)

    async def _send(self, number: int, at_ns: int) -> None:
        name = str(number) if self._word == "start" else f"{number:064d}"
        self.arrivals.expect(name, at_ns)
        try:
            if self._word == "start":
                await self._job(number)
            else:
                await publish_bare(self._setup.session, name)
        except AntiphonError:
            self._refused += 1
            self.arrivals.refused(name)

    async def _job(self, number: int) -> None:
        content = manifest.author(
            {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
        )
        await submission.submit(self._setup.session, ScheduleBody(kind=KIND, manifest=content))

    async def run(self, per_s: float, seconds: float, *, must_hold: bool = False) -> Run:
        """So many a second, each at its time; broken off if it must hold and cannot any more."""
        count, first = round(per_s * seconds), self._sent
        self._refused = self._most = 0
        self.arrivals.begin()
        in_flight = asyncio.Semaphore(MOST_IN_FLIGHT)
        begun_ns = boot_ns()

        async def one(number: int, at_ns: int) -> None:
            try:
                await self._send(number, at_ns)
            finally:
                in_flight.release()

        async with _beside(self._read_on()), asyncio.TaskGroup() as tasks:
            for step in range(count):
                at_ns = begun_ns + round(step * 1e9 / per_s)
                await asyncio.sleep(max((at_ns - boot_ns()) / 1e9, 0))
                if must_hold and self._late() > LATE * count:
                    break
                await in_flight.acquire()
                tasks.create_task(one(first + step, at_ns))
                self._sent += 1
        ended_s = time.monotonic()
        await self._drained()
        waits, sent = self.arrivals.waits, self._sent - first
        found = Run(
            per_s=per_s,
            sent=sent - self._refused,
            refused=self._refused,
            is_whole=sent == count,
            p50_ms=waits.percentile(0.5),
            p99_ms=waits.percentile(1 - LATE),
            most_waiting=self._most,
            drained_s=round(time.monotonic() - ended_s, 1),
        )
        say(f"{self._word}: {found}")
        return found

    def _late(self) -> int:
        return self.arrivals.waits.later_than(LIMIT_MS)

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(READ_S)
            self.arrivals.read()
            self._most = max(self._most, self.arrivals.waiting)

    async def _drained(self) -> None:
        async with asyncio.timeout(DRAINED_WITHIN_S):
            while True:
                self.arrivals.read()
                if not self.arrivals.waiting:
                    return
                await asyncio.sleep(READ_S)

    async def highest(self, step_s: float) -> float:
        """The last of the rates that is held; 0 if none is."""
        held = 0.0
        for per_s in RATES:
            for _ in range(STEADY):
                if (await self.run(per_s, step_s, must_hold=True)).is_held:
                    held = per_s
                    break
            else:
                break
        return held

    async def hold(self, per_s: float, seconds: float) -> Run:
        """That rate for so long, or the highest below it that holds; the lowest in any case."""
        for rate in sorted((one for one in RATES if RATES[0] < one <= per_s), reverse=True):
            found = await self.run(rate, seconds, must_hold=True)
            if found.is_held:
                return found
        return await self.run(RATES[0], seconds)


class Watch:
    """Looks at waits and memory from time to time."""

    def __init__(self, setup: LatencySetup, arrivals: Arrivals, every_s: float) -> None:
        self._setup, self._arrivals, self._every_s = setup, arrivals, every_s
        self._begun_s = time.monotonic()
        self.course = Course([], [], [], [], [], [])
        self.phases: list[tuple[float, str]] = []

    def phase(self, words: str) -> None:
        """Something else begins now."""
        self.phases.append((round(time.monotonic() - self._begun_s, 1), words))

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            self._arrivals.read()
            recent, course = self._arrivals.recent(), self.course
            course.at_s.append(round(time.monotonic() - self._begun_s, 1))
            course.waiting.append(self._arrivals.waiting)
            course.p50_ms.append(recent.percentile(0.5))
            course.p99_ms.append(recent.percentile(1 - LATE))
            course.worker_mb.append(round(resident_mb(self._setup.worker.pid), 1))
            course.server_mb.append(round(self._setup.server_mb(), 1))


@asynccontextmanager
async def _beside(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(replicas: int, held_s: float, *, is_quick: bool) -> dict[str, object]:
    """Find the rate, hold it, double it, and come back."""
    step_s, held_s, twice_s = (1.0, 2.0, 2.0) if is_quick else (STEP_S, held_s, TWICE_S)
    async with idle_worker(replicas=replicas) as setup:
        pid = setup.worker.pid
        bare_per_s = await Load(setup, "bare").highest(step_s)
        jobs = Load(setup, "start")
        highest = await jobs.highest(step_s)
        empty_mb, own_mb = setup.server_mb(), resident_mb(os.getpid())
        steady = await jobs.hold(highest, held_s)
        own_mb = resident_mb(os.getpid()) - own_mb
        # The rate is known: once more for the course of things, with what comes after it.
        watch = Watch(setup, jobs.arrivals, max(1.0 if not is_quick else 0.2, 4 * twice_s / LOOKS))
        async with _beside(watch.run()):
            watch.phase(f"{steady.per_s:,.0f}/s")
            used_s, began_s = (cpu_s(pid), setup.server_cpu_s()), time.monotonic()
            await jobs.run(steady.per_s, twice_s)
            took_s = time.monotonic() - began_s
            cores = [(cpu_s(pid) - used_s[0]) / took_s, (setup.server_cpu_s() - used_s[1]) / took_s]
            before_mb, before_server_mb = resident_mb(pid), setup.server_mb()
            watch.phase("twice")
            twice = await jobs.run(2 * steady.per_s, twice_s)
            twice_mb, server_mb = resident_mb(pid) - before_mb, setup.server_mb()
            watch.phase("half")
            after = await jobs.run(steady.per_s / 2, twice_s)
    return {
        "held_per_s": steady.per_s if steady.is_held else 0,
        "highest_per_s": highest,
        "bare_held_per_s": bare_per_s,
        "ratio": round(steady.per_s / bare_per_s, 3) if bare_per_s else None,
        "held_s": held_s,
        "held_p50_ms": steady.p50_ms,
        "held_p99_ms": steady.p99_ms,
        "worker_cores": round(cores[0], 2),
        "server_cores": round(cores[1], 2),
        "server_mb": [round(one, 1) for one in (empty_mb, before_server_mb, server_mb)],
        "bench_mb": round(own_mb, 1),
        "twice_p50_ms": twice.p50_ms,
        "twice_p99_ms": twice.p99_ms,
        "twice_refused": twice.refused,
        "twice_waiting": twice.most_waiting,
        "twice_mb": round(twice_mb, 1),
        "drained_s": twice.drained_s,
        "after_p99_ms": after.p99_ms,
        "is_back": after.is_held,
        "replicas": replicas,
        "phases": watch.phases,
        "course": msgspec.to_builtins(watch.course),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench load")
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=1)
    parser.add_argument("--seconds", type=float, default=HELD_S, help="to hold the rate")
    parser.add_argument("--plot", type=Path, help="a folder to draw it in, as SVG")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    found = asyncio.run(measure(args.replicas, args.seconds, is_quick=args.quick))
    if args.plot is not None:
        (args.plot / f"load-{args.replicas}.svg").write_text(growth_charts.load(found))
    conclude(**found)
    return 0 if found["is_back"] or args.quick else 1
