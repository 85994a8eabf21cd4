"""A replica with many jobs, written through its own `note` and `flush`, one record for each."""

from __future__ import annotations

import random
import time

from antiphon.core.families.jobs.state import Job, JobLane, State, job_key
from antiphon.core.record.verdict import Verdict
from antiphon.ports import NANOSECONDS_PER_MS, Record
from antiphon.runtime.replica.replica import Replica
from bench.measurement.report import say

MESH = "bbbbbbbbbbbbbbbb"
START_MS = 1_763_000_000_000
EVERY_MS = 20
"""One job after another."""
FLUSHED = 4_096
KINDS = [f"{'build' if one < 20 else 'render'}.k{one}" for one in range(40)]
WORDS = ["connection", "refused", "timeout", "disk", "full", "memory", "denied", "missing", "reset"]


def did(number: int) -> str:
    return f"did:key:z6Mk{number:044d}"


def job_number(number: int, chance: random.Random, start_ms: int = START_MS) -> Job:
    """A job; one in a hundred failed, one in two hundred has not ended."""
    ms = start_ms + number * EVERY_MS
    drawn = chance.random()
    state = State.SUCCEEDED
    if drawn < 0.015:
        state = chance.choice((State.FAILED, State.FAILED, State.WAITING, State.PENDING))
    kind = KINDS[min(int(chance.expovariate(0.15)), len(KINDS) - 1)]
    before = f"{number - 1:064x}"
    is_step = number % 1_000 > 990
    return Job(
        kind="graph.step" if number % 1_000 >= 990 else kind,
        id=f"{number:064x}",
        state=state,
        scheduler=did(int(chance.expovariate(0.4)) % 20),
        scheduled_seq=number + 1,
        scheduled_ms=ms,
        hlc=(ms, 0),
        hlc_author=did(0),
        priority="normal",
        start_by_ms=ms + 86_400_000,
        start_window_ms=86_400_000,
        attempts_max=3,
        lease_ms=30_000,
        lease_ms_max=120_000,
        concurrency="gpu=one" if number % 50 == 0 else "",
        plan=f"blake3:{number % 7:064x}" if number % 40 == 0 else "",
        after=((("graph.step", before),) if is_step else ()),
        claimer=did(1_000 + chance.randrange(200)) if state.is_terminal else "",
        outcome=state.value if state.is_terminal else "",
        ended_seq=number + 1 if state.is_terminal else 0,
        ended_ms=ms + 900 if state.is_terminal else 0,
    )


def fill(replica: Replica, jobs: int, *, mesh: str = MESH, start_ms: int = START_MS) -> None:
    """Write the jobs; a line of progress now and then."""
    chance = random.Random(41)
    replica.begin_anew((">",))
    told_s = time.monotonic()
    for number in range(jobs):
        job = job_number(number, chance, start_ms)
        stamp_ns = job.scheduled_ms * NANOSECONDS_PER_MS
        subject = f"ap.{mesh}.jobs.job.{job.kind}.{job.id}"
        record = Record(number + 1, stamp_ns, subject, b"{}" * 100)
        text = ""
        if job.state is State.FAILED:
            text = f"RuntimeError: {' '.join(chance.sample(WORDS, 3))} number{number}"
        replica.note(record, Verdict.OK, job_key(job.kind, job.id), JobLane(state=job), text)
        if number % FLUSHED == 0:
            replica.flush()
            if time.monotonic() - told_s > 10:
                told_s = time.monotonic()
                say(f"{number:,} jobs written")
    replica.flush()
