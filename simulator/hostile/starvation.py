"""Starvation: how the hostile member keeps jobs from other workers; `GREED` is the list.

Most of it is permitted to a member: it may claim, offer, ask for announcements and
write on lanes. The rules bound what comes of it; every job must still end.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Final

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    JobClaim,
    JobOffer,
    JobSchedule,
    JobYield,
    OfferBody,
    ScheduleBody,
    YieldBody,
)
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.jobs.state import JobLane, State
from antiphon.core.families.jobs.subjects import queue_name
from antiphon.core.manifest import author as author_manifest
from antiphon.core.manifest import job_id
from antiphon.errors import AntiphonError
from antiphon.ports import WorkQueue
from simulator.actors.workload import KINDS
from simulator.checks.plain_record import Key
from simulator.hostile.hostile_member import Deed, HostileMember

FLOOD: Final = 12
"""Offers in one flood."""
STOLEN: Final = 3
"""Announcements that one act acknowledges for good."""
MOUTHS: Final = 24
"""Members with which it joins each queue: most announcements go where most members wait."""
SIP: Final = 16
DRINKS_S: Final = (20.0, 120.0)
BURIALS: Final = (270, 270, 270, 1_200)
BURIED_MOST: Final = 1_500
"""Junk records in one burial, of which a page of a lane holds some 256; and in one world at most,
since everybody has to read them."""
CLINGS_S: Final = 100.0
RENEWS_S: Final = 5.0
SHORT_MS: Final = 65_000
"""Tenures that it can outlast."""
LONELY: Final = "nobody.else"
"""A kind that no honest worker does."""
WINDOW_MS: Final = 3_000


async def hog(m: HostileMember) -> None:
    """Claim a job with the longest lease and let it lie, or give it back with a long pause."""
    found = await m.next_job(State.PENDING)
    if found is None:
        return
    key, lane, job = found
    subject = m.lane_subject(key)
    claim = ClaimBody(kind=key[0], job=key[1], lease_ms=job.lease_ms_max)
    await m.put(subject, m.op(JobClaim, claim, prev=lane.job_tail))
    mine = m.referee.lanes[key].job
    if mine is None or mine.claimer != m.keyring.did or m.chance.random() < 0.5:
        return
    body = YieldBody(
        kind=key[0], job=key[1], fence=mine.fence, reason="other", retry_after_ms=2**40
    )
    await m.put(subject, m.op(JobYield, body, prev=m.tail(subject)))


async def call_lonely(m: HostileMember) -> tuple[Key, JobLane]:
    """Call a job that nobody else does, with little time to begin it."""
    nonce = {"kind": "nonce", "nonce": m.chance.randbytes(16).hex()}
    content = author_manifest({"command": [f"@{LONELY}"], "timeout": 9, "inputs": [nonce]})
    body = ScheduleBody(kind=LONELY, manifest=content, start_by=m.now_ms() + WINDOW_MS)
    key = (LONELY, job_id(content))
    await m.put(
        job_subjects.call(m.mesh, "normal", *key), m.op(JobSchedule, body, prev=0, is_plain=True)
    )
    return key, m.referee.lanes[key]


async def cling(m: HostileMember) -> None:
    """Claim a job and renew it for as long as that is accepted, and a little longer."""
    found = m.some_job(State.PENDING, where=lambda job: 0 < job.tenure_ms_max < SHORT_MS)
    key, lane = found[:2] if found else await call_lonely(m)
    subject, lease_ms = m.lane_subject(key), lane.job.lease_ms_max if lane.job else 0
    claim = ClaimBody(kind=key[0], job=key[1], lease_ms=lease_ms, begin=True)
    await m.put(subject, m.op(JobClaim, claim, prev=lane.job_tail, is_plain=True))
    loop = asyncio.get_running_loop()
    end_s = loop.time() + CLINGS_S
    while loop.time() < end_s:
        held = m.referee.lanes[key].job
        if held is None or held.claimer != m.keyring.did or held.is_terminal:
            return
        body = ClaimBody(kind=key[0], job=key[1], lease_ms=lease_ms, fence=held.fence)
        with suppress(AntiphonError):
            await m.put(subject, m.op(JobClaim, body, prev=m.tail(subject), is_plain=True))
        await asyncio.sleep(RENEWS_S)


async def overreach(m: HostileMember) -> None:
    """Claim a job for longer than it may, or for less than makes sense."""
    found = m.some_job(State.PENDING)
    key, lane = found[:2] if found else await call_lonely(m)
    most_ms = lane.job.lease_ms_max if lane.job else 1
    lease_ms = m.chance.choice((most_ms + 1, 10 * most_ms, 4_999))
    body = ClaimBody(kind=key[0], job=key[1], lease_ms=lease_ms, begin=True)
    await m.put(m.lane_subject(key), m.op(JobClaim, body, prev=lane.job_tail, is_plain=True))


async def claim_late(m: HostileMember) -> None:
    """Claim a job that should have been begun, before anybody writes that it was not."""
    key, lane = await call_lonely(m)
    late_ms = m.chance.choice((1, 200))
    await asyncio.sleep((WINDOW_MS + late_ms) / 1000)
    body = ClaimBody(kind=key[0], job=key[1], lease_ms=5_000, begin=True)
    start_by_ms = lane.job.start_by_ms if lane.job else 0
    at_ms = max(m.now_ms(), start_by_ms + late_ms)
    subject = m.lane_subject(key)
    await m.put(subject, m.op(JobClaim, body, prev=m.tail(subject), wall_ms=at_ms, is_plain=True))


async def steal_announcements(m: HostileMember) -> None:
    """Acknowledge other people's announcements, so that nobody is handed them again."""
    if m.engine is None:
        return
    kind, priority = m.chance.choice(KINDS), m.chance.choice(PRIORITIES)
    filter_ = job_subjects.calls_of(m.mesh, priority, kind, below=False)
    async with m.engine.log.work(filter_, name=queue_name(kind, priority)) as queue:
        queue.grant(STOLEN)
        try:
            async with asyncio.timeout(m.chance.uniform(1.0, 60.0)):
                for _ in range(STOLEN):
                    (await queue.next()).ack()
        except TimeoutError:
            return


