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
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path

from antiphon import assembly
from antiphon.core import manifest, ops, subjects
from antiphon.core.rules import Rules
from antiphon.runtime.author import Draft
from antiphon.runtime.handlers import call_text
from antiphon.runtime.home import Home
from antiphon.runtime.peer import Peer
from bench.lives import KIND
from bench.report import conclude, median, percentile, say, spread

SLOTS = 128
SUBMIT_WINDOW = 256
LATENCY_RATE_PER_S = 100


def schedule(peer: Peer, number: int) -> Draft:
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    return peer.author.draft(ops.JobSchedule, ops.ScheduleBody(kind=KIND, manifest=content), prev=0)


async def submit(peer: Peer, first: int, count: int) -> None:
    window = asyncio.Semaphore(SUBMIT_WINDOW)

    async def one(number: int) -> None:
        async with window:
            await peer.commit(schedule(peer, number))

    for start in range(first, first + count, 4096):
        numbers = range(start, min(start + 4096, first + count))
        await asyncio.gather(*(one(number) for number in numbers))


async def start_worker(mode: str, home: Home, jobs: int, name: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.drainer",
        mode,
        *("--home", str(home.path), "--slots", str(SLOTS), "--jobs", str(jobs), "--name", name),
        stdout=PIPE,
    )


async def wait_for(process: Process, word: str, timeout_s: float) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(timeout_s):
        while line := (await process.stdout.readline()).decode():
            if line.startswith(word):
                return
    raise SystemExit(f"a worker ended before it said {word!r}")


async def job_records(peer: Peer) -> list[tuple[str, int]]:
    """(subject, stamp in ns) of every record about jobs, in order."""
    found, after = [], 0
    while True:
        page = await peer.log.read(after, limit=1000)
        found += [(record.subject, record.stamp_ns) for record in page.records]
        if not page.records:
            return found
        after = page.records[-1].seq


async def drain(mode: str, jobs: int, workers: int) -> float:
    """Jobs per second of one round."""
    async with AsyncExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-bench-"))
        home = Home(Path(place))
        server = await stack.enter_async_context(assembly.development_server(home))
        await assembly.found_on(home, server, name="bench", rules=Rules(authority="open"))
        station = await stack.enter_async_context(assembly.join(home, "client"))
        await station.peer.sync_control()
        await submit(station.peer, 0, jobs)
        processes = [
            await start_worker(mode, home, jobs if workers == 1 else 10**9, f"{mode}{number}-")
            for number in range(workers)
        ]
        try:
            expected = 1 + 3 * jobs
            async with asyncio.timeout(600):
                while ((newest := await station.peer.log.last()) is None) or newest.seq < expected:
                    await asyncio.sleep(0.1)
        finally:
            for process in processes:
                if process.returncode is None:
                    process.terminate()
                await process.wait()
        job_subjects = f"{subjects.root(station.peer.mesh)}.job."
        stamps = [
            at for name, at in await job_records(station.peer) if name.startswith(job_subjects)
        ]
        return jobs / ((max(stamps) - min(stamps)) / 1e9)


async def claim_latency(jobs: int) -> list[float]:
    """Milliseconds from schedule to claim, by the engine's stamps, at a gentle rate."""
    async with AsyncExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-bench-"))
        home = Home(Path(place))
        server = await stack.enter_async_context(assembly.development_server(home))
        await assembly.found_on(home, server, name="bench", rules=Rules(authority="open"))
        station = await stack.enter_async_context(assembly.join(home, "client"))
        await station.peer.sync_control()
        process = await start_worker("ours", home, jobs, "latency-")
        try:
            await wait_for(process, "ready", 30)
            for number in range(jobs):
                await station.peer.commit(schedule(station.peer, number))
                await asyncio.sleep(1 / LATENCY_RATE_PER_S)
            await wait_for(process, "done", 60)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
        called: dict[str, int] = {}
        waits: list[float] = []
        for subject, stamp_ns in await job_records(station.peer):
            job = subject[-64:]
            if ".call." in subject:
                called[job] = stamp_ns
            elif ".job." in subject and job in called:
                waits.append((stamp_ns - called.pop(job)) / 1e6)
        return waits


async def run(jobs: int, rounds: int, workers: int, latency_jobs: int) -> int:
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(rounds):
        # The side that goes first changes from round to round.
        for mode in ("ours", "bare") if number % 2 == 0 else ("bare", "ours"):
            rates[mode].append(await drain(mode, jobs, workers))
        say(
            f"round {number + 1}: ours {rates['ours'][-1]:,.0f} jobs/s,"
            f" bare {rates['bare'][-1]:,.0f} jobs/s"
        )
    ratios = [a / b for a, b in zip(rates["ours"], rates["bare"], strict=True)]
    waits = await claim_latency(latency_jobs)
    say(f"ours {spread(rates['ours'])}, bare {spread(rates['bare'])} jobs/s")
    conclude(
        ours_per_s=round(median(rates["ours"])),
        bare_per_s=round(median(rates["bare"])),
        ratio=round(median(ratios), 3),
        ratio_spread=[round(min(ratios), 3), round(max(ratios), 3)],
        claim_p50_ms=round(percentile(waits, 0.5), 2),
        claim_p99_ms=round(percentile(waits, 0.99), 2),
        workers=workers,
        replicas=1,
        sync="always",
        jobs=jobs,
        rounds=rounds,
    )
    return 0 if median(ratios) >= 0.7 else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench lifecycle")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    if args.quick:
        return asyncio.run(run(1_500, 3, args.workers, 200))
    return asyncio.run(run(args.jobs, args.rounds, args.workers, 1_000))
