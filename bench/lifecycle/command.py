"""`bench lifecycle`: jobs per second through Antiphon and through the bare engine, in turn.

Each round founds a fresh mesh on a fresh server (R1, `sync_interval: always`), and one side does
its part there. Rounds alternate, so that both sides meet the same machine; the ratio is the median
of the rounds' ratios. What is measured is the mode:

- `drain`: the schedules are on the log, and worker processes drain them. The time is the engine's
  own, from the first claim to the last completion.
- `submit`: one caller lays the schedules on the log; from the first of them to the last.
- `both`: the workers are there while the caller submits; from the first schedule to the last
  completion.

Beside the rate each round has the processor time per job of the worker processes, of the server
and of the caller, which depends far less on what else the machine does.

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
from typing import Literal

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly import hosted_mesh
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.record import subjects
from antiphon.ports import Record
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.executors.handlers import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from bench.measurement.process_usage import cpu_s
from bench.measurement.report import conclude, median, percentile, say, spread
from bench.signed_log import KIND

SLOTS = 384
"""Jobs in flight per worker process, ours and bare: enough to keep the engine's disk busy."""
SUBMIT_WINDOW = 256
LATENCY_RATE_PER_S = 100
WANTED_RATIO = 0.7

RULES = Rules(authority="open")


Sizes = tuple[int, int]
"""Bytes of a claim and of a completion."""
ANY_SIZE: Sizes = (0, 0)
Mode = Literal["submit", "drain", "both"]


class Round(Struct, frozen=True):
    """One round of one side."""

    per_s: float
    worker_cpu_ms: float
    """Per job, as all three."""
    server_cpu_ms: float
    caller_cpu_ms: float
    sizes: Sizes
    """Of its records: the smallest and the largest of a claim and a completion."""


def job_body(number: int) -> ScheduleBody:
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    return ScheduleBody(kind=KIND, manifest=content)


def schedule(session: Session, number: int) -> Draft:
    return session.draft(JobSchedule, job_body(number), prev=0)


async def append_all(session: Session, drafts: list[Draft]) -> None:
    """The bare side's way to submit: what is signed already is written, and nothing is read."""
    window = asyncio.Semaphore(SUBMIT_WINDOW)

    async def one(draft: Draft) -> None:
        async with window:
            await session.log.append(
                draft.subject, draft.payload, message_id=draft.op_id, expected_last=0
            )

    for start in range(0, len(drafts), 4096):
        await asyncio.gather(*map(one, drafts[start : start + 4096]))


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


