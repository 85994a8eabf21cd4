"""`bench fairness`: who wins when jobs are drawn for, and what a dead winner costs.

The first part is computed, not run: schedules with real ids and real signatures, and for each the
ranking of 3, 10 and 50 equal workers by the function that workers themselves use.
`chi2_p` is the smallest of the three chances that equals come out so unevenly. `weighted_error`
is the largest relative error of the shares of three workers with weights 1, 2 and 4.

The second part is live: a real server and worker processes. One of them is killed with SIGKILL;
jobs are called right after, while the others still count on it. What the jobs wait that it would
have had is `dead_winner_ms`, by the engine's own stamps from schedule to claim.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly import hosted_mesh
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.manifest import job_id
from antiphon.core.policy import selection
from antiphon.core.policy.selection import Candidate, Need
from antiphon.core.record import codec, signing, subjects
from antiphon.ports import Record
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from bench.fairness.chi_square import chi_square_p
from bench.measurement.report import conclude, median, say
from bench.signed_log import KIND

EQUALS = (3, 10, 50)
WEIGHTS = (1, 2, 4)
LEAST_P = 1e-4
"""One honest run in ten thousand is less even than this, for each number of workers."""
WEIGHTED_WITHIN = 0.03
NOW_MS = 1_763_000_000_000

LIVE_WORKERS = 4
CALLS_EACH_S = 0.15
SLACK_MS = 1_000
"""What a busy machine may add to a claim."""
RULES = Rules(authority="open", selection=((KIND, "rendezvous"),))


# --- computed ---------------------------------------------------------------------------------


def needs(jobs: int, seed: str) -> Iterator[Need]:
    """Jobs as they would stand on a log, each schedule signed by its caller."""
    caller = SeedKeyring(seed.encode().ljust(32, b".")[:32])
    for number in range(jobs):
        arguments = (f'{{"args":["{seed}",{number}],"kwargs":{{}}}}',)
        content = manifest.Manifest(command=(f"@{KIND}",), args=arguments, timeout=60)
        op = JobSchedule(
            v=1,
            mesh="a" * 16,
            author=caller.did,
            hlc=(NOW_MS + number, 0),
            prev=0,
            deps=(),
            auth=(),
            body=ScheduleBody(kind=KIND, manifest=content),
        )
        op_bytes = codec.encode(op)
        block = signing.Block(sig=caller.sign(signing.OP_TYPE, op_bytes))
        drawn_from = selection.seed_of(signing.frame(op_bytes, block))
        yield Need(kind=KIND, job_id=job_id(content), seed=drawn_from)


def candidates_of(seed: str, weights: tuple[int, ...]) -> list[Candidate]:
    return [
        Candidate(
            did=SeedKeyring(f"{seed} {number}".encode().ljust(32, b".")[:32]).did,
            kinds=(KIND,),
            weight=weight,
        )
        for number, weight in enumerate(weights)
    ]


def wins(calls: list[Need], workers: list[Candidate]) -> list[int]:
    """How many jobs each worker is first for."""
    first = Counter(selection.ranked(need, workers)[0].candidate.did for need in calls)
    return [first[worker.did] for worker in workers]


def weighted_error(counts: list[int]) -> float:
    """The largest relative difference between a share and the weight's."""
    jobs, whole = sum(counts), sum(WEIGHTS)
    return max(
        abs(count / (jobs * weight / whole) - 1)
        for count, weight in zip(counts, WEIGHTS, strict=True)
    )


# --- live -------------------------------------------------------------------------------------


class Waits(Struct, frozen=True):
    """Milliseconds from schedule to claim."""

    dead_winner: list[float]
    live_winner: list[float]
    unfinished: int


