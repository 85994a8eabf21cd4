"""Many idle workers on one server: what one sends, and what the server and the others pay for it.

The workers are real ones, with a key and a connection each, as tasks of a few processes. With none,
a tenth and all of them there, a light worker with a kind of its own runs a few jobs beside a full
node; with a tenth and all, once they have been idle for a while, what passes through the server is
counted too. Then as many bare connections as a tenth are opened on a server of their own: what
those cost is not for what a worker sends.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from msgspec import Struct

from bench.growth.axes import JOBS, Grown, Milestone, milestone
from bench.measurement.child_process import child_process
from bench.measurement.process_usage import cpu_s
from bench.measurement.report import say
from bench.meshes.idle_fleet import Fleet, Watched
from bench.meshes.idle_worker import LatencySetup, idle_worker, measure


class Times(Struct, frozen=True, kw_only=True):
    """How long it is looked at, in seconds."""

    idle_s: float
    """Before each look: an idle worker asks less and less often."""
    watch_s: float


class Idle(Struct, frozen=True, kw_only=True):
    """So many idle workers."""

    up_s: float
    seen: Watched
    parts: dict[str, float]
    node_cpu_pct: float
    """Of the full node, which hears every heartbeat."""


async def _look(fleet: Fleet, setup: LatencySetup, node_pid: int, more: int, times: Times) -> Idle:
    up_s = await fleet.add(more)
    say(f"{fleet.count:,} workers, the last {more:,} up after {up_s:.0f} s")
    await asyncio.sleep(times.idle_s)
    before_s = cpu_s(node_pid)
    seen = await fleet.watch(setup.servers[0], times.watch_s)
    node_pct = (cpu_s(node_pid) - before_s) / seen.watched_s * 100
    say(f"{seen}")
    parts = await fleet.parts(setup.servers[0], times.watch_s)
    say(f"of one worker, a second: {parts}")
    return Idle(up_s=round(up_s, 1), seen=seen, parts=parts, node_cpu_pct=round(node_pct, 1))


class Bare(Struct, frozen=True, kw_only=True):
    """What one connection that does nothing costs the server."""

    kb: float
    us_per_s: float
    """Processor time for its pings."""


async def _bare(count: int, watch_s: float) -> Bare:
    async with idle_worker(sync="default") as setup, AsyncExitStack() as stack:
        fleet = Fleet(stack, setup.home)
        empty_mb = setup.server_mb()
        await fleet.add(count, are_bare=True)
        seen = await fleet.watch(setup.servers[0], watch_s)
    say(f"{count:,} bare connections: {seen}")
    return Bare(
        kb=round((seen.server_mb - empty_mb) * 1024 / count, 1),
        us_per_s=round(seen.server_cpu_pct * 1e4 / count, 1),
    )


async def run(count: int, times: Times) -> dict[str, object]:
    """The axis, in the words of the others, with what the idle workers cost."""
    tenth = max(count // 10, 1)
    reached: list[Milestone] = []
    looks: list[Idle] = []
    async with idle_worker(sync="default") as setup, AsyncExitStack() as stack:
        home = str(setup.home.path)
        node, _ = await stack.enter_async_context(
            child_process("bench.meshes.node_process", "--home", home)
        )
        before_s = cpu_s(node.pid)
        fleet = Fleet(stack, setup.home)
        await measure(setup, 0, JOBS)  # warm
        reached.append(await milestone(setup, 0, 1, node.pid))
        empty = await fleet.watch(setup.servers[0], min(times.watch_s, 10.0))
        for round_, goal in enumerate((tenth, count), 2):
            looks.append(await _look(fleet, setup, node.pid, goal - fleet.count, times))
            reached.append(await milestone(setup, goal, round_, node.pid))
        node_cpu_ms = round((cpu_s(node.pid) - before_s) * 1000 / count, 3)
    bare = await _bare(tenth, times.watch_s)
    return {
        **Grown(milestones=reached, node_cpu_ms=node_cpu_ms).report(),
        **costs(count, empty, looks, bare),
    }


def costs(count: int, empty: Watched, looks: list[Idle], bare: Bare) -> dict[str, object]:
    """Of one worker, and of that what its connection alone would cost."""
    last = looks[-1].seen
    each_us = (last.server_cpu_pct - empty.server_cpu_pct) * 1e4 / count
    sent = max(last.in_per_s / count, 0.001)
    return {
        "idle_msgs_per_worker": round(last.in_per_s / count, 4),
        "out_msgs_per_worker": round(last.out_per_s / count, 4),
        "parts": looks[-1].parts,
        "in_msgs_per_s": [one.seen.in_per_s for one in looks],
        "out_msgs_per_s": [one.seen.out_per_s for one in looks],
        "server_cpu_pct": [empty.server_cpu_pct, *(one.seen.server_cpu_pct for one in looks)],
        "fleet_cpu_pct": [one.seen.fleet_cpu_pct for one in looks],
        "fleet_mb": [one.seen.fleet_mb for one in looks],
        "node_cpu_pct": [one.node_cpu_pct for one in looks],
        "up_s": [one.up_s for one in looks],
        "server_kb_per_worker": round((last.server_mb - empty.server_mb) * 1024 / count, 1),
        "server_kb_per_connection": bare.kb,
        "server_us_per_worker_s": round(each_us, 1),
        "server_us_per_connection_s": bare.us_per_s,
        "server_us_per_message": round((each_us - bare.us_per_s) / sent),
        "watched_s": last.watched_s,
    }
