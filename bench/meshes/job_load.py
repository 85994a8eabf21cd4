"""The jobs of a round: what is submitted, and how it is seen on the log that all have ended."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Final

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.session import Session
from bench.signed_log import KIND

DRAINED_WITHIN_S: Final = 600.0
JUDGED: Final = 200
"""Jobs of a round that another session reads and judges."""
MS: Final = 1_000_000
"""In nanoseconds."""


def job_body(number: int, *, is_fresh: bool = False) -> ScheduleBody:
    """One call; a fresh one is never answered again from its content, and so is archived sooner."""
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    if is_fresh:
        content = manifest.with_nonce(content, f"{number:032x}", "random")
    return ScheduleBody(kind=KIND, manifest=content)


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


async def newest_seq(session: Session) -> int:
    newest = await session.log.last()
    return 0 if newest is None else newest.seq


async def wait_for_jobs(
    session: Session, jobs: int, *, before: int, are_done: bool = True
) -> list[Record]:
    """The records behind `before`, once all jobs are submitted, and done if that is asked for."""
    root = subjects.root(session.mesh)
    about, wanted, records = (".jobs.job.", 2, 3) if are_done else (".jobs.1.", 1, 1)
    total = before + jobs * records
    async with asyncio.timeout(DRAINED_WITHIN_S):
        while True:
            while await newest_seq(session) < total:
                await asyncio.sleep(0.1)
            found = [one for one in await job_records(session) if one.seq > before]
            counts = Counter(
                one.subject[-64:] for one in found if one.subject.startswith(f"{root}{about}")
            )
            missing = sum(count < wanted for count in counts.values()) + jobs - len(counts)
            if missing <= 0:
                return found
            total = await newest_seq(session) + missing  # some jobs were claimed twice


def sample(records: list[Record]) -> list[str]:
    """Some of the jobs that these records are about, drawn at random."""
    jobs = sorted({one.subject[-64:] for one in records if ".job." in one.subject})
    return random.sample(jobs, min(len(jobs), JUDGED))


async def ended_well(session: Session, jobs: list[str]) -> int:
    """How many of these have succeeded by the verdicts of this session, which wrote none of it.

    A worker that reads little of what it writes could count jobs as done that no reader accepts.
    """
    well = 0
    for job in jobs:
        view = await session.read_lane(KIND, job)
        accepted = all(one.verdict is Verdict.OK for one in view.history)
        well += accepted and view.lane.job is not None and view.lane.job.outcome == "succeeded"
    return well


def rate_of(records: list[Record], jobs: int) -> float:
    """Jobs per second from the first of these records to the last, by the engine's stamps."""
    stamps = [one.stamp_ns for one in records]
    # The records of one batch have one stamp: a small round may take no time at all.
    return jobs / (max(max(stamps) - min(stamps), MS) / 1e9)