async def start_worker(home: StateDirectory) -> tuple[Process, str]:
    """A worker process, and its id."""
    process = await start_owned(
        sys.executable, "-m", "bench.fairness.worker", str(home.path), stdout=PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = (await process.stdout.readline()).decode().split()
    if not line or line[0] != "ready":
        raise SystemExit("a worker ended before it was ready")
    return process, line[1]


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def call(session: Session, number: int) -> str:
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    body = ScheduleBody(kind=KIND, manifest=content)
    await session.commit(session.draft(JobSchedule, body, prev=0))
    return job_id(content)


async def kill_the_winner(calls: int) -> Waits:
    """Kill one of several workers, and call jobs before the others can know."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        home = StateDirectory(Path(place))
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(hosted_mesh.development_server(home))
            await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
            connection = await stack.enter_async_context(assembly.join(home, "client"))
            session = connection.session
            await session.sync_control()
            processes = await asyncio.gather(*(start_worker(home) for _ in range(LIVE_WORKERS)))
            for process, _ in processes:
                stack.push_async_callback(end, process)
            await asyncio.sleep(4)  # until each has heard every other
            victim, dead = processes[0]
            victim.kill()
            await victim.wait()
            jobs = []
            for number in range(calls):
                jobs.append(await call(session, number))
                await asyncio.sleep(CALLS_EACH_S)
            await _all_ended(session, len(jobs))
            return await _waits(session, jobs, [did for _, did in processes], dead)


async def _all_ended(session: Session, jobs: int) -> None:
    """Until every job has its claim and its completion, or for a minute."""
    own = f"{subjects.root(session.mesh)}.jobs.job.>"
    try:
        async with asyncio.timeout(60):
            while len((await session.log.read(0, limit=4 * jobs, subject=own)).records) < 2 * jobs:
                await asyncio.sleep(0.2)
    except TimeoutError:
        return


async def _waits(session: Session, jobs: list[str], workers: list[str], dead: str) -> Waits:
    candidates = [Candidate(did=did, kinds=(KIND,)) for did in workers]
    waits = Waits([], [], 0)
    unfinished = 0
    for name in jobs:
        filters = job_subjects.lane(session.mesh, KIND, name)
        records = [one async for page in session.log.read_lane(filters) for one in page]
        view = await session.read_lane(KIND, name)
        if view.lane.job is None or not view.lane.job.is_terminal:
            unfinished += 1
            continue
        schedule, claim = _first(records, ".jobs.1."), _first(records, ".job.")
        need = Need(kind=KIND, job_id=name, seed=selection.seed_of(schedule.payload))
        winner = selection.ranked(need, candidates)[0].candidate.did
        waited_ms = (claim.stamp_ns - schedule.stamp_ns) / 1e6
        (waits.dead_winner if winner == dead else waits.live_winner).append(waited_ms)
    return Waits(waits.dead_winner, waits.live_winner, unfinished)


def _first(records: list[Record], where: str) -> Record:
    return next(record for record in records if where in record.subject)


def costs_one_window(waits: Waits) -> bool:
    """Whether a dead winner costs its window and no more, and a living one nothing."""
    window_ms = RULES.claim_window_ms
    return (
        waits.unfinished == 0
        and bool(waits.dead_winner)
        and min(waits.dead_winner) >= window_ms * 0.9
        and max(waits.dead_winner) <= window_ms * (2 + selection.JITTER) + SLACK_MS
        and median(waits.live_winner) < window_ms / 3
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench fairness")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--seed", default="", help="draw as that run did")
    args = parser.parse_args(argv)
    seed = args.seed or secrets.token_hex(8)
    say(f"seed {seed}: python -m bench fairness --seed {seed} computes the same draws again")

    drawn = list(needs(args.jobs, seed))
    chances = {
        len(equals): chi_square_p(wins(drawn, equals))
        for equals in (candidates_of(seed, (1,) * number) for number in EQUALS)
    }
    say(f"computed: chi-square p by workers {chances}")
    # Shares of a seventh need more jobs before three per cent mean anything.
    more = list(needs(args.jobs * (3 if args.quick else 10), f"{seed}w"))
    error = weighted_error(wins(more, candidates_of(f"{seed}w", WEIGHTS)))
    say(f"computed: weights {WEIGHTS} over {len(more):,} jobs are off by at most {error:.2%}")
    waits = asyncio.run(kill_the_winner(24 if args.quick else 48))
    say(f"live: dead winner {sorted(map(round, waits.dead_winner))} ms")

    conclude(
        workers=list(EQUALS),
        jobs=args.jobs,
        chi2_p=round(min(chances.values()), 6),
        chi2_p_by_workers={str(number): round(p, 6) for number, p in chances.items()},
        weighted_error=round(error, 5),
        weighted_jobs=len(more),
        computed="schedules with real signatures; lots by the workers' own function",
        live_workers=LIVE_WORKERS,
        claim_window_ms=RULES.claim_window_ms,
        dead_winner_jobs=len(waits.dead_winner),
        dead_winner_p50_ms=round(median(waits.dead_winner), 1) if waits.dead_winner else None,
        dead_winner_max_ms=round(max(waits.dead_winner, default=0), 1),
        live_winner_p50_ms=round(median(waits.live_winner), 1),
        unfinished=waits.unfinished,
        seed=seed,
    )
    is_fair = min(chances.values()) >= LEAST_P and error <= WEIGHTED_WITHIN
    return 0 if is_fair and costs_one_window(waits) else 1
