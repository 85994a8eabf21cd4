"""`bench latency`: from submitting to the start of the handler, on an idle worker, one at a time.

The worker is another process on the same machine and server. In turn with the jobs, bare records
of the same size travel the same way (published with acknowledgement, handed to a pull consumer in
the worker's process): that is the engine's own part.

`--growth` asks whether a light worker notices that the rest of the mesh grows; `--fleet N` what
many idle ones cost.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Final

from bench.latency import fleet, growth, interleaved
from bench.measurement.report import conclude, percentile, say
from bench.meshes.idle_worker import idle_worker, measure

RATIO: Final = 3.5
"""Of the median start to the engine's own median, in the same run: milliseconds say as much about
the disk and the load of a machine as about us."""


async def run(count: int) -> int:
    async with idle_worker() as setup:
        await measure(setup, 0, 10)  # warm up
        say(f"{count} jobs and {count} bare records, in turn")
        starts, deliveries, acks = await measure(setup, 10, count)
    p50, engine_p50 = percentile(starts, 0.5), percentile(deliveries, 0.5)
    conclude(
        start_p50_ms=round(p50, 2),
        start_p99_ms=round(percentile(starts, 0.99), 2),
        engine_p50_ms=round(engine_p50, 2),
        engine_p99_ms=round(percentile(deliveries, 0.99), 2),
        ratio=round(p50 / engine_p50, 2),
        append_p50_ms=round(percentile(acks, 0.5), 2),
        append_p99_ms=round(percentile(acks, 0.99), 2),
        start_max_ms=round(max(starts), 2),
        jobs=count,
        sync="always",
        replicas=1,
    )
    return 0 if p50 <= RATIO * engine_p50 else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench latency")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--growth", action="store_true", help="beside a mesh that grows")
    parser.add_argument("--fleet", type=int, metavar="N", help="N idle workers on one server")
    parser.add_argument("--before", type=Path, help="a source tree to run the fleet with in turn")
    parser.add_argument("--rounds", type=int, default=3, help="of both trees")
    args = parser.parse_args(argv)
    if args.growth:
        size = (4_000, 2, 50) if args.quick else (100_000, 4, 200)
        return asyncio.run(growth.run(*size))
    if args.fleet and args.before:
        return interleaved.run(args.fleet, args.before, args.rounds, is_quick=args.quick)
    if args.fleet:
        return asyncio.run(fleet.run(args.fleet, is_quick=args.quick))
    return asyncio.run(run(args.jobs or (200 if args.quick else 1_000)))
