"""The jobs of a round: what is submitted, and how it is seen on the log that all have ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.record import subjects
from antiphon.ports import Record
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.session import Session
from bench.signed_log import KIND

DRAINED_WITHIN_S: Final = 600.0
MS: Final = 1_000_000
"""In nanoseconds."""


def job_body(number: int) -> ScheduleBody:
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
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
    about, wanted, records = (".job.", 2, 3) if are_done else (".call.", 1, 1)
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


def rate_of(records: list[Record], jobs: int) -> float:
    """Jobs per second from the first of these records to the last, by the engine's stamps."""
    stamps = [one.stamp_ns for one in records]
    # The records of one batch have one stamp: a small round may take no time at all.
    return jobs / (max(max(stamps) - min(stamps), MS) / 1e9)
