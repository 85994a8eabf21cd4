"""`chaos hostile --only reader`: a member with the smallest right does the worst that it can.

It may read, and has a raw client and its own login. In turn it floods a subject that nobody
listens to, and something that somebody handles: every request that the gate answers, and every
subject that it may publish on (`floods.py`). Meanwhile another member's jobs run, one after
another. At the end it floods everything at once while the owner revokes its grant.

    latency_ratio   another member's jobs beside the worst sort of flood, and beside one of nothing
    node_mb_growth  of the full node that grew most
    revoked_s       from the owner's command until the reader is out and stays out
    lost            jobs without a result
    healthz_s_max   the longest time until a probe of the owner's node was answered
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import Struct

from antiphon.errors import AntiphonError, Unavailable
from antiphon.sdk.call_options import CallOptions
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.mesh import Mesh
from bench.measurement.process_usage import resident_mb
from bench.measurement.report import percentile, say
from chaos.audit.final_check import check_log
from chaos.cluster.process_events import wait_for_event
from chaos.hostile.reader.floods import FLOODS, GROUPS
from chaos.hostile.reader.target import READER, TargetMesh, target_mesh
from chaos.hostile.reader.tasks import KIND

MAX_RATIO: Final = 2.0
MAX_GROWTH_MB: Final = 50.0
REVOKED_WITHIN_S: Final = 5.0
HEALTHY_WITHIN_S: Final = 1.0
"""After which an orchestrator ends a node that does not answer its probe."""
JOB_S: Final = 60.0
"""After which a job counts as lost, if it does not end later."""
RETRY_S: Final = 0.1
ONCE: Final = CallOptions(once=True)
"""The same call again is the same job."""
SETTLE_S: Final = 0.3
"""Between two floods, so that the next is not measured with what the last left behind."""


class Ended(Exception):
    """A part of the mesh ended, so nothing more can be measured."""


class Plan(Struct, frozen=True, kw_only=True):
    """How long it floods each thing, and a subject without listeners in between."""

    flood_s: float
    beside_s: float
    rounds: int
    settle_s: float = SETTLE_S
    warm_s: float = 1.0
    """How long jobs run before the first flood, and after the last."""
    nothing: str = "nowhere"
    """What the flooder calls a flood of nothing."""
    is_compared_after: bool = False
    """Whether what a flood is compared with follows from it, and so comes after it alone."""


FULL: Final = Plan(flood_s=0.9, beside_s=0.5, rounds=3)
QUICK: Final = Plan(flood_s=0.6, beside_s=0.4, rounds=1)


Work = Callable[[Mesh, int], Awaitable[None]]
"""What another member does, with a number of its own each time."""


async def call_job(victim: Mesh, number: int) -> None:
    """A job of the other member's, from its submission to its result."""
    handle = await victim.submit(KIND, number, options=ONCE)
    await handle.result()


Took = dict[str, list[float]]
"""By sort of work, the seconds that each took."""


class Calls:
    """Another member's work, by default its jobs, and how long each took."""

    def __init__(
        self,
        target: TargetMesh,
        works: Mapping[str, Work] = MappingProxyType({"jobs": call_job}),
        *,
        patience_s: float = JOB_S,
    ) -> None:
        """`works` are done in turn."""
        self._target = target
        self.works = works
        self._patience_s = patience_s
        self.called = 0
        self.lost: list[str] = []

    async def during(self, seconds: float) -> Took:
        """One after another, for so long; what each took, in seconds."""
        took: Took = {name: [] for name in self.works}
        deadline = time.monotonic() + seconds
        while not took[next(reversed(took))] or time.monotonic() < deadline:
            for name, work in self.works.items():
                begun = time.monotonic()
                self.called += 1
                try:
                    async with asyncio.timeout(self._patience_s):
                        await self._until_done(work, self.called)
                except (AntiphonError, TimeoutError) as problem:
                    self.lost.append(f"{name} {self.called}: {problem!r}")
                took[name].append(time.monotonic() - begun)
        return took

    async def _until_done(self, work: Work, number: int) -> None:
        """Call it, and again while the mesh cannot be reached: that is late, and not lost."""
        while True:
            try:
                await work(self._target.victim, number)
            except Unavailable as problem:
                if ended := self._target.ended:
                    raise Ended(f"{', '.join(ended)}: {problem}") from problem
                await asyncio.sleep(RETRY_S)
            else:
                return


class Flooded(NamedTuple):
    """What another member's work took beside one flood, and beside none just before or after."""

    name: str
    took: Took
    beside: list[Took]