async def thirst(m: HostileMember) -> None:
    """Ask for more of a kind's announcements than all others together, and swallow every one."""
    async with asyncio.timeout(m.chance.uniform(*DRINKS_S)):
        await drink(m, m.chance.choice(KINDS))


async def unquenchable(m: HostileMember) -> None:
    """Swallow whatever announcement comes, of every kind, for as long as it lives."""
    async with asyncio.TaskGroup() as tasks:
        for kind in KINDS:
            tasks.create_task(drink(m, kind))


async def drink(m: HostileMember, kind: str) -> None:
    """Join a kind's queues many times over, and acknowledge whatever they hand out."""
    engine = m.engine
    if engine is None:
        return

    async def swallow(queue: WorkQueue) -> None:
        queue.grant(SIP)
        while True:
            (await queue.next()).ack()
            m.swallowed += 1
            queue.grant(1)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for priority in PRIORITIES:
            calls = job_subjects.calls_of(m.mesh, priority, kind, below=False)
            for _ in range(MOUTHS):
                work = engine.log.work(calls, name=queue_name(kind, priority))
                tasks.create_task(swallow(await stack.enter_async_context(work)))


async def flood(m: HostileMember) -> None:
    """Announce one job over and over."""
    found = await m.next_job(State.PENDING)
    if found is None:
        return
    key, _, job = found
    subject = job_subjects.call(m.mesh, job.priority, *key)
    body = OfferBody(kind=key[0], job=key[1], priority=job.priority)
    for _ in range(FLOOD):
        await m.put(subject, m.op(JobOffer, body, prev=m.tail(subject)))


async def bury(m: HostileMember) -> None:
    """Junk on the lane of an open job, more than a reader takes in at once."""
    found = await m.next_job(State.PENDING, State.CLAIMED, State.RUNNING)
    if found is None:
        return
    count = min(m.chance.choice(BURIALS), BURIED_MOST - m.buried)
    await _shovel(m, found[0], count)


async def _shovel(m: HostileMember, key: Key, count: int) -> None:
    subject = m.lane_subject(key)
    for number in range(count):
        m.buried += 1
        await m.put(subject, b"junk %d" % number)


GREED: Final[dict[str, Deed]] = {
    deed.__name__: deed
    for deed in (
        hog,
        cling,
        overreach,
        claim_late,
        steal_announcements,
        thirst,
        flood,
        bury,
    )
}
