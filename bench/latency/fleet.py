"""`bench latency --fleet N`: what many idle light workers cost the server and themselves.

When all are ready and have been idle for a while, the server is asked twice what passed through it
in between; then everything is listened to, and what each part of a worker sends is counted.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from antiphon.assembly import hosted_mesh
from antiphon.engines.nats import LocalServer
from antiphon.runtime.identity.state_directory import StateDirectory
from bench.measurement.process_usage import resident_mb
from bench.measurement.report import conclude, say
from bench.meshes.idle_fleet import IDLE_S, Fleet
from bench.meshes.idle_worker import RULES

WATCHED_S: Final = 120.0


async def run(workers: int, *, is_quick: bool) -> int:
    """Start the fleet, leave it idle, and measure what it costs."""
    idle_s, watch_s = (0.0, 10.0) if is_quick else (IDLE_S, WATCHED_S)
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as directory:
        home = StateDirectory(Path(directory) / "home")
        async with LocalServer(Path(directory) / "server") as server, AsyncExitStack() as stack:
            await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
            assert server.pid is not None
            empty_mb = resident_mb(server.pid)
            fleet = Fleet(stack, home)
            up_s = await fleet.add(workers)
            say(f"{fleet.count} workers up after {up_s:.0f} s; idle for {idle_s:.0f} s")
            await asyncio.sleep(idle_s)
            say(f"watching for {watch_s:.0f} s, twice")
            seen = await fleet.watch(server, watch_s)
            parts = await fleet.parts(server, watch_s)
    conclude(
        workers=fleet.count,
        processes=len(fleet.pids),
        connections=seen.connections,
        in_msgs_per_s=seen.in_per_s,
        idle_msgs_per_worker=round(seen.in_per_s / fleet.count, 4),
        parts=parts,
        out_msgs_per_s=seen.out_per_s,
        server_mb=seen.server_mb,
        server_empty_mb=round(empty_mb, 1),
        fleet_mb=seen.fleet_mb,
        server_cpu_pct=seen.server_cpu_pct,
        fleet_cpu_pct=seen.fleet_cpu_pct,
        up_s=round(up_s, 1),
        watched_s=seen.watched_s,
    )
    return 0