class FloodMeasurement:
    """How long another member's work takes beside each flood, and beside the baseline."""

    def __init__(
        self,
        target: TargetMesh,
        calls: Calls,
        plan: Plan,
        groups: Mapping[str, Collection[str]] = GROUPS,
    ) -> None:
        self._target, self._calls, self._plan = target, calls, plan
        self._groups = groups
        self._baseline: list[Took] = []
        self._flooded: list[Flooded] = []

    async def baseline(self) -> Took:
        """It floods a subject that nobody listens to."""
        await self._target.command_flooder(self._plan.nothing)
        await asyncio.sleep(self._plan.settle_s)
        took = await self._calls.during(self._plan.beside_s)
        self._baseline.append(took)
        if self._flooded:
            self._flooded[-1].beside.append(took)
        return took

    async def measure(self, name: str) -> None:
        """A flood that somebody handles, and the baseline before it or after it."""
        beside = [] if self._plan.is_compared_after else [await self.baseline()]
        await self._target.command_flooder(name)
        await asyncio.sleep(self._plan.settle_s if self._plan.is_compared_after else 0.0)
        took = await self._calls.during(self._plan.flood_s)
        self._flooded.append(Flooded(name, took, beside))
        if self._plan.is_compared_after:
            await self.baseline()
        for work, seconds in took.items():
            baseline_ms = percentile(self._baseline[-1][work], 0.5) * 1000
            say(
                f"{name}: {len(seconds)} {work}, {percentile(seconds, 0.5) * 1000:.0f} ms,"
                f" at most {max(seconds):.2f} s; baseline {baseline_ms:.0f} ms"
            )

    def _ratio(self, names: Collection[str], share: float, works: Collection[str] = ()) -> float:
        """By the baselines just before and after each, since a machine's speed changes.

        Of several sorts of work, that of the one that was slowed down most.
        """
        return max(self._ratio_of(work, names, share) for work in works or self._calls.works)

    def _ratio_of(self, work: str, names: Collection[str], share: float) -> float:
        flooded: list[float] = []
        baseline: list[float] = []
        for name, took, beside in self._flooded:
            if name in names:
                flooded += took[work]
                baseline += [second for one in beside for second in one[work]]
        return round(percentile(flooded, share) / percentile(baseline, share), 2)

    def summarize(self) -> dict[str, Any]:
        """The numbers; the first is judged."""
        each = dict.fromkeys(one.name for one in self._flooded)
        groups = {group: self._ratio(names, 0.5) for group, names in self._groups.items()}
        flooded = [one for done in self._flooded for took in done.took.values() for one in took]
        baseline = [one for done in self._baseline for took in done.values() for one in took]
        works = {
            work: {name: self._ratio((name,), 0.5, (work,)) for name in each}
            for work in self._calls.works
        }
        return {
            "latency_ratio": max(groups.values()),
            "median_ratio": self._ratio(each, 0.5),
            "p90_ratio": self._ratio(each, 0.9),
            "groups": groups,
            "floods": {name: self._ratio((name,), 0.5) for name in each},
            "works": works,
            "beside_p50_ms": round(percentile(baseline, 0.5) * 1000, 1),
            "flooded_p50_ms": round(percentile(flooded, 0.5) * 1000, 1),
            "flooded_max_s": round(max(flooded), 2),
        }


async def trial(plan: Plan) -> dict[str, Any]:
    """One mesh, every flood; the report."""
    with tempfile.TemporaryDirectory(prefix="antiphon-reader-") as directory:
        async with target_mesh(Path(directory)) as target:
            calls = Calls(target)
            await calls.during(plan.warm_s)
            before = _nodes_mb(target)
            begun = time.monotonic()
            await target.worst_probes_s()
            floods = FloodMeasurement(target, calls, plan)
            for _ in range(plan.rounds):
                for name in (*FLOODS, "everything"):
                    await floods.measure(name)
                say(f"memory of the full nodes, MB: {_nodes_mb(target)}; before: {before}")
            await floods.baseline()
            done = await target.command_flooder("everything")
            there_s = time.monotonic() - begun
            revoked_s, _ = await asyncio.gather(revoke(target), calls.during(plan.flood_s))
            await calls.during(plan.warm_s)
            growth = [mb - was for mb, was in zip(_nodes_mb(target), before, strict=True)]
            healthz_s, beside_s = await target.worst_probes_s()
            ended = target.ended
            check = await check_log(target.home)
    for problem in calls.lost:
        say(f"lost: {problem}")
    return {
        "jobs": calls.called,
        "lost": max(len(calls.lost), calls.called - check.succeeded),
        **floods.summarize(),
        "node_mb_growth": round(max(growth), 1),
        "revoked_s": round(revoked_s, 2),
        "services_ended": len(ended),
        "healthz_s_max": round(healthz_s, 2),
        "healthz_beside_s_max": round(beside_s, 2),
        "sent": done["sent"],
        "cut_off": done["cut_off"],
        "there_s": round(there_s, 1),
        "accepted_twice": len(check.accepted_twice),
        "records": check.records,
    }


def _nodes_mb(target: TargetMesh) -> list[float]:
    return [round(resident_mb(pid), 1) for pid in target.full_nodes]


async def revoke(target: TargetMesh) -> float:
    """Revoke its grant in the middle of a flood; seconds until it is out for good."""
    await asyncio.sleep(SETTLE_S)
    begun = time.monotonic()
    async with with_authority(target.home.path) as mesh:
        await mesh.authority.revoke(READER)
    assert target.flooder is not None
    out = await wait_for_event(target.flooder, "shut out", within_s=JOB_S)
    return float(out["at_s"]) - begun


def holds(summary: dict[str, Any]) -> bool:
    return (
        not summary["lost"]
        and not summary["accepted_twice"]
        and summary["latency_ratio"] <= MAX_RATIO
        and summary["node_mb_growth"] <= MAX_GROWTH_MB
        and summary["revoked_s"] <= REVOKED_WITHIN_S
        and summary["healthz_s_max"] <= HEALTHY_WITHIN_S
        and not summary["services_ended"]
    )
