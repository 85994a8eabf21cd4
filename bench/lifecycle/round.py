"""One round of `bench lifecycle`: one side does its part on a fresh mesh."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final, Literal

from msgspec import Struct

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.ports import Append
from antiphon.runtime.caller.bulk_submission import GROUPS_IN_FLIGHT, TOGETHER, submit_many
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from bench.measurement.child_process import child_process, start_together
from bench.measurement.process_usage import cpu_s
from bench.meshes.fresh_mesh import FreshMesh, Sort, fresh_mesh
from bench.meshes.job_load import (
    ended_well,
    job_body,
    newest_seq,
    rate_of,
    sample,
    wait_for_jobs,
)

SUBMIT_WINDOW: Final = 256

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
    judged: int = 0
    """Jobs that another session has read and judged, and how many of them ended well."""
    judged_ok: int = 0


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


async def start_workers(
    stack: AsyncExitStack, side: Side, mesh: FreshMesh, load: Load, sizes: Sizes
) -> list[tuple[int, float]]:
    """Worker processes, and the processor time that each took to be ready."""
    children = []
    for number, home in enumerate(mesh.worker_homes):
        common = ("--home", str(home.path), "--slots", str(load.slots))
        if side == "ours":
            child = child_process("bench.meshes.worker", *common)
        else:
            how = "single" if side == "bare" else "batched"
            own = ("--name", f"{side}{number}-", "--sizes", *map(str, sizes))
            child = child_process("bench.lifecycle.bare_worker", how, *common, *own)
        children.append(child)
    return await start_together(stack, children)


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
        found = await wait_for_jobs(
            mesh.observer, load.jobs, before=before, are_done=load.mode != "submit"
        )
        worker_s = sum(cpu_s(pid) - before_s for pid, before_s in begun)
        server_s, gate_s = mesh.server_cpu_s() - server_s, mesh.gate_cpu_s() - gate_s
        is_judged = side == "ours" and load.mode != "submit"
        judged = sample(found) if is_judged else []
        judged_ok = await ended_well(mesh.observer, judged)
    about = [one for one in found if ".job." in one.subject]
    called = [one for one in found if job_subjects.is_call(one.subject)]
    counted = {"drain": about, "submit": called, "both": called + about}[load.mode]
    weights = [len(one.payload) for one in about] or [0]
    each_ms = 1000 / load.jobs
    return Round(
        per_s=rate_of(counted, load.jobs),
        worker_cpu_ms=worker_s * each_ms,
        server_cpu_ms=server_s * each_ms,
        caller_cpu_ms=caller_s * each_ms,
        gate_cpu_ms=gate_s * each_ms,
        sizes=(min(weights), max(weights)),
        judged=len(judged),
        judged_ok=judged_ok,
    )
