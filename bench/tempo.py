"""`bench tempo`: what a pulse and scores cost a worker, in processor time per job.

Rounds alternate on one mesh and one server: without a pulse and without scores, then with a leader
that is heard and a score on every job. Every round lays its jobs on the log first and then lets
one worker drain them; only that is measured, by this process's own processor time. The jobs are
shorter than a beat, so they send no claims. A claim's own cost is measured apart (`claim_us`): a
longer job sends one per beat. On a busy machine processor time is noisy; `calls` and `calls_tempo`
count Python calls per job, which are not.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import itertools
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from antiphon import assembly
from antiphon.assembly import hosted_mesh
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.tempo.messages import StatusClaim
from antiphon.core.tempo.score import Score
from antiphon.core.tempo.time_text import hlc_text
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.tempo.pulse import Pulse
from antiphon.runtime.worker.runs.status_sender import StatusSender
from antiphon.runtime.worker.worker import WorkerSettings
from bench.measurement.report import conclude, median, say
from bench.signed_log import KIND

SLOTS = 64
SUBMIT_WINDOW = 128
_numbers = itertools.count()


async def noop(_number: int) -> int:
    return 0


async def submit(session: Session, jobs: int, score: Score | None) -> None:
    window = asyncio.Semaphore(SUBMIT_WINDOW)

    async def one(number: int) -> None:
        content = manifest.author(
            {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
        )
        body = ScheduleBody(kind=KIND, manifest=content, score=score)
        async with window:
            await session.commit(session.draft(JobSchedule, body, prev=0))

    await asyncio.gather(*(one(next(_numbers)) for _ in range(jobs)))


async def drained(
    home: StateDirectory,
    session: Session,
    jobs: int,
    *,
    tempo: bool,
    profile: cProfile.Profile | None = None,
) -> float:
    """Milliseconds of processor time for one job; `profile` counts calls instead."""
    await submit(session, jobs, Score() if tempo else None)
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(assembly.join(home, "worker"))
        if tempo:
            leader = await stack.enter_async_context(assembly.join(home, "node"))
            pulse = Pulse(BeatClock(leader.session), leader.keyring)
            beats = asyncio.ensure_future(pulse.run())
            stack.callback(beats.cancel)
        handlers = Handlers()
        handlers.register(KIND, noop)
        settings = WorkerSettings(slots=SLOTS)
        if profile is not None:
            profile.enable()
        began_s = time.process_time()
        working = assembly.working(connection, handlers.executors(), settings)
        worker = await stack.enter_async_context(working)
        async with asyncio.timeout(600):
            while worker.done < jobs:
                await asyncio.sleep(0.02)
        if profile is not None:
            profile.disable()
        return (time.process_time() - began_s) * 1000 / jobs


async def calls_of(home: StateDirectory, session: Session, jobs: int, *, tempo: bool) -> float:
    """Python calls for one job."""
    profile = cProfile.Profile()
    await drained(home, session, jobs, tempo=tempo, profile=profile)
    return sum(one.callcount for one in profile.getstats()) / jobs


async def claim_us(session: Session, claims: int) -> float:
    """Microseconds of processor time for one claim."""
    async with asyncio.TaskGroup() as tasks:
        sender = StatusSender(session, tasks.create_task)
        began_s = time.process_time()
        for number in range(claims):
            claim = StatusClaim(
                agent_id=session.author.did,
                task_id=f"{KIND}/{number}",
                beat_index=1,
                state="executing",
                hlc=hlc_text(session.author.now()),
                beats_left=3,
            )
            sender.say(KIND, claim)
            while sender.sent <= number:
                await asyncio.sleep(0)
    return (time.process_time() - began_s) * 1e6 / claims


async def measure(rounds: int, jobs: int) -> None:
    found: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        home = StateDirectory(Path(place))
        async with hosted_mesh.development_server(home) as server:
            rules = Rules(authority="open")
            await hosted_mesh.found_on(home, server, name="bench", rules=rules)
            async with assembly.join(home, "client") as connection:
                session = connection.session
                await session.sync_control()
                await drained(home, session, jobs, tempo=False)  # warms everything up
                for number in range(rounds):
                    for tempo in (False, True) if number % 2 else (True, False):
                        cpu_ms = await drained(home, session, jobs, tempo=tempo)
                        found[tempo].append(cpu_ms)
                    say(f"{found[False][-1]:.3f} ms without, {found[True][-1]:.3f} ms with")
                each_us = await claim_us(session, 500)
                calls = [await calls_of(home, session, jobs, tempo=one) for one in (False, True)]
    ratios = [with_ / without for without, with_ in zip(found[False], found[True], strict=True)]
    conclude(
        jobs=jobs,
        rounds=rounds,
        cpu_ms=round(median(found[False]), 3),
        cpu_ms_tempo=round(median(found[True]), 3),
        ratio=round(median(ratios), 3),
        ratios=[round(one, 3) for one in sorted(ratios)],
        calls=round(calls[0]),
        calls_tempo=round(calls[1]),
        claim_us=round(each_us),
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench tempo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=0)
    chosen = parser.parse_args(arguments)
    rounds = chosen.rounds or (3 if chosen.quick else 9)
    asyncio.run(measure(rounds, chosen.jobs or (500 if chosen.quick else 1500)))
    return 0
