"""What a member does with one right to slow others down, or to fill somebody's memory.

By the right, and by a name for the report. `everything` of a right is all of them together.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from antiphon.core import manifest
from antiphon.core.bus.subjects import LOCK_WAIT
from antiphon.core.clock import hlc
from antiphon.core.families.jobs.derivation import Cron, Reaction
from antiphon.core.families.jobs.ops import (
    MAX_AFTER,
    JobSchedule,
    ScheduleBody,
)
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.locks.ops import LockRelease, LockTake, ReleaseBody, TakeBody
from antiphon.core.families.locks.state import lock_key
from antiphon.core.families.memory.ops import (
    MAX_INLINE_LENGTH,
    Inline,
    MemoryBody,
    MemoryPut,
    Stored,
)
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.families.plans.state import plan_key
from antiphon.core.policy.locks.lock_turns import Arrival
from antiphon.core.record.ids import DEFAULT_AGENT, digest, name_of_key
from antiphon.runtime.locks.lock_queue import ARRIVALS
from antiphon.runtime.messages.message_requests import Named
from chaos.hostile.rights.member import KIND, Member, Step
from chaos.hostile.rights.tenures import ANSWERS, CLAIMS

LARGE: Final = 60_000
"""Bytes of a message that is nearly as large as one may be."""
LANES: Final = 4
"""Lanes that it makes long; more would each stay short."""
TOGETHER: Final = 16
LAST_MS: Final = 2**48 - 1

# --- schedule -----------------------------------------------------------------------------------


def _content() -> manifest.Manifest:
    plain = manifest.author({"command": ["true"], "timeout": 30})
    return manifest.with_nonce(plain, os.urandom(16).hex(), "random")


async def _submit(member: Member, **how: Any) -> None:
    kind = how.pop("kind", KIND)
    bodies = [ScheduleBody(kind=kind, manifest=_content(), **how) for _ in range(TOGETHER)]
    drafts = await member.write_new(JobSchedule, bodies)
    found = [manifest.job_id(one.op.body.manifest) for one in drafts]
    member.jobs = [*member.jobs, *found][-MAX_AFTER:]


async def _waiting_jobs(member: Member) -> None:
    """Jobs that wait for many others, which wait too."""
    after = tuple((KIND, one) for one in member.jobs[-256:])
    await _submit(member, after=after or ((KIND, "0" * 64),), after_any_outcome=True)


async def _delayed_jobs(member: Member) -> None:
    await _submit(member, not_before=member.session.wall.now_ms() + 1_000)


async def _junk_labels(member: Member) -> None:
    """A new kind and new labels each time: whoever counts by them counts without end."""
    word = f"j{member.number():x}-{os.urandom(2).hex()}"
    await _submit(member, kind=f"render.{word}", requires=(f"a={word}",), concurrency=word)


async def _quorums(member: Member) -> None:
    await _submit(member, replicas=16, quorum=16)


async def _plan(member: Member, trigger: Cron | Reaction) -> None:
    name = f"p{member.number() % 2_000}"
    body = PlanBody(kind=KIND, manifest=_content(), name=name, trigger=trigger)
    await member.write(PlanPut, body, plan_key(KIND, name))


async def _frequent_plans(member: Member) -> None:
    await _plan(member, Cron(at="* * * * * *", zone="UTC", missed="all"))


async def _unknown_zones(member: Member) -> None:
    await _plan(member, Cron(at="* * * * * *", zone=f"No/Where{member.number()}"))


async def _plans_at_the_ends(member: Member) -> None:
    await _plan(member, Cron(at="0 0 29 2 *", zone="UTC", from_ms=LAST_MS, missed="all"))
    await _plan(member, Reaction(on="ended", kinds="build.*"))


# --- message ------------------------------------------------------------------------------------


async def _dead_letters(member: Member) -> None:
    """Large messages to itself that are over at once: each is buried when it is read."""
    await member.put(member.address, LARGE, ttl_ms=1)
    await member.ask(do="read", limit=64)


async def _ask_for_dead_letters(member: Member) -> None:
    await member.ask(do="dead", limit=1)


async def _wait_for_threads(member: Member) -> None:
    """Wait for threads that have nothing, beside a message that has none."""
    await member.put(member.address)
    await member.ask(do="read", wait_ms=2_500, thread=f"t{member.number()}")


async def _extend(member: Member) -> None:
    handed = (await member.ask(do="read", limit=1, lease_ms=3_600_000)).handed
    for one in handed:
        named = Named(one.id, one.revision)
        for step in range(64):
            held = await member.ask(do="extend", named=(named,), lease_ms=3_600_000 - step)
            named = Named(held.handed[0].id, held.handed[0].revision)


async def _fill_an_inbox(member: Member) -> None:
    await member.put(member.others, LARGE, thread=f"t{member.number()}")


# --- lock and memory ----------------------------------------------------------------------------


async def _take(member: Member, key: str, ttl_ms: int, fence: str | None = None) -> str | None:
    body = TakeBody(kind=KIND, key=key, agent=DEFAULT_AGENT, ttl_ms=ttl_ms, fence=fence)
    draft = await member.write(LockTake, body, lock_key(KIND, key))
    return None if draft is None else fence or hlc.pack(draft.op.hlc)


async def _long_lock(member: Member) -> None:
    """Take and release a few locks, so that their lanes become long."""
    key = f"k{member.number() % LANES}"
    fence = await _take(member, key, 60_000)
    if fence is not None:
        body = ReleaseBody(kind=KIND, key=key, agent=DEFAULT_AGENT, fence=fence)
        await member.write(LockRelease, body, lock_key(KIND, key))


async def _short_renewals(member: Member) -> None:
    """Hold a lock, and renew it for as little as the rules allow."""
    key, least_ms = f"r{member.number()}", member.session.control.rules.lease_min_ms
    fence = await _take(member, key, 60_000)
    for _ in range(32 if fence is not None else 0):
        await _take(member, key, least_ms, fence)


async def _many_locks(member: Member) -> None:
    """A new lock each time."""
    await _take(member, "x" * 500 + os.urandom(6).hex(), 3_600_000)


async def _crowd(member: Member) -> None:
    """Say that many wait for a lock, since long ago."""
    subject, session = LOCK_WAIT.at(kind=KIND), member.session
    for _ in range(TOGETHER):
        said = Arrival(
            name=name_of_key(f"k{member.number() % LANES}"),
            agent=DEFAULT_AGENT,
            ticket=os.urandom(8).hex(),
            arrived_ms=1,
            asks=True,
        )
        payload = ARRIVALS.sign(
            said,
            (member.key.did, member.key.sign),
            mesh=session.mesh,
            subject=subject,
            at_ms=session.wall.now_ms(),
        )
        await session.engine.bus.publish(subject, payload)
    await asyncio.sleep(0.001)


async def _document(member: Member, key: str, value: Any, **how: Any) -> None:
    place = document_key(KIND, key)
    document: Any = (await member.session.read(place)).lane.state
    revision = document.revision if document is not None else 0
    siblings = document.siblings if document is not None else ()
    is_deferred = how.get("strategy") == "defer" and revision
    body = MemoryBody(
        kind=KIND,
        key=key,
        agent=DEFAULT_AGENT,
        value=value,
        base=0 if is_deferred else revision,
        found=revision if is_deferred else None,
        keeps=() if is_deferred else siblings,
        **how,
    )
    await member.write(MemoryPut, body, place)


async def _large_values(member: Member) -> None:
    text = '"' + "x" * (MAX_INLINE_LENGTH - 2) + '"'
    await _document(member, f"large-{os.urandom(4).hex()}", Inline(text=text))


async def _long_document(member: Member) -> None:
    await _document(member, f"long-{member.number() % LANES}", Inline(text="1"))


async def _siblings(member: Member) -> None:
    """As many values beside a document as it can have."""
    value = Stored(hash=digest(os.urandom(8)), size=2**53 - 1)
    await _document(member, f"many-{member.number() % 64}", value, strategy="defer")


BEHAVIOURS: Final[dict[str, dict[str, Step]]] = {
    "claim": CLAIMS,
    "schedule": {
        "waiting jobs": _waiting_jobs,
        "delayed jobs": _delayed_jobs,
        "junk labels": _junk_labels,
        "quorums": _quorums,
        "frequent plans": _frequent_plans,
        "unknown zones": _unknown_zones,
        "plans at the ends": _plans_at_the_ends,
    },
    "answer": ANSWERS,
    "message": {
        "dead letters": _dead_letters,
        "questions about them": _ask_for_dead_letters,
        "thread waits": _wait_for_threads,
        "extends": _extend,
        "a full inbox": _fill_an_inbox,
    },
    "lock": {
        "long lanes": _long_lock,
        "short renewals": _short_renewals,
        "many locks": _many_locks,
        "crowds": _crowd,
    },
    "memory": {
        "large values": _large_values,
        "long lanes": _long_document,
        "siblings": _siblings,
    },
}
