"""`bench lifecycle`: jobs per second through Antiphon and through the bare engine, in turn.

Each round founds a fresh mesh on a fresh server (R1, `sync_interval: always`), lays the same
number of schedules on the log, lets worker processes drain them, and reads the time from the
engine's own stamps: from the first claim to the last completion. Rounds alternate, so that both
sides meet the same machine; the ratio is the median of the rounds' ratios.

Claim latency is measured apart, with a load well below the limit: from the schedule's commit
stamp to the claim's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from antiphon import assembly
from antiphon.assembly import hosted_mesh
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.record import subjects
from antiphon.ports import Record
from antiphon.runtime.executors.handlers import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from bench.measurement.report import conclude, median, percentile, say, spread
from bench.signed_log import KIND

SLOTS = 384
"""Jobs in flight per worker process, ours and bare: enough to keep the engine's disk busy."""
SUBMIT_WINDOW = 256
LATENCY_RATE_PER_S = 100

RULES = Rules(authority="open")


def schedule(session: Session, number: int) -> Draft:
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    return session.draft(JobSchedule, ScheduleBody(kind=KIND, manifest=content), prev=0)


async def submit(session: Session, first: int, count: int) -> None:
    window = asyncio.Semaphore(SUBMIT_WINDOW)

    async def one(number: int) -> None:
        async with window:
            await session.commit(schedule(session, number))

    for start in range(first, first + count, 4096):
        numbers = range(start, min(start + 4096, first + count))
        await asyncio.gather(*(one(number) for number in numbers))


Sizes = tuple[int, int]
"""Bytes of a claim and of a completion."""
ANY_SIZE: Sizes = (0, 0)


async def start_worker(
    mode: str, home: StateDirectory, jobs: int, name: str, sizes: Sizes = ANY_SIZE
) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.lifecycle.worker",
        mode,
        *("--home", str(home.path), "--slots", str(SLOTS), "--jobs", str(jobs), "--name", name),
        *("--sizes", *map(str, sizes)),
        stdout=PIPE,
    )


async def wait_for(process: Process, word: str, timeout_s: float) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(timeout_s):
        while line := (await process.stdout.readline()).decode():
            if line.startswith(word):
                return
    raise SystemExit(f"a worker ended before it said {word!r}")


async def job_records(session: Session) -> list[Record]:
    """Every record, in order."""
    found: list[Record] = []
    after = 0
    while True:
        page = await session.log.read(after, limit=1000)
        found += page.records
        if not page.records:
            return found
        after = page.records[-1].seq


@asynccontextmanager
async def fresh_mesh() -> AsyncIterator[tuple[StateDirectory, Session]]:
    """A mesh of its own on a server of its own, and a caller on it."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        home = StateDirectory(Path(place))
        async with hosted_mesh.development_server(home) as server:
            await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
            async with assembly.join(home, "client") as connection:
                await connection.session.sync_control()
                yield home, connection.session


async def end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


async def drain(mode: str, jobs: int, workers: int, sizes: Sizes) -> tuple[float, Sizes]:
    """Jobs per second of one round, and what its records weighed; `sizes` is for the bare side."""
    async with fresh_mesh() as (home, session), AsyncExitStack() as stack:
        await submit(session, 0, jobs)
        for number in range(workers):
            wanted = jobs if workers == 1 else 10**9
            process = await start_worker(mode, home, wanted, f"{mode}{number}-", sizes)
            stack.push_async_callback(end, process)
        async with asyncio.timeout(600):
            while ((newest := await session.log.last()) is None) or newest.seq < 1 + 3 * jobs:
                await asyncio.sleep(0.1)
        about_jobs = f"{subjects.root(session.mesh)}.job."
        found = [one for one in await job_records(session) if one.subject.startswith(about_jobs)]
        stamps = [one.stamp_ns for one in found]
        weights = [len(one.payload) for one in found]
        return jobs / ((max(stamps) - min(stamps)) / 1e9), (min(weights), max(weights))


async def claim_latency(jobs: int) -> tuple[list[float], list[float]]:
    """Milliseconds from schedule to claim by the engine's stamps, and of each schedule's append.

    At a gentle rate; the second is what the engine itself takes for one write meanwhile.
    """
    async with fresh_mesh() as (home, session), AsyncExitStack() as stack:
        process = await start_worker("ours", home, jobs, "latency-")
        stack.push_async_callback(end, process)
        await wait_for(process, "ready", 30)
        writes: list[float] = []
        for number in range(jobs):
            draft = schedule(session, number)
            begun = time.perf_counter()
            await session.commit(draft)
            writes.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(1 / LATENCY_RATE_PER_S)
        await wait_for(process, "done", 60)
        called: dict[str, int] = {}
        waits: list[float] = []
        for record in await job_records(session):
            job_id = record.subject[-64:]
            if ".call." in record.subject:
                called[job_id] = record.stamp_ns
            elif ".job." in record.subject and job_id in called:
                waits.append((record.stamp_ns - called.pop(job_id)) / 1e6)
        return waits, writes


async def run(jobs: int, rounds: int, workers: int, latency_jobs: int) -> int:
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    sizes = ANY_SIZE
    for number in range(rounds):
        # The side that goes first changes from round to round. Ours begins: the bare side then
        # writes records of the same size.
        for mode in ("ours", "bare") if number % 2 == 0 else ("bare", "ours"):
            rate, weights = await drain(mode, jobs, workers, sizes)
            rates[mode].append(rate)
            sizes = weights if mode == "ours" else sizes
        say(
            f"round {number + 1}: ours {rates['ours'][-1]:,.0f} jobs/s,"
            f" bare {rates['bare'][-1]:,.0f} jobs/s"
        )
    ratios = [a / b for a, b in zip(rates["ours"], rates["bare"], strict=True)]
    waits, writes = await claim_latency(latency_jobs)
    say(f"ours {spread(rates['ours'])}, bare {spread(rates['bare'])} jobs/s")
    conclude(
        ours_per_s=round(median(rates["ours"])),
        bare_per_s=round(median(rates["bare"])),
        ratio=round(median(ratios), 3),
        ratio_spread=[round(min(ratios), 3), round(max(ratios), 3)],
        claim_p50_ms=round(percentile(waits, 0.5), 2),
        claim_p99_ms=round(percentile(waits, 0.99), 2),
        append_p50_ms=round(percentile(writes, 0.5), 2),
        append_p99_ms=round(percentile(writes, 0.99), 2),
        workers=workers,
        replicas=1,
        sync="always",
        record_bytes=list(sizes),
        jobs=jobs,
        rounds=rounds,
    )
    return 0 if median(ratios) >= 0.7 else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench lifecycle")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    if args.quick:
        return asyncio.run(run(3_000, 3, args.workers, 200))
    return asyncio.run(run(args.jobs, args.rounds, args.workers, 1_000))
