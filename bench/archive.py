"""`bench archive`: what stays on the hot log when ended jobs are archived and purged.

A mesh in memory in virtual time: jobs are submitted and ended at a steady rate for several
retentions of an hour, and the coordinator archives and purges every ten minutes. What stays on the
log is looked at every ten minutes; after the first retention it must not grow. The engine is in
memory, so `purge_share` is what planning and the requests take of this process's time.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING, Any

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import CancelBody, JobCancel, JobSchedule, ScheduleBody
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.mesh.ops import MeshRules, RulesBody
from antiphon.runtime.coordinator.archiver import Archiver, Archiving
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.sealer import Sealer
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import new_loop
from bench.measurement.report import conclude, say

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session

KIND = "bench.job"
HOUR_S = 3_600.0
ROUND_S = 600.0
HOURS = 4
EPOCH_MS = 1_700_000_000_000


async def one_job(session: Session, number: int) -> str:
    """Submit a job and end it: two records on two subjects."""
    content = manifest.author({"command": ["true"], "timeout": 30})
    content = manifest.with_nonce(content, f"{number:032x}", "random")
    key = job_key(KIND, manifest.job_id(content))
    body = ScheduleBody(kind=KIND, manifest=content)
    empty = session.protocol.empty(key)
    written = await write_one(session, Intent(JobSchedule, body, empty))
    ending = CancelBody(kind=KIND, job=key.name)
    await write_one(session, Intent(JobCancel, ending, written.lane))
    return key.name


async def measure(ops: int, loop: Any) -> dict[str, object]:
    """Write and archive for some simulated hours."""
    clock = HostClock(loop, epoch_ms=EPOCH_MS)
    memory = assembly.MemoryMesh(wall=clock)
    rounds = round(HOURS * HOUR_S / ROUND_S)
    jobs, purge_s, jobs_s, hot = ops // 2 // rounds, 0.0, 0.0, list[tuple[int, int, int]]()
    async with (
        memory.connection("owner", memory.owner) as own,
        assembly.owned_replica(":memory:", None, own) as replica,
        assembly.replicating(own, replica, caretaking=False) as node,
    ):
        session = own.session
        archiver = Archiver(node, Archiving(every_s=ROUND_S, is_purging=True))
        rules = Rules(authority="open", retention_ms=int(HOUR_S * 1000))
        await write_one(session, Intent(MeshRules, RulesBody(rules=rules)))
        names = list[str]()
        for number in range(rounds):
            began = time.perf_counter()
            for at in range(jobs):
                names.append(await one_job(session, number * jobs + at))
            jobs_s += time.perf_counter() - began
            await asyncio.sleep(ROUND_S)
            await archiver.archive()
            await Sealer(node, bar_s=0).seal()
            await node.reached(await _newest(session))
            began = time.perf_counter()
            await archiver.purge()
            purge_s += time.perf_counter() - began
            hot.append(await _hot(session))
            say(f"{(number + 1) * ROUND_S / HOUR_S:.1f} h: {hot[-1][0]:,} records are hot")
        gone = names[: len(names) // 2 : max(1, len(names) // 400)]
        empty = [(await session.read_lane(KIND, one)).lane.job is None for one in gone]
    flat = hot[rounds // HOURS + 1 :]
    return {
        "ops": 2 * jobs * rounds,
        "hot_mb": round(max(size for _, _, size in flat) / 1e6, 3),
        "hot_records": max(count for count, _, _ in flat),
        "hot_subjects": max(count for _, count, _ in flat),
        "hot_growth": round(flat[-1][0] / flat[0][0], 3),
        "bytes_per_job": round(hot[0][2] / jobs),
        "requests": archiver.requests,
        "purged": archiver.purged,
        "purge_share": round(purge_s / (purge_s + jobs_s), 4),
        "drawn": len(empty),
        "emptied": sum(empty),
    }


async def _newest(session: Session) -> int:
    newest = await session.log.last()
    return newest.seq if newest is not None else 0


async def _hot(session: Session) -> tuple[int, int, int]:
    """Records, subjects and bytes that are on the log now."""
    records, size, after, named, more = 0, 0, 0, set[str](), True
    while more:
        page = await session.log.read(after, limit=1_000)
        for one in page.records:
            records, size, after = records + 1, size + len(one.payload), one.seq
            named.add(one.subject)
        more = page.more
    return records, len(named), size


def main(argv: list[str]) -> int:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(prog="bench archive", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer ops")
    parser.add_argument("--ops", type=int, default=200_000)
    given = parser.parse_args(argv)
    loop = new_loop()
    try:
        found = loop.run_until_complete(measure(10_000 if given.quick else given.ops, loop))
    finally:
        loop.close()
    conclude(**found)
    return 0