async def wait_for(process: Process, word: str, timeout_s: float) -> str:
    """What the worker said after that word."""
    assert process.stdout is not None
    async with asyncio.timeout(timeout_s):
        while line := (await process.stdout.readline()).decode():
            if line.startswith(word):
                return line.removeprefix(word).strip()
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
async def fresh_mesh() -> AsyncIterator[tuple[StateDirectory, Session, int]]:
    """A mesh of its own on a server of its own, a caller on it, and the server's process id."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        home = StateDirectory(Path(place))
        async with hosted_mesh.development_server(home) as server:
            await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
            async with assembly.join(home, "client") as connection:
                await connection.session.sync_control()
                yield home, connection.session, server.pid or 0


async def end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


async def one_round(side: str, mode: Mode, jobs: int, workers: int, sizes: Sizes) -> Round:
    """One side on a fresh mesh; `sizes` is for the bare side."""
    async with fresh_mesh() as (home, session, server), AsyncExitStack() as stack:

        async def start() -> list[tuple[int, float]]:
            """Worker processes, and the processor time that each took to be ready."""
            begun: list[tuple[int, float]] = []
            for number in range(workers):
                wanted = jobs if workers == 1 else 10**9
                process = await start_worker(side, home, wanted, f"{side}{number}-", sizes)
                stack.push_async_callback(end, process)
                begun.append((process.pid, float(await wait_for(process, "ready", 60))))
            return begun

        bodies = [job_body(number) for number in range(jobs)]
        drafts = [
            session.draft(JobSchedule, body, prev=0) for body in bodies[: jobs * (side == "bare")]
        ]
        begun = await start() if mode == "both" else []
        server_s = cpu_s(server)
        caller_s = time.process_time()
        await (submit_many(session, bodies) if side == "ours" else append_all(session, drafts))
        caller_s = time.process_time() - caller_s
        if mode == "drain":
            server_s = cpu_s(server)
            begun = await start()
        total = 1 + (jobs if mode == "submit" else 3 * jobs)
        async with asyncio.timeout(600):
            while ((newest := await session.log.last()) is None) or newest.seq < total:
                await asyncio.sleep(0.1)
        worker_s = sum(cpu_s(pid) - before_s for pid, before_s in begun)
        server_s = cpu_s(server) - server_s
        root = subjects.root(session.mesh)
        found = await job_records(session)
        about = [one for one in found if one.subject.startswith(f"{root}.job.")]
        called = [one for one in found if one.subject.startswith(f"{root}.call.")]
        counted = {"drain": about, "submit": called, "both": called + about}[mode]
        stamps = [one.stamp_ns for one in counted]
        weights = [len(one.payload) for one in about] or [0]
        return Round(
            per_s=jobs / ((max(stamps) - min(stamps)) / 1e9),
            worker_cpu_ms=worker_s / jobs * 1000,
            server_cpu_ms=server_s / jobs * 1000,
            caller_cpu_ms=caller_s / jobs * 1000,
            sizes=(min(weights), max(weights)),
        )


async def claim_latency(jobs: int) -> tuple[list[float], list[float]]:
    """Milliseconds from schedule to claim by the engine's stamps, and of each schedule's append.

    At a gentle rate; the second is what the engine itself takes for one write meanwhile.
    """
    async with fresh_mesh() as (home, session, _), AsyncExitStack() as stack:
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


async def run(mode: Mode, jobs: int, rounds: int, workers: int, latency_jobs: int) -> int:
    sides: dict[str, list[Round]] = {"ours": [], "bare": []}
    sizes = ANY_SIZE
    for number in range(rounds):
        # The side that goes first changes from round to round. Ours begins: the bare side then
        # writes records of the same size.
        for side in ("ours", "bare") if number % 2 == 0 else ("bare", "ours"):
            one = await one_round(side, mode, jobs, workers, sizes)
            sides[side].append(one)
            sizes = one.sizes if side == "ours" else sizes
        ours, bare = sides["ours"][-1], sides["bare"][-1]
        say(
            f"round {number + 1}: ours {ours.per_s:,.0f} jobs/s, bare {bare.per_s:,.0f} jobs/s;"
            f" ms of processor per job: worker {ours.worker_cpu_ms:.2f} and"
            f" {bare.worker_cpu_ms:.2f}, server {ours.server_cpu_ms:.2f} and"
            f" {bare.server_cpu_ms:.2f}, caller {ours.caller_cpu_ms:.2f} and"
            f" {bare.caller_cpu_ms:.2f}"
        )
    rates = {side: [one.per_s for one in found] for side, found in sides.items()}
    ratios = [a / b for a, b in zip(rates["ours"], rates["bare"], strict=True)]
    say(f"ours {spread(rates['ours'])}, bare {spread(rates['bare'])} jobs/s")
    conclude(
        mode=mode,
        ours_per_s=round(median(rates["ours"])),
        bare_per_s=round(median(rates["bare"])),
        ratio=round(median(ratios), 3),
        ratio_spread=[round(min(ratios), 3), round(max(ratios), 3)],
        **_cpu("", sides["ours"]),
        **_cpu("bare_", sides["bare"]),
        **(await latencies(latency_jobs) if latency_jobs else {}),
        workers=workers,
        replicas=1,
        sync="always",
        record_bytes=list(sizes),
        jobs=jobs,
        rounds=rounds,
    )
    return 0 if median(ratios) >= WANTED_RATIO or mode == "submit" else 1


def _cpu(prefix: str, rounds: list[Round]) -> dict[str, float]:
    names = ("worker_cpu_ms", "server_cpu_ms", "caller_cpu_ms")
    return {
        f"{prefix}{name}": round(median([getattr(one, name) for one in rounds]), 3)
        for name in names
    }


async def latencies(jobs: int) -> dict[str, float]:
    waits, writes = await claim_latency(jobs)
    return {
        "claim_p50_ms": round(percentile(waits, 0.5), 2),
        "claim_p99_ms": round(percentile(waits, 0.99), 2),
        "append_p50_ms": round(percentile(writes, 0.5), 2),
        "append_p99_ms": round(percentile(writes, 0.99), 2),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench lifecycle")
    parser.add_argument("--mode", choices=["submit", "drain", "both"], default="drain")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--latency-jobs", type=int, default=1_000, help="0: latency is left out")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    if args.quick:
        return asyncio.run(run(args.mode, 3_000, 3, args.workers, min(args.latency_jobs, 200)))
    return asyncio.run(run(args.mode, args.jobs, args.rounds, args.workers, args.latency_jobs))
