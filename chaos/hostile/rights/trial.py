"""A member with one right does everything that it can, and another member's work is timed.

In turn it sends what nobody listens to, and does one thing that its right allows
(`behaviours.py`); then all of them at once. Meanwhile another member does ordinary work of the
sort that is under attack, one after another. At the end the owner revokes the right.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.ids import agent_address
from antiphon.sdk.call_options import CallOptions
from antiphon.sdk.mesh import Mesh
from bench.measurement.process_usage import resident_mb
from bench.measurement.report import say
from chaos.hostile.reader.target import READER, TargetMesh, flooding, joined_mesh
from chaos.hostile.reader.tasks import KIND
from chaos.hostile.reader.trial import (
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
from chaos.hostile.rights import member
from chaos.hostile.rights.behaviours import BEHAVIOURS

RIGHTS: Final = tuple(BEHAVIOURS)
MAX_GROWTH_MB: Final = 150.0
"""What a node may keep of a member's records: bounded caches that were empty before."""
ATTACK_S: Final = 60.0
QUICK_ATTACK_S: Final = 12.0
BESIDE_S: Final = 1.5
JOBS: Final = 240
"""Jobs that are submitted for a member that may claim."""
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


WORK: Final[dict[str, Work]] = {
    "claim": _waiting_job,
    "schedule": _waiting_job,
    "message": _message,
    "lock": _lock,
    "memory": _document,
}


def floods_of(right: str) -> tuple[str, ...]:
    """What a member with this right does: one thing after the other, and then all at once."""
    return (*BEHAVIOURS[right], "everything")


def plan_of(flood_s: float) -> Plan:
    """So long for each flood."""
    return Plan(flood_s=flood_s, beside_s=min(BESIDE_S, flood_s), rounds=1)


async def trial(right: str, plan: Plan, floods: Sequence[str] = ()) -> dict[str, Any]:
    """One mesh, one right, everything that it allows or only these floods; the report."""
    hostile = Terms(can=(right,), kinds=("render.*",), alias=READER)
    rights = ("claim", "schedule", "message", "lock", "memory")
    victim = Terms(can=rights, kinds=("build.*",), alias="victim")
    with tempfile.TemporaryDirectory(prefix="antiphon-right-") as directory:
        meshes = joined_mesh(Path(directory), hostile=hostile, victim=victim)
        async with meshes as (mesh, homes):
            jobs = await _jobs(mesh) if right == "claim" else []
            others = agent_address(homes["observer"].signer("machine").did, "main")
            words = (str(homes[READER].path), right, others, ",".join(jobs))
            async with flooding(mesh, "chaos.hostile.rights.client", *words) as target:
                return await _measured(target, right, plan, floods or floods_of(right))


async def _jobs(target: TargetMesh) -> list[str]:
    """Ordinary work for a member that may claim, submitted by the owner."""
    async with Mesh.open(home=target.home.path, role="client") as owner:
        handles = [await owner.submit(member.KIND, number) for number in range(JOBS)]
    return [one.id for one in handles]


async def _measured(
    target: TargetMesh, right: str, plan: Plan, names: Sequence[str]
) -> dict[str, Any]:
    calls, begun = Calls(target, WORK[right], patience_s=LATE_S), time.monotonic()
    floods = FloodMeasurement(target, calls, plan, {name: (name,) for name in names})
    before = {pid: resident_mb(pid) for pid in target.full_nodes}
    revoked_s, sent, growth = 0.0, 0, 0.0
    ended: list[str] = []
    measured: dict[str, Any] = {"latency_ratio": 0.0}
    try:
        await calls.during(1.0)  # warm up
        before = {pid: resident_mb(pid) for pid in target.full_nodes}
        for name in names:
            await floods.measure(name)
            growth = max(growth, _growth(before))
        await floods.baseline()
        measured = floods.summarize()
        sent = (await target.command_flooder(names[-1]))["sent"]
        revoked_s, _ = await asyncio.gather(revoke(target), calls.during(plan.flood_s))
        await _ordinary(target)
        growth = max(growth, _growth(before))
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
        "ended": ended,
        "steps": sent,
        "there_s": round(time.monotonic() - begun, 1),
    }


def _growth(before: dict[int, float]) -> float:
    return max(resident_mb(pid) - mb for pid, mb in before.items())


async def _ordinary(target: TargetMesh) -> None:
    """Everything that a member does, once: `Ended` or a timeout if a service does not answer."""
    for work in (call_job, *dict.fromkeys(WORK.values())):
        calls = Calls(target, work, patience_s=LATE_S)
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
    )
