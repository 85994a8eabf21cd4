"""What a hostile worker does, and how late the rules let it make a job.

    acks     asks for more announcements than anybody else, and acknowledges every one
    idles    claims what it is handed for as long as it may, and does nothing
    floods   writes junk on the lanes of open jobs
    buries   claims a job, and fills its lane before anybody else can

Each goes on until it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

from msgspec import Struct

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.jobs.subjects import queue_name
from antiphon.core.policy.claim_delay import LONGEST_S
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.ports import WorkQueue
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from chaos.hostile.target import KIND, RULES, SLOTS, TargetMesh
from chaos.network.raw_connection import RawConnection, frame
from simulator.checks.plain_record import Key

STAYS_S: Final = 4.0
QUEUES: Final = 32
"""Each keeps requests of its own waiting: most announcements go where most requests wait."""
CREDITS: Final = 512
JUNK_PER_BURST: Final = 40
MAX_JUNK_PER_LANE: Final = 3_000
"""At most so many records on one lane; more is what `bury_lanes` does."""
BURY_JUNK: Final = 20_000
BURY_COPIES: Final = 1_000
BURY_LARGE: Final = 100
BURY_LARGE_BYTES: Final = 200_000
"""What fills a lane: junk, copies of a record with a good signature, and large records."""
ROUNDS_S: Final = 4.0
"""A full node looks at open jobs about once a second, in turn with the other full nodes."""
READ_S: Final = 10.0
"""To read what `buries` wrote, once per process that reads the lane; measured at 1 to 2 s."""

OFFER_S: Final = RULES.offer_after_ms / 1000
LEASE_S: Final = RULES.lease_ms_max / 1000
POINTED_S: Final = OFFER_S + RULES.claim_window_ms / 1000 + ROUNDS_S
"""Until full nodes call a job again and point to it, and an honest worker looks there."""


def _calls(target: TargetMesh) -> tuple[str, str]:
    mesh = target.hostile.session.mesh
    return job_subjects.calls_of(mesh, "normal", KIND, below=False), queue_name(KIND, "normal")


async def acknowledge_everything(target: TargetMesh, _called: list[Key]) -> None:
    """Take every announcement away from workers that would answer it."""
    calls, name = _calls(target)

    async def acknowledge(queue: WorkQueue) -> None:
        queue.grant(CREDITS)
        while True:
            (await queue.next()).ack()
            queue.grant(1)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for _ in range(QUEUES):
            work = target.hostile.session.log.work(calls, name=name)
            tasks.create_task(acknowledge(await stack.enter_async_context(work)))


async def claim_and_idle(target: TargetMesh, _called: list[Key]) -> None:
    """Hold jobs that others could do; announcements of others are not given back either."""
    session = target.hostile.session
    calls, name = _calls(target)

    async with session.log.work(calls, name=name) as queue, asyncio.TaskGroup() as tasks:
        queue.grant(CREDITS)
        while True:
            delivery = await queue.next()
            tasks.create_task(_hold(session, delivery.record.subject[-64:]))
            queue.grant(1)


async def _hold(session: Session, job: str) -> Draft | None:
    """Claim a job; the claim, unless somebody was faster."""
    body = ClaimBody(kind=KIND, job=job, lease_ms=RULES.lease_ms_max, begin=True)
    with suppress(AntiphonError):
        view = await session.read_lane(KIND, job)
        draft = session.draft(JobClaim, body, prev=view.lane.job_tail)
        seq = await session.commit(draft, timeout_s=1)
        view = await session.read_lane(KIND, job, at_least=seq)
        return draft if view.verdict_of(draft.op_id) is Verdict.OK else None
    return None


async def _hold_any(target: TargetMesh) -> tuple[str, Draft]:
    """Take announcements until one of their jobs could be claimed."""
    calls, name = _calls(target)
    async with target.hostile.session.log.work(calls, name=name) as queue:
        queue.grant(CREDITS)
        while True:
            delivery = await queue.next()
            job = delivery.record.subject[-64:]
            claim = await _hold(target.hostile.session, job)
            if claim is not None:
                return job, claim
            delivery.nak()


async def flood_lanes(target: TargetMesh, called: list[Key]) -> None:
    """Write junk on the lanes of open jobs in bursts: other writers there lose races."""
    connection = await RawConnection.open(target.hostile_home)
    junk: Counter[str] = Counter()
    try:
        while True:
            open_jobs = [job for _, job in called if not target.has_ended(job)]
            for job in [job for job in open_jobs if junk[job] < MAX_JUNK_PER_LANE][:SLOTS]:
                await _write_junk(connection, target, job, junk[job], JUNK_PER_BURST)
                junk[job] += JUNK_PER_BURST
            await asyncio.sleep(0.02)
    finally:
        await connection.close()


async def _write_junk(
    connection: RawConnection, target: TargetMesh, job: str, first: int, count: int
) -> None:
    subject = job_subjects.job(target.hostile.session.mesh, KIND, job)
    await connection.send(*(frame(subject, b"junk %d" % (first + n)) for n in range(count)))


async def bury_lanes(target: TargetMesh, _called: list[Key]) -> None:
    """Hold a job for as long as it takes to fill its lane."""
    connection = await RawConnection.open(target.hostile_home)
    try:
        job, claim = await _hold_any(target)
        for first in range(0, BURY_JUNK, 100):
            await _write_junk(connection, target, job, first, 100)
        for _ in range(0, BURY_COPIES, 100):
            await connection.send(*[frame(claim.subject, claim.payload)] * 100)
        for _ in range(BURY_LARGE):
            await connection.send(frame(claim.subject, bytes(BURY_LARGE_BYTES)))
        await connection.flush()
        await asyncio.sleep(3600)
    finally:
        await connection.close()


class Attack(Struct, frozen=True):
    """One way to be hostile, and how late the rules let it make a job."""

    name: str
    run: Callable[[TargetMesh, list[Key]], Awaitable[None]]
    bound_s: Callable[[float], float]
    """By how long it was there."""
    stays_s: float = STAYS_S
    """How long it goes on after the last call."""


def _until_called_again(there_s: float) -> float:
    """Pauses between calls double, so the next comes after twice the time, and one pause more."""
    return 2 * there_s + 2 * OFFER_S + ROUNDS_S


ATTACKS: Final = (
    # It stays for longer than its bound: what helps is a pointer to the job, not that it leaves.
    Attack("acks", acknowledge_everything, lambda _: POINTED_S, stays_s=POINTED_S + 2),
    Attack("idles", claim_and_idle, lambda there_s: _until_called_again(there_s) + LEASE_S),
    Attack("floods", flood_lanes, lambda there_s: there_s + LONGEST_S + LEASE_S + ROUNDS_S),
    # Its tenure ends by itself, the job is called again, and the lane is read once.
    Attack("buries", bury_lanes, lambda _: LEASE_S + OFFER_S + READ_S + ROUNDS_S),
)
