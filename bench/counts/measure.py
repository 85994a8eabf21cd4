"""The counts of a caller, a worker and the log, for each job: under load, and one job at a time."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Final

import msgspec

from antiphon import telemetry
from antiphon.core.families.jobs.ops import JobComplete
from antiphon.core.manifest import job_id
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec
from antiphon.ports import Record
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.testing.virtual_time import new_loop
from bench.counts.call_counts import CallCounts, counted
from bench.counts.steady_mesh import SteadyMesh
from bench.meshes.job_load import job_body, job_records
from bench.signed_log import KIND

JOBS: Final = 160
SINGLE_JOBS: Final = 10
SLOTS: Final = 384
WARM: Final = 4
"""Jobs before the first count: code that is loaded, and caches that fill, once."""

Counts = dict[str, float]
"""By name, for one job."""


class _Meter:
    """Profiles parts of a run and counts their requests."""

    def __init__(self, mesh: SteadyMesh, found: Counts, *, is_timed: bool) -> None:
        self._mesh = mesh
        self._found = found
        self._is_timed = is_timed

    @asynccontextmanager
    async def part(self, name: str, jobs: int) -> AsyncIterator[None]:
        if self._is_timed:
            began_s = time.process_time()
            yield
            self._found[f"{name}.cpu_ms"] = (time.process_time() - began_s) * 1000 / jobs
            return
        before, profile = self._mesh.requests.seen.total(), cProfile.Profile()
        profile.enable()
        try:
            yield
        finally:
            profile.disable()
        found: CallCounts = counted(profile)
        requests = self._mesh.requests.seen.total() - before
        for what, count in (
            ("calls", found.calls),
            ("signed", found.signed),
            ("verified", found.verified),
            ("requests", requests),
        ):
            self._found[f"{name}.{what}"] = count / jobs


async def _under_load(mesh: SteadyMesh, meter: _Meter, found: Counts) -> None:
    async with mesh.caller() as caller:
        session = caller.session
        await submit_many(session, [job_body(number) for number in range(WARM)])
        async with mesh.worker(SLOTS) as worker:
            await _until(lambda: worker.done >= WARM)
        bodies = [job_body(number) for number in range(WARM, WARM + JOBS)]
        async with meter.part("caller", JOBS):
            await submit_many(session, bodies)
        async with mesh.worker(SLOTS) as worker, meter.part("worker", JOBS):
            await _until(lambda: worker.done >= JOBS)
        ids = {job_id(body.manifest) for body in bodies}
        records = [one for one in await job_records(session) if one.subject[-64:] in ids]
        found |= {name: size / JOBS for name, size in bytes_by_part(records).items()}
        found["log.records"] = len(records) / JOBS


def bytes_by_part(records: list[Record]) -> Counter[str]:
    """What records take: in all, by type of op, and for signatures, proofs and subjects."""
    found: Counter[str] = Counter()
    for one in records:
        op_bytes, _, block = one.payload.partition(b"\n")
        op = codec.decode(op_bytes, PROTOCOL.decoder)
        found["log.bytes"] += len(one.payload)
        found[f"{op.type_name()}.bytes"] += len(one.payload)
        found["signatures.bytes"] += len(block)
        found["subjects.bytes"] += len(one.subject)
        if isinstance(op, JobComplete) and op.body.proof is not None:
            found["proof.bytes"] += len(codec.encode(op.body.proof))
    return found


async def _one_at_a_time(mesh: SteadyMesh, meter: _Meter) -> None:
    async with mesh.caller() as caller, mesh.worker(1) as worker:

        async def call(number: int) -> None:
            submitted = await submission.submit(caller.session, job_body(number))
            await submission.wait_for_end(caller.session, KIND, submitted.id)

        for number in range(WARM):
            await call(number)
        async with meter.part("single", SINGLE_JOBS):
            for number in range(WARM, WARM + SINGLE_JOBS):
                await call(number)
            await _until(lambda: worker.done >= WARM + SINGLE_JOBS)


async def _until(is_over: Callable[[], bool]) -> None:
    while not is_over():
        await asyncio.sleep(0.0005)


def _run(*, is_timed: bool) -> Counts:
    found: Counts = {}
    collects = gc.isenabled()
    gc.disable()  # finalizers would run at other people's moments
    loop = new_loop()
    try:
        mesh = SteadyMesh(loop)
        meter = _Meter(mesh, found, is_timed=is_timed)
        loop.run_until_complete(_under_load(mesh, meter, found))
    finally:
        loop.close()
        if collects:
            gc.enable()
    if not is_timed:
        loop = new_loop()
        mesh = SteadyMesh(loop)
        loop.run_until_complete(_one_at_a_time(mesh, _Meter(mesh, found, is_timed=False)))
        loop.close()
    return found


@cache
def _load_everything() -> None:
    """What is loaded on first use, and once, is not what a job costs."""
    _run(is_timed=False)


def count() -> Counts:
    """What one job costs, counted."""
    telemetry.configure("warning", "json")  # as in a program that configures nothing
    _load_everything()
    return {name: round(value, 3) for name, value in sorted(_run(is_timed=False).items())}


CALIBRATION: Final = {"text": "x" * 200, "numbers": list(range(40)), "more": {"a": 1, "b": None}}


def calibrate() -> float:
    """Milliseconds of processor time for work that no change to the product touches."""

    def step(depth: int) -> int:
        return depth if depth == 0 else step(depth - 1)

    began_s = time.process_time()
    for _ in range(400):
        step(20)
        msgspec.json.decode(msgspec.json.encode(CALIBRATION))
    return (time.process_time() - began_s) * 1000


def cpu_ratios(rounds: int = 3) -> Counts:
    """Processor time of a job by that of the calibration, the best of rounds that take turns."""
    telemetry.configure("warning", "json")
    units: list[float] = []
    times: dict[str, list[float]] = {"caller": [], "worker": []}
    for _ in range(rounds):
        units.append(calibrate())
        found = _run(is_timed=True)
        units.append(calibrate())
        for name, each in times.items():
            each.append(found[f"{name}.cpu_ms"])
    return {f"{name}.cpu": round(min(each) / min(units), 3) for name, each in times.items()}
