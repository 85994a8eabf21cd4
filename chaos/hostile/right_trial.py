"""A member with one right does everything that it can, and another member's work is timed.

In turn it sends what nobody listens to, and does one thing that its right allows
(`behaviours.py`); then all of them at once. Meanwhile another member does ordinary work of the
sort that is under attack, one after another. At the end the owner revokes the right.

With `over` HTTP it does what its right opens there (`chaos/hostile/http`), and the other member's
jobs are submitted and followed over HTTP, too.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.ids import agent_address
from antiphon.sdk.call_options import CallOptions
from antiphon.sdk.mesh import Mesh
from bench.measurement.process_usage import resident_mb
from bench.measurement.report import say
from chaos.hostile.http import floods as http_floods
from chaos.hostile.http.client import NOTHING
from chaos.hostile.http.member import PROJECT
from chaos.hostile.http.work import HttpJobs
from chaos.hostile.reader.target import READER, TargetMesh, flooding, joined_mesh
from chaos.hostile.reader.tasks import KIND
from chaos.hostile.reader.trial import (
    HEALTHY_WITHIN_S,
    MAX_RATIO,
    REVOKED_WITHIN_S,
    Calls,
    Ended,
    FloodMeasurement,
    Plan,
    Work,
    call_job,
    revoke,
)
from chaos.hostile.rights import material
from chaos.hostile.rights.behaviours import BEHAVIOURS

READ: Final = "read"
RIGHTS: Final = ("claim", "schedule", READ, "answer", "message", "lock", "memory")
"""What a member that may read does at the engine is a run of its own (`chaos/hostile/reader`)."""
Over = Literal["engine", "http"]
MAX_GROWTH_MB: Final = 150.0
"""What a node may keep of a member's records: bounded caches that were empty before."""
ATTACK_S: Final = 60.0
QUICK_ATTACK_S: Final = 12.0
BESIDE_S: Final = 1.5
LEAST_S: Final = 4.0
SETTLE_S: Final = 1.0
"""Over HTTP: a member's first requests are answered before it is known what they take. How long
that delays others is in `flooded_max_s` and `healthz_s_max`."""
LATE_S: Final = 20.0
"""After which another member's work counts as lost."""
SPACE: Final = "build.notes"


async def _waiting_job(victim: Mesh, number: int) -> None:
    """A job, and one that waits for it."""
    first = await victim.submit(KIND, number)
    second = await victim.submit(KIND, number, options=CallOptions(after=[first]))
    await second.result()


async def _message(victim: Mesh, number: int) -> None:
    await victim.messages.send(victim.messages.address, number, kind="build.note")
    async with victim.messages.inbox() as inbox:
        await (await anext(inbox)).ack()


async def _lock(victim: Mesh, _: int) -> None:
    async with victim.lock("ordinary", scope=SPACE, ttl=30) as lock:
        lock.check()


async def _document(victim: Mesh, number: int) -> None:
    await victim.memory[SPACE].put("ordinary", number, strategy="local")
    await victim.memory[SPACE].get("ordinary")


def _question(owner: Mesh) -> Work:
    """A question that the owner answers."""

    async def asked(victim: Mesh, number: int) -> None:
        handle = await victim.questions.ask(f"And {number}?", kind="build.ask")
        await owner.questions.answer(handle.kind, handle.id, "yes")
        await handle.result()

    return asked


WORK: Final[dict[str, Work]] = {
    "claim": _waiting_job,
    "schedule": _waiting_job,
    READ: call_job,
    "message": _message,
    "lock": _lock,
    "memory": _document,
}
"""Beside what is asked and answered (`answer`), which needs somebody who answers."""


def floods_of(right: str, over: Over = "engine") -> tuple[str, ...]:
    """What a member with this right does: one thing after the other, and then all at once."""
    if over == "http":
        return http_floods.floods_of(right)
    return (*BEHAVIOURS[right], "everything")


def plan_of(attack_s: float, over: Over, floods: int) -> Plan:
    """So long for all floods, but over HTTP for each until it is seen what the node makes of it.

    There a long attack has each flood twice, with minutes between: a machine's speed changes.
    """
    flood_s = attack_s / floods
    if over == "engine":
        return Plan(flood_s=flood_s, beside_s=min(BESIDE_S, flood_s), rounds=1)
    return Plan(
        flood_s=max(flood_s, LEAST_S),
        beside_s=max(BESIDE_S, flood_s / 3),
        rounds=1 if attack_s < ATTACK_S else 2,
        settle_s=SETTLE_S,
        nothing=NOTHING,
        is_compared_after=True,
    )


