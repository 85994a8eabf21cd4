"""Whether every service still does ordinary work, for somebody who did nothing odd."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from antiphon.core import manifest
from antiphon.core.families.jobs.derivation import Cron
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.plans.ops import DropBody, PlanDrop, PlanPut
from antiphon.core.families.plans.state import plan_key
from antiphon.errors import AntiphonError
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.call_options import CallOptions
from antiphon.sdk.mesh import Mesh
from chaos.extremes.known import WORKED
from chaos.extremes.target import PATIENCE_S, Target

SPACE: Final = "y.notes"
PLAN: Final = "ordinary"
LOOK_S: Final = 0.1
TOLD: Final = 200


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
        message = await anext(inbox)
        if (message.id, message.payload) != (sent, said):
            raise Idle(f"another message was handed out: {message!r}")
        await message.ack()


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


async def services_ended(target: Target) -> list[str]:
    """The parts of the mesh that ended, and the ordinary work that is not done any more."""
    ended = target.ended()
    home = None if target.is_host_gone else await _joined(target)
    if home is None:
        return [*ended, "nobody can join, so no ordinary work was tried"]
    async with Mesh.open(home=home, role="client") as mesh:
        for name, work in WORK.items():
            begun = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await work(mesh, target)
            except (Idle, AntiphonError, TimeoutError, OSError, ValueError) as problem:
                late = f"{problem!r} after {time.monotonic() - begun:.1f} s"
                ended.append(f"{name}: {late}"[:TOLD])
    return [*ended, *(one for one in target.ended() if one not in ended)]


async def _joined(target: Target) -> Any:
    """A member that was not there before; None if the gate admits nobody."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return (await target.join("ordinary", ("all",), "*")).path
    except (AntiphonError, TimeoutError, OSError):
        return None
