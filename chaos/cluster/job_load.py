"""The load of a run: jobs that are called while things go wrong, and the wait for their ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.errors import AntiphonError
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.session import Session
from antiphon.runtime.replica.replica import Replica
from bench.measurement.report import say
from chaos.cluster.worker_process import KINDS
from simulator.checks.plain_record import Key

WORK_MS: Final = (20, 200)
SUBMITTERS: Final = 8
ENDED_WITHIN_S: Final = 90.0
"""After the last fault every job must end in this time."""
RETRY_S: Final = 0.2


async def call_job(session: Session, kind: str, number: int, work_ms: int) -> Key:
    """Call a job, as often as it takes: the same call again is the same job."""
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text((number, work_ms), {})], "timeout": 60}
    )
    while True:
        try:
            called = await submission.submit(session, ScheduleBody(kind=kind, manifest=content))
        except AntiphonError:
            await asyncio.sleep(RETRY_S)
        else:
            return called.kind, called.id


async def call_jobs(
    session: Session, jobs: int, progress: Callable[[], float], chance: random.Random
) -> list[Key]:
    """Call all jobs, spread over the run; `progress` says which share of it is over."""
    promised: list[Key] = []
    numbers = iter(range(jobs))
    works_ms = [chance.randint(*WORK_MS) for _ in range(jobs)]

    async def submit() -> None:
        for number in numbers:
            while progress() < number / jobs:
                await asyncio.sleep(0.02)
            kind = KINDS[number % len(KINDS)]
            promised.append(await call_job(session, kind, number, works_ms[number]))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(SUBMITTERS):
            tasks.create_task(submit())
    return promised


async def wait_for_ends(replica: Replica, jobs: int) -> None:
    """Wait until the log shows the end of every job, at most for `ENDED_WITHIN_S`."""
    deadline = time.monotonic() + ENDED_WITHIN_S
    while time.monotonic() < deadline:
        counts = replica.sizes.by_state()
        ended = sum(counts.get(state, 0) for state in ("succeeded", "failed", "aborted"))
        if ended >= jobs:
            return
        await asyncio.sleep(0.1)
    say(f"not every job ended in {ENDED_WITHIN_S:g} s: {replica.sizes.by_state()}")
