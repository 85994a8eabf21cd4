"""`chaos hostile --only reader`: a member with the smallest right does the worst that it can.

It may read, and has a raw client and its own login. In turn it floods nothing that anybody hears,
and one thing that somebody does: every request that the gate answers, and every subject that it
may publish on (`hostile_reader_floods`). Meanwhile another member's jobs run, one after another.
At last it floods everything at once while the owner takes its right back.

    latency_ratio   another member's jobs beside the worst sort of flood, and beside one of nothing
    node_mb_growth  of the full node that grew most
    revoked_s       from the owner's command until the reader is out and stays out
    lost            jobs without a result
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon.errors import AntiphonError, Unavailable
from antiphon.sdk import authority
from antiphon.sdk.tasks import CallOptions
from bench.latency_growth import resident_mb
from bench.report import percentile
from chaos.hearing import heard
from chaos.hostile_reader_floods import FLOODS, GROUPS
from chaos.hostile_reader_scene import KIND, READER, Scene, scene
from chaos.reckoning import reckon

RATIO: Final = 2.0
GROWTH_MB: Final = 50.0
REVOKED_S: Final = 5.0
JOB_S: Final = 60.0
"""After which a job counts as lost, if it does not end later."""
AGAIN_S: Final = 0.1
ONCE: Final = CallOptions(once=True)
"""The same call again is the same job."""
SETTLES_S: Final = 0.3
"""Between two floods: what the one before left behind is not the next one's."""


class Plan(Struct, frozen=True, kw_only=True):
    """How long it floods each thing, and nothing in between."""

    flood_s: float
    beside_s: float
    rounds: int


FULL: Final = Plan(flood_s=0.9, beside_s=0.5, rounds=3)
QUICK: Final = Plan(flood_s=0.6, beside_s=0.4, rounds=1)


class Calls:
    """Another member's jobs, and how long each took."""

    def __init__(self, on: Scene) -> None:
        self._on = on
        self.called = 0
        self.lost: list[str] = []

    async def during(self, seconds: float) -> list[float]:
        """One after another, for so long; what each took, in seconds."""
        took: list[float] = []
        deadline = time.monotonic() + seconds
        while not took or time.monotonic() < deadline:
            begun = time.monotonic()
            self.called += 1
            try:
                async with asyncio.timeout(JOB_S):
                    await self._until_done(self.called)
            except (AntiphonError, TimeoutError) as problem:
                self.lost.append(f"{self.called}: {problem!r}")
            took.append(time.monotonic() - begun)
        return took

    async def _until_done(self, number: int) -> None:
        """Call it, and again while the mesh cannot be reached: that is late, and not lost."""
        while True:
            try:
                handle = await self._on.victim.submit(KIND, number, options=ONCE)
                await handle.result()
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
            else:
                return


class Floods:
    """What another member's jobs take beside each flood, and beside the flood of nothing."""

    def __init__(self, on: Scene, calls: Calls, plan: Plan) -> None:
        self._on, self._calls, self._plan = on, calls, plan
        self._beside: list[list[float]] = []
        self._flooded: list[tuple[str, list[float]]] = []

    async def beside(self) -> None:
        """It floods what nobody hears."""
        await self._on.tell_flooder("nowhere")
        await asyncio.sleep(SETTLES_S)
        self._beside.append(await self._calls.during(self._plan.beside_s))

    async def beside_and_during(self, name: str) -> None:
        """The same, and then what somebody hears."""
        await self.beside()
        await self._on.tell_flooder(name)
        took = await self._calls.during(self._plan.flood_s)
        self._flooded.append((name, took))
        words = (
            f"{len(took)} jobs, {percentile(took, 0.5) * 1000:.0f} ms, at most {max(took):.2f} s"
        )
        beside_ms = percentile(self._beside[-1], 0.5) * 1000
        print(f"{name}: {words}; beside {beside_ms:.0f} ms", file=sys.stderr, flush=True)

    def _ratio(self, names: Collection[str], share: float) -> float:
        """Machines are not equally fast all the time: beside what was before and after each."""
        flooded: list[float] = []
        beside: list[float] = []
        for at, (name, took) in enumerate(self._flooded):
            if name in names:
                flooded += took
                beside += self._beside[at] + self._beside[at + 1]
        return round(percentile(flooded, share) / percentile(beside, share), 2)

    def told(self) -> dict[str, Any]:
        """The numbers, of which the first is judged."""
        each = dict.fromkeys(name for name, _ in self._flooded)
        groups = {group: self._ratio(names, 0.5) for group, names in GROUPS.items()}
        flooded = [one for _, took in self._flooded for one in took]
        beside = [one for took in self._beside for one in took]
        return {
            "latency_ratio": max(groups.values()),
            "median_ratio": self._ratio(each, 0.5),
            "p90_ratio": self._ratio(each, 0.9),
            "groups": groups,
            "floods": {name: self._ratio((name,), 0.5) for name in each},
            "beside_p50_ms": round(percentile(beside, 0.5) * 1000, 1),
            "flooded_p50_ms": round(percentile(flooded, 0.5) * 1000, 1),
            "flooded_max_s": round(max(flooded), 2),
        }


async def trial(plan: Plan) -> dict[str, Any]:
    """One mesh, every flood; what came of it."""
    with tempfile.TemporaryDirectory(prefix="antiphon-reader-") as place:
        async with scene(Path(place)) as on:
            calls = Calls(on)
            await calls.during(1.0)  # what is only slow the first time
            before = [resident_mb(pid) for pid in on.full_nodes]
            begun = time.monotonic()
            floods = Floods(on, calls, plan)
            for _ in range(plan.rounds):
                for name in (*FLOODS, "everything"):
                    await floods.beside_and_during(name)
            await floods.beside()
            did = await on.tell_flooder("everything")
            there_s = time.monotonic() - begun
            revoked_s, _ = await asyncio.gather(_revoke(on), calls.during(plan.flood_s))
            await calls.during(1.0)
            growth = [resident_mb(pid) - mb for pid, mb in zip(on.full_nodes, before, strict=True)]
            told = await reckon(on.home)
    for problem in calls.lost:
        print(f"lost: {problem}", file=sys.stderr)
    return {
        "jobs": calls.called,
        "lost": max(len(calls.lost), calls.called - told.succeeded),
        **floods.told(),
        "node_mb_growth": round(max(growth), 1),
        "revoked_s": round(revoked_s, 2),
        "sent": did["sent"],
        "cut_off": did["cut_off"],
        "there_s": round(there_s, 1),
        "accepted_twice": len(told.accepted_twice),
        "records": told.records,
    }


async def _revoke(on: Scene) -> float:
    """Take its right back in the middle of it; seconds until it is out for good."""
    await asyncio.sleep(SETTLES_S)
    begun = time.monotonic()
    async with authority.with_authority(on.home.path) as mesh:
        await authority.revoke(mesh, READER)
    out = await heard(on.flooder, "shut out", within_s=JOB_S)
    return float(out["at_s"]) - begun


def holds(told: dict[str, Any]) -> bool:
    return (
        not told["lost"]
        and not told["accepted_twice"]
        and told["latency_ratio"] <= RATIO
        and told["node_mb_growth"] <= GROWTH_MB
        and told["revoked_s"] <= REVOKED_S
    )
