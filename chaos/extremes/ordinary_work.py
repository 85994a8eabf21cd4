"""Whether every service still does ordinary work, for somebody who did nothing odd.

A machine may be slow, so nothing is judged by seconds. A probe looks again and again whether its
work is done, and each look takes until both full nodes have read what was on the log: as long as
they are behind, nothing is expected of a service. What is not done after so many looks never is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from antiphon.core import manifest
from antiphon.core.families.jobs.derivation import Cron
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.plans.ops import DropBody, PlanDrop, PlanPut
from antiphon.core.families.plans.state import plan_key
from antiphon.errors import AntiphonError, Unavailable
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.call_options import CallOptions
from antiphon.sdk.mesh import Mesh
from chaos.extremes.known import WORKED
from chaos.extremes.target import Target

SPACE: Final = "y.notes"
PLAN: Final = "ordinary"
LOOK_S: Final = 0.1
LOOKS: Final = 2_000
"""On a machine that keeps up, some minutes; a busy one has needed half of one."""
TOLD: Final = 200

T = TypeVar("T")


class Idle(Exception):
    """A service does not do its work."""


async def _job(mesh: Mesh, _: Target) -> None:
    handle = await mesh.submit(WORKED, "ordinary", os.urandom(4).hex())
    if await handle.result() != 2:
        raise Idle("a job has another result")


async def _waiting_job(mesh: Mesh, _: Target) -> None:
    first = await mesh.submit(WORKED, os.urandom(4).hex())
    second = await mesh.submit(WORKED, "x", "y", options=CallOptions(after=[first]))
    if await second.result() != 2:
        raise Idle("a job that waited has another result")


async def _plan(mesh: Mesh, target: Target) -> None:
    content = manifest.author(
        {"command": [f"@{WORKED}"], "args": [call_text((), {})], "timeout": 30}
    )
    trigger = Cron(at="* * * * * *", zone="UTC")
    body = PlanBody(kind=WORKED, manifest=content, name=PLAN, trigger=trigger)
    key = plan_key(WORKED, PLAN)
    lane = (await mesh.connection.session.read(key)).lane
    put = await write_one(mesh.connection.session, Intent(PlanPut, body, lane), BEHIND)
    while not any(
        job.plan and job.scheduler == mesh.connection.session.author.did
        for job in target.host.node.replica.ask(ReplicaJobs).jobs(kind=WORKED, limit=500)
    ):
        await asyncio.sleep(LOOK_S)
    drop = DropBody(kind=WORKED, name=PLAN)
    await write_one(mesh.connection.session, Intent(PlanDrop, drop, put.lane), BEHIND)


async def _lock(mesh: Mesh, _: Target) -> None:
    async with mesh.lock("ordinary", scope=SPACE, ttl=30) as lock:
        lock.check()


async def _document(mesh: Mesh, _: Target) -> None:
    said = os.urandom(4).hex()
    await mesh.memory[SPACE].put("ordinary", said, strategy="local")
    found = await mesh.memory[SPACE].get("ordinary")
    if found is None or found.value != said:
        raise Idle(f"a document has {found}")


async def _message(mesh: Mesh, _: Target) -> None:
    said = os.urandom(4).hex()
    sent = await mesh.messages.send(mesh.messages.address, said, kind="note")
    async with mesh.messages.inbox() as inbox:
        async for message in inbox:  # a probe that is repeated has sent others
            await message.ack()
            if message.id == sent:
                break
        if message.payload != said:
            raise Idle(f"a message has another payload: {message!r}")


async def _seal(mesh: Mesh, target: Target) -> None:
    newest = await mesh.connection.session.log.last()
    node = target.host.node
    while node.seals.upto < (newest.seq if newest is not None else 0):
        await asyncio.sleep(LOOK_S)


Work = Callable[[Mesh, Target], Awaitable[None]]
WORK: Final[dict[str, Work]] = {
    "a job": _job,
    "a job that waits for another": _waiting_job,
    "a tick of a plan": _plan,
    "a lock": _lock,
    "a document": _document,
    "a message": _message,
    "a seal": _seal,
}


async def until_done(work: Callable[[], Awaitable[T]], look: Callable[[], Awaitable[None]]) -> T:
    """What the work gives, however long that takes; `Idle` if it is not done after so many looks.

    What fails because something takes too long is tried again.
    """
    problem: Exception | None = None
    doing = asyncio.ensure_future(work())
    try:
        for _ in range(LOOKS):
            await asyncio.wait((doing,), timeout=LOOK_S)
            if doing.done():
                try:
                    return doing.result()
                except (Unavailable, TimeoutError) as late:
                    problem, doing = late, asyncio.ensure_future(work())
            await look()
    finally:
        doing.cancel()
        await asyncio.wait((doing,))
    raise Idle(f"not done after {LOOKS} looks at nodes that keep up; {problem!r}")


async def keep_up(target: Target) -> None:
    """Wait until the full nodes have read what is on the log; `Idle` if one stands still."""
    if target.ended():
        return
    with suppress(Unavailable, TimeoutError):
        newest = await target.host.node.session.log.last()
        for node in target.nodes:
            still = 0
            while newest is not None and node.applied < newest.seq:
                before = node.applied
                await asyncio.sleep(LOOK_S)
                still = still + 1 if node.applied == before else 0
                if still > LOOKS:
                    raise Idle(f"a full node stands still at record {node.applied}")


async def services_ended(target: Target) -> list[str]:
    """The parts of the mesh that ended, and the ordinary work that is not done any more."""
    ended = target.ended()
    look = partial(keep_up, target)
    home = None if target.is_host_gone else await _joined(target, look)
    if home is None:
        return [*ended, "nobody can join, so no ordinary work was tried"]
    async with Mesh.open(home=home, role="client") as mesh:
        for name, work in WORK.items():
            begun = time.monotonic()
            try:
                await until_done(partial(work, mesh, target), look)
            except (Idle, AntiphonError, OSError, ValueError) as problem:
                late = f"{problem!r} after {time.monotonic() - begun:.1f} s"
                ended.append(f"{name}: {late}"[:TOLD])
    return [*ended, *(one for one in target.ended() if one not in ended)]


async def _joined(target: Target, look: Callable[[], Awaitable[None]]) -> Any:
    """A member that was not there before; None if the gate admits nobody."""
    try:
        join = partial(target.join, "ordinary", ("all",), "*")
        return (await until_done(join, look)).path
    except (Idle, AntiphonError, OSError):
        return None
