"""`bench writes`: milliseconds and disk syncs per record, by the way in which records are written.

Groups of records, each with a compare-and-set, go to a stream like the log's: as single publishes
in flight together, as one atomic batch, by fast ingest. With one copy and with three, from the
stream's own account and from another, at the leader's server and at another. Every server syncs
always. Time is taken first; syncs are counted afterwards, by strace, on the same servers.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Final

from nats.aio.client import Client

from antiphon.engines.nats import LocalServer
from bench.measurement.process_usage import cpu_s
from bench.measurement.report import conclude, median, say
from bench.writes.engine import CASES, Case, client_of, stream_on
from bench.writes.fsync_count import fsyncs
from bench.writes.ways import WAYS, Way

SIZES: Final = (1, 20, 64, 200)
SMALLEST: Final = {"single": 1, "batch": 2, "fast": 2}
COUNTED_GROUPS: Final = 4
Row = dict[str, object]


async def time_groups(client: Client, way: Way, size: int, for_s: float) -> tuple[list[float], int]:
    """Milliseconds of each group, and how many records there were."""
    took: list[float] = []
    until_s = time.perf_counter() + for_s
    while time.perf_counter() < until_s or not took:
        began_s = time.perf_counter()
        await way(client, size)
        took.append((time.perf_counter() - began_s) * 1000)
    return took, len(took) * size


async def measure(
    servers: list[LocalServer], case: Case, sizes: list[int], for_s: float
) -> list[Row]:
    """One row for each way and size."""
    pids = [server.pid or 0 for server in servers]
    rows: list[Row] = []
    async with client_of(servers, case) as client:
        for name, way in WAYS.items():
            for size in sizes:
                if size < SMALLEST[name]:
                    continue
                await way(client, size)
                server_s = sum(map(cpu_s, pids))
                took, records = await time_groups(client, way, size, for_s)
                server_s = sum(map(cpu_s, pids)) - server_s

                async def some(way: Way = way, size: int = size) -> None:
                    for _ in range(COUNTED_GROUPS):
                        await way(client, size)

                syncs = await fsyncs(pids, some)
                row: Row = {
                    "replicas": case.replicas,
                    "account": case.account,
                    "server": case.place,
                    "way": name,
                    "size": size,
                    "group_ms": round(median(took), 2),
                    "ms_per_record": round(median(took) / size, 3),
                    "server_cpu_ms": round(server_s * 1000 / records, 3),
                    "fsyncs_per_record": None
                    if syncs is None
                    else round(syncs / (COUNTED_GROUPS * size), 2),
                }
                rows.append(row)
                say(
                    f"{case.name}: {name} of {size}: {row['group_ms']} ms,"
                    f" {row['ms_per_record']} ms and {row['fsyncs_per_record']} syncs a record"
                )
    return rows


async def run(cases: list[Case], sizes: list[int], for_s: float) -> int:
    rows: list[Row] = []
    for replicas in sorted({case.replicas for case in cases}):
        async with stream_on(replicas) as servers:
            for case in (case for case in cases if case.replicas == replicas):
                rows += await measure(servers, case, sizes, for_s)
    conclude(rows=rows, sync="always", record_bytes=600, group_s=for_s)
    return 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench writes")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--replicas", type=int, choices=[1, 3], help="only so many copies")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    args = parser.parse_args(argv)
    cases = [case for case in CASES if args.replicas in {None, case.replicas}]
    return asyncio.run(run(cases, args.sizes, 0.1 if args.quick else 1.0))
