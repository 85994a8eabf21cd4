"""One round of `bench lifecycle`: one side does its part on a fresh mesh."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Final, Literal

from msgspec import Struct

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.record import subjects
from antiphon.ports import Append, Record
from antiphon.runtime.caller.bulk_submission import GROUPS_IN_FLIGHT, TOGETHER, submit_many
from antiphon.runtime.executors.handlers import call_text
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from bench.measurement.child_process import child_process
from bench.measurement.process_usage import cpu_s
from bench.meshes.fresh_mesh import FreshMesh, Sort, fresh_mesh
from bench.signed_log import KIND

SUBMIT_WINDOW: Final = 256
DRAINED_WITHIN_S: Final = 600.0

Mode = Literal["submit", "drain", "both"]
Side = Literal["ours", "bare", "batched"]
SIDES: Final[tuple[Side, ...]] = ("ours", "bare", "batched")
Sizes = tuple[int, int]
"""Bytes of a claim and of a completion."""


class Load(Struct, frozen=True, kw_only=True):
    """What is measured."""

    mode: Mode = "drain"
    mesh: Sort = "open"
    replicas: int = 1
    jobs: int
    workers: int = 2
    """Worker processes."""
    slots: int = 384
    """Jobs in flight for each of them, ours and bare."""


class Round(Struct, frozen=True):
    """One round of one side."""

    per_s: float
    worker_cpu_ms: float
    """Per job, as all four."""
    server_cpu_ms: float
    caller_cpu_ms: float
    gate_cpu_ms: float
    sizes: Sizes
    """Of its records: the smallest and the largest of a claim and a completion."""


def job_body(number: int) -> ScheduleBody:
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    return ScheduleBody(kind=KIND, manifest=content)


async def append_single(session: Session, drafts: list[Draft]) -> None:
    """The bare side's way to submit: what is signed already is written, and nothing is read."""
    window = asyncio.Semaphore(SUBMIT_WINDOW)

    async def one(draft: Draft) -> None:
        async with window:
            await session.log.append(
                draft.subject, draft.payload, message_id=draft.op_id, expected_last=0
            )

    for start in range(0, len(drafts), 4096):
        await asyncio.gather(*map(one, drafts[start : start + 4096]))


async def append_batched(session: Session, drafts: list[Draft]) -> None:
    """The same in groups, as large and as many at a time as those of `submit_many`."""
    window = asyncio.Semaphore(GROUPS_IN_FLIGHT)

    async def group(drafts: list[Draft]) -> None:
        async with window:
            records = [Append(one.subject, one.payload, one.op_id, 0) for one in drafts]
            for answer in await session.log.append_many(records):
                if not isinstance(answer, int):
                    raise answer

    starts = range(0, len(drafts), TOGETHER)
    await asyncio.gather(*(group(drafts[start : start + TOGETHER]) for start in starts))


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


async def start_workers(
    stack: AsyncExitStack, side: Side, mesh: FreshMesh, load: Load, sizes: Sizes
) -> list[tuple[int, float]]:
    """Worker processes, and the processor time that each took to be ready."""
    begun: list[tuple[int, float]] = []
    for number, home in enumerate(mesh.worker_homes):
        common = ("--home", str(home.path), "--slots", str(load.slots))
        if side == "ours":
            child = child_process("bench.meshes.worker", *common)
        else:
            how = "single" if side == "bare" else "batched"
            own = ("--name", f"{side}{number}-", "--sizes", *map(str, sizes))
            child = child_process("bench.lifecycle.bare_worker", how, *common, *own)
        process, said = await stack.enter_async_context(child)
        begun.append((process.pid, float(said)))
    return begun


async def submit(side: Side, session: Session, load: Load) -> float:
    """Lay the schedules on the log; the caller's processor time for it, in seconds."""
    bodies = [job_body(number) for number in range(load.jobs)]
    if side == "ours":
        began_s = time.process_time()
        await submit_many(session, bodies)
        return time.process_time() - began_s
    drafts = [session.draft(JobSchedule, body, prev=0) for body in bodies]
    began_s = time.process_time()
    await (append_single if side == "bare" else append_batched)(session, drafts)
    return time.process_time() - began_s


async def wait_for_all(mesh: FreshMesh, load: Load, before: int) -> list[Record]:
    """The records of the round, once each job has those that the mode leads to."""
    session = mesh.observer
    root = subjects.root(session.mesh)
    about, wanted = (".call.", 1) if load.mode == "submit" else (".job.", 2)
    total = before + load.jobs * (1 if load.mode == "submit" else 3)
    async with asyncio.timeout(DRAINED_WITHIN_S):
        while True:
            while await newest_seq(session) < total:
                await asyncio.sleep(0.1)
            found = [one for one in await job_records(session) if one.seq > before]
            counts = Counter(
                one.subject[-64:] for one in found if one.subject.startswith(f"{root}{about}")
            )
            missing = sum(count < wanted for count in counts.values()) + load.jobs - len(counts)
            if missing <= 0:
                return found
            total = await newest_seq(session) + missing  # some jobs were claimed twice


async def one_round(side: Side, load: Load, sizes: Sizes) -> Round:
    """One side on a fresh mesh; `sizes` is for the bare sides."""
    meshes = fresh_mesh(load.mesh, workers=load.workers, replicas=load.replicas)
    async with meshes as mesh, AsyncExitStack() as stack:
        before = await newest_seq(mesh.observer)
        begun: list[tuple[int, float]] = []
        if load.mode == "both":
            begun = await start_workers(stack, side, mesh, load, sizes)
        server_s, gate_s = mesh.server_cpu_s(), mesh.gate_cpu_s()
        caller_s = await submit(side, mesh.caller, load)
        if load.mode == "drain":
            server_s, gate_s = mesh.server_cpu_s(), mesh.gate_cpu_s()
            begun = await start_workers(stack, side, mesh, load, sizes)
        found = await wait_for_all(mesh, load, before)
        worker_s = sum(cpu_s(pid) - before_s for pid, before_s in begun)
        server_s, gate_s = mesh.server_cpu_s() - server_s, mesh.gate_cpu_s() - gate_s
    about = [one for one in found if ".job." in one.subject]
    called = [one for one in found if ".call." in one.subject]
    counted = {"drain": about, "submit": called, "both": called + about}[load.mode]
    stamps = [one.stamp_ns for one in counted]
    weights = [len(one.payload) for one in about] or [0]
    each_ms = 1000 / load.jobs
    return Round(
        per_s=load.jobs / ((max(stamps) - min(stamps)) / 1e9),
        worker_cpu_ms=worker_s * each_ms,
        server_cpu_ms=server_s * each_ms,
        caller_cpu_ms=caller_s * each_ms,
        gate_cpu_ms=gate_s * each_ms,
        sizes=(min(weights), max(weights)),
    )
