"""`bench replay`: a new full node on a long log, and the same node started again.

Writes N signed records to a real server (synced at intervals: writing is not what is measured),
starts a full node in a process of its own on an empty replica and times it until it has verified
and stored everything; then starts it once more on that replica. Memory is the process's peak.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

from antiphon import assembly
from antiphon.engines.nats import LocalServer, NatsEngine
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from bench.measurement.child_process import printed_by
from bench.measurement.report import conclude, say
from bench.signed_log import SignedLog

WINDOW = 2000


async def write_log(home: StateDirectory, server: LocalServer, ops: int) -> None:
    """Write N records in order; sequences come out as generated."""
    log = SignedLog(SystemClock().now_ms() - 3_600_000)
    engine = await NatsEngine.connect(server.url, log.mesh, login=server.login, create=True)
    try:
        under_way: deque[asyncio.Task[int]] = deque()
        for record in log.records(ops):
            append = engine.log.append(
                record.subject,
                record.payload,
                message_id=record.op_id,
                expected_last=record.prev,
                timeout_s=60,
            )
            under_way.append(asyncio.ensure_future(append))
            if len(under_way) >= WINDOW:
                await under_way.popleft()
            if record.seq % 100_000 == 0:
                say(f"wrote {record.seq:,} records")
        await asyncio.gather(*under_way)
    finally:
        await engine.close()
    home.write(
        MeshFile(mesh=log.mesh, name="bench", engine=server.url),
        Access(user=server.user, password=server.password),
    )


async def follow_to_end(home: StateDirectory) -> dict[str, object]:
    """One full node until it is ready: what the child process does."""
    begun = time.perf_counter()
    async with (
        assembly.join(home, "node") as connection,
        assembly.owned_replica(home.replica, home, connection) as replica,
        assembly.replicating(connection, replica, caretaking=False) as node,
    ):
        took = time.perf_counter() - begun
        return {
            "seconds": took,
            "applied": node.applied,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "counts": replica.sizes.by_state(),
        }


def child(home: StateDirectory) -> dict[str, object]:
    """The node in a process of its own; `started_s` includes Python's own start."""
    begun = time.perf_counter()
    printed = printed_by(sys.executable, "-m", "bench.replay", "--child", str(home.path))
    told: dict[str, object] = json.loads(printed.splitlines()[-1])
    told["started_s"] = time.perf_counter() - begun
    return told


async def run(ops: int) -> int:
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        home = StateDirectory(Path(place) / "home")
        async with LocalServer(Path(place) / "server", sync="default") as server:
            say(f"writing {ops:,} records")
            await write_log(home, server, ops)
            say("replaying")
            first = await asyncio.to_thread(child, home)
            say(f"replayed in {first['seconds']:.1f} s: {first['counts']}")
            again = await asyncio.to_thread(child, home)
            say(f"again in {again['seconds']:.2f} s")
        size_mb = home.replica.stat().st_size / 2**20
    conclude(
        ops=first["applied"],
        seconds=round(float(str(first["seconds"])), 1),
        peak_mb=round(float(str(first["peak_mb"])), 1),
        restart_s=round(float(str(again["seconds"])), 3),
        restart_with_python_s=round(float(str(again["started_s"])), 3),
        ops_per_s=round(ops / float(str(first["seconds"]))),
        replica_mb=round(size_mb, 1),
    )
    return 0 if first["applied"] == ops and float(str(again["seconds"])) < 2 else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench replay")
    parser.add_argument("--ops", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", type=Path)
    args = parser.parse_args(argv)
    if args.child is not None:
        print(json.dumps(asyncio.run(follow_to_end(StateDirectory(args.child)))))
        return 0
    return asyncio.run(run(40_000 if args.quick else args.ops))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