async def trial(
    right: str, plan: Plan, floods: Sequence[str] = (), over: Over = "engine"
) -> dict[str, Any]:
    """One mesh, one right, everything that it allows or only these floods; the report."""
    kinds = ("*",) if right == READ else (f"{PROJECT}.*",)
    hostile = Terms(can=(right,), kinds=kinds, alias=READER)
    rights = ("claim", "schedule", "message", "lock", "memory")
    victim = Terms(can=rights, kinds=("build.*",), alias="victim")
    with tempfile.TemporaryDirectory(prefix="antiphon-right-") as directory:
        async with AsyncExitStack() as stack:
            start = stack.enter_async_context
            mesh, homes = await start(joined_mesh(Path(directory), hostile=hostile, victim=victim))
            owner = await start(Mesh.open(home=mesh.home.path, role="client"))
            works = {right: _question(owner) if right == "answer" else WORK[right]}
            others = agent_address(homes["observer"].signer("machine").did, "main")
            place = Path(directory) / "material"
            words = [str(homes[READER].path), right, str(place)]
            if over == "http":
                given = await material.for_http(owner, others)
                words = ["chaos.hostile.http.client", *words, str(mesh.port), str(mesh.sink)]
                works["http"] = jobs = HttpJobs(mesh.port, mesh.victim)
                stack.callback(jobs.close)
            else:
                given = await material.for_engine(owner, right, others)
                words = ["chaos.hostile.rights.client", *words]
            place.write_bytes(msgspec.msgpack.encode(given))
            target = await start(flooding(mesh, *words))
            return await _measured(target, right, plan, floods or floods_of(right, over), works)


async def _measured(
    target: TargetMesh, right: str, plan: Plan, names: Sequence[str], works: dict[str, Work]
) -> dict[str, Any]:
    calls, begun = Calls(target, works, patience_s=LATE_S), time.monotonic()
    floods = FloodMeasurement(target, calls, plan, {name: (name,) for name in names})
    before = {pid: resident_mb(pid) for pid in target.full_nodes}
    revoked_s, growth = 0.0, 0.0
    healthz: dict[str, tuple[float, float]] = {}
    done: dict[str, Any] = {}
    ended: list[str] = []
    measured: dict[str, Any] = {"latency_ratio": 0.0}
    try:
        await calls.during(1.0)  # warm up
        before = {pid: resident_mb(pid) for pid in target.full_nodes}
        await target.worst_probes_s()
        for _ in range(plan.rounds):
            for name in names:
                await floods.measure(name)
                healthz[name] = await target.worst_probes_s()
                growth = max(growth, _growth(before))
        if not plan.is_compared_after:
            await floods.baseline()
        measured = floods.summarize()
        done = await target.command_flooder(names[-1])
        revoked_s, _ = await asyncio.gather(revoke(target), calls.during(plan.flood_s))
        await _ordinary(target, works)
        growth = max(growth, _growth(before))
        healthz["afterwards"] = await target.worst_probes_s()
    except (Ended, TimeoutError, SystemExit) as problem:
        say(f"the run ended early: {problem!r}")
        ended = target.ended or [repr(problem)]
    for one in calls.lost:
        say(f"lost: {one}")
    return {
        "right": right,
        "calls": calls.called,
        "lost": len(calls.lost),
        **measured,
        "node_mb_growth": round(growth, 1),
        "revoked_s": round(revoked_s, 2),
        "services_ended": len(ended),
        "healthz_s_max": max((node_s for node_s, _ in healthz.values()), default=0.0),
        "healthz_beside_s_max": max((sink_s for _, sink_s in healthz.values()), default=0.0),
        "healthz": {name: node_s for name, (node_s, _) in healthz.items()},
        "ended": ended,
        "steps": done.get("answered", done.get("sent", 0)),
        "statuses": done.get("statuses", {}),
        "there_s": round(time.monotonic() - begun, 1),
    }


def _growth(before: dict[int, float]) -> float:
    return max(resident_mb(pid) - mb for pid, mb in before.items())


async def _ordinary(target: TargetMesh, works: dict[str, Work]) -> None:
    """Everything that a member does, once: `Ended` or a timeout if a service does not answer."""
    calls = Calls(target, {**WORK, **works}, patience_s=LATE_S)
    await calls.during(0.0)
    if calls.lost:
        raise Ended(f"ordinary work is not done: {calls.lost}")
    if ended := target.ended:
        raise Ended(", ".join(ended))


def holds(summary: dict[str, Any]) -> bool:
    """Whether nobody was slowed down or ended, and the right was taken back in time."""
    return (
        not summary["lost"]
        and not summary["services_ended"]
        and summary["latency_ratio"] <= MAX_RATIO
        and summary["node_mb_growth"] <= MAX_GROWTH_MB
        and summary["revoked_s"] <= REVOKED_WITHIN_S
        and summary["healthz_s_max"] <= HEALTHY_WITHIN_S
    )
