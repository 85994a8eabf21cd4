"""`bench artifacts`: one large file up to a real server and down again, and what it takes.

The server syncs before it acknowledges, as `antiphon dev` and `antiphon up` have it. The client is
a process of its own that keeps a file and fetches it into another, digests checked both ways,
without a cache; `peak_mb` is its highest resident memory. It fails where that is 200 MB or more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from antiphon.engines.nats import LocalServer, Login, NatsEngine
from antiphon.runtime.artifacts.store import Artifacts
from bench.measurement.child_process import printed_by
from bench.measurement.report import conclude, say

MIB = 1024 * 1024
MESH = "bench"
BOUND_MB = 200
CLIENT = "--client"


def write_file(path: Path, size_mb: int) -> None:
    """Random content, so that no two blocks are equal."""
    with path.open("wb") as out:
        for _ in range(size_mb):
            out.write(os.urandom(MIB))


def peak_mb() -> float:
    """This process's highest resident memory."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


async def up_and_down(folder: Path, url: str, user: str, password: str) -> dict[str, float]:
    """What the client does: keep, fetch, and compare."""
    engine = await NatsEngine.connect(url, MESH, login=Login(user, password), create=True)
    try:
        artifacts = Artifacts(engine.blobs)
        begun = time.perf_counter()
        output = await artifacts.keep(folder / "up", "up")
        kept = time.perf_counter()
        await artifacts.fetch(output, folder / "down")
        fetched = time.perf_counter()
    finally:
        await engine.close()
    return {"up_s": kept - begun, "down_s": fetched - kept, "peak_mb": peak_mb()}


def client(folder: Path) -> int:
    print(json.dumps(asyncio.run(up_and_down(folder, **json.loads(sys.stdin.read())))))
    return 0


async def measure(size_mb: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as name:
        folder = Path(name)
        say(f"writing a file of {size_mb} MiB")
        await asyncio.to_thread(write_file, folder / "up", size_mb)
        async with LocalServer() as server:
            login = {"url": server.url, "user": server.user, "password": server.password}
            say("up and down through a server that syncs before it acknowledges")
            printed = await asyncio.to_thread(
                printed_by,
                *(sys.executable, "-m", "bench", "artifacts", CLIENT, name),
                given=json.dumps(login),
            )
    measured: dict[str, float] = json.loads(printed)
    return measured


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench artifacts")
    parser.add_argument("--quick", action="store_true", help="128 MiB instead of 1 GiB")
    parser.add_argument("--size-mb", type=int, default=0, help="so many MiB")
    parser.add_argument(CLIENT, default="", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.client:
        return client(Path(args.client))
    size_mb = args.size_mb or (128 if args.quick else 1024)
    found = asyncio.run(measure(size_mb))
    conclude(
        size_mb=size_mb,
        up_s=round(found["up_s"], 2),
        down_s=round(found["down_s"], 2),
        up_mb_per_s=round(size_mb / found["up_s"], 1),
        down_mb_per_s=round(size_mb / found["down_s"], 1),
        peak_mb=round(found["peak_mb"], 1),
    )
    return 0 if found["peak_mb"] < BOUND_MB else 1
