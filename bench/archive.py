"""`bench archive`: what stays on the hot log when ended jobs are archived and purged.

A real server, its mesh's coordinator with a replica and an archive in files, and a caller that
submits jobs and ends them, two records each, as fast as it can. An hour is a few seconds here
(`--hour`), and so is the retention: rules that no mesh may have. The coordinator archives ten times
in an hour, makes snapshots, seals, writes the archive's files and purges, all beside the work.

What stays on the log is looked at after each part of the jobs; after the first hour it must not
grow (`hot_growth`: last by first). `rate_kept` is the work's rate with purges beside it by the rate
before the first; `purge_share` what requests to purge took of the time. Then `verified` of 1,000
archived jobs, drawn at random, are proved from the files alone, and a new full node begins with the
newest snapshot (`snapshot_start_s`). With `--plot FILE` the hot records are drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly.hosted_mesh import coordinate
from antiphon.core import manifest
from antiphon.core.authority import rules as mesh_rules
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import CancelBody, JobCancel, ScheduleBody
from antiphon.core.families.jobs.state import job_key
from antiphon.errors import AntiphonError
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.archive.archive_store import FolderStore
from antiphon.runtime.archive.archive_writer import ArchiveWriter
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.coordinator.archiver import Archiver, Archiving
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log import session as log_session
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, Policy, unread, write
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.sealer import Sealer
from bench.measurement.report import conclude, median, say
from bench.meshes.local_cluster import found_mesh, running_servers

KIND: Final = "bench.job"
OPS: Final = 5_000_000
QUICK_OPS: Final = 6_000
PART: Final = 100
"""Jobs between two looks at the clock."""
ARCHIVES_AN_HOUR: Final = 10
DRAWN: Final = 1_000
LOOKS: Final = 40
"""How often the hot log is read, from the first job to the last."""
WIDTH: Final = 640
HEIGHT: Final = 240


class Look(Struct, frozen=True):
    """What is on the log after so many jobs."""

    jobs: int
    at_s: float
    records: int
    subjects: int
    size: int


def body_of(number: int) -> ScheduleBody:
    """A job that nobody asks for again."""
    content = manifest.author({"command": ["true"], "timeout": 30})
    return ScheduleBody(
        kind=KIND, manifest=manifest.with_nonce(content, f"{number:032x}", "random")
    )


async def some_jobs(session: Session, first: int, count: int) -> None:
    """Submit jobs and end them: two records on two subjects each."""
    found = await submit_many(session, [body_of(first + at) for at in range(count)])
    empty = session.protocol.empty(job_key(KIND, found[0].id))
    ends = [Intent(JobCancel, CancelBody(kind=KIND, job=one.id), empty, prev=0) for one in found]
    for one in await write(session, ends, Policy(look=unread, insists=False)):
        one.check()


class Hour:
    """A mesh whose hours are short."""

    def __init__(self, place: Path, hour_s: float) -> None:
        """Nothing runs yet."""
        self.hour_s, self.place = hour_s, place
        self.looks: list[Look] = []
        self.rates: list[tuple[bool, float]] = []
        """Jobs in a second, and whether purges had begun."""
        for module in (mesh_rules, log_session):  # no mesh may have such rules
            setattr(module, "RETENTION_LEAST_MS", 1)  # noqa: B010 - a constant

    async def run(self, jobs: int) -> dict[str, object]:
        """All of it."""
        home = StateDirectory(self.place / "home")
        rules = Rules(
            authority="open",
            retention_ms=round(self.hour_s * 1000),
            max_drift_ms=200,
        )
        async with (
            running_servers(self.place, 1) as servers,
            AsyncExitStack() as stack,
        ):
            await found_mesh(home, servers, rules)
            own = await stack.enter_async_context(assembly.join(home, "node"))
            caller = await stack.enter_async_context(assembly.join(home, "client"))
            replica = await stack.enter_async_context(
                assembly.owned_replica(self.place / "replica.db", None, own)
            )
            node = await stack.enter_async_context(
                assembly.replicating(own, replica, caretaking=False)
            )
            await coordinate(home, own.session)
            await caller.session.sync_control()
            files = FolderStore(self.place / "archive")
            self.writer = ArchiveWriter(node, own.keyring, files, round_s=0.2)
            self.archiver = Archiver(
                node,
                Archiving(every_s=self.hour_s / ARCHIVES_AN_HOUR, is_purging=True),
                copied=lambda: self.writer.size,
            )
            sealer = Sealer(node, bar_s=min(1.0, self.hour_s / 60), calm_s=0.05)
            services = [self.writer.run(), self.archiver.run(), sealer.run()]
            running = [asyncio.ensure_future(one) for one in services]
            began_s = time.monotonic()
            try:
                await self._work(caller.session, node, jobs, began_s)
                took_s = time.monotonic() - began_s
            finally:
                for one in running:
                    one.cancel()
                await asyncio.gather(*running, return_exceptions=True)
            found = await self._after(files, jobs)
            start = await self._newcomer(home)
        return {**self._hot(jobs), **self._rates(took_s), **found, **start}

    async def _work(self, session: Session, node: FullNode, jobs: int, began_s: float) -> None:
        every = max(PART, jobs // LOOKS)
        for first in range(0, jobs, PART):
            before_s = time.monotonic()
            await some_jobs(session, first, min(PART, jobs - first))
            rate = min(PART, jobs - first) / (time.monotonic() - before_s)
            self.rates.append((self.archiver.requests > 0, rate))
            await node.reached((await _newest(session)) - 4 * PART)  # it keeps pace
            if first // every != (first + PART) // every:
                self.looks.append(await _hot(session, first + PART, time.monotonic() - began_s))
                last = self.looks[-1]
                say(f"{last.at_s:.0f} s, {last.jobs:,} jobs: {last.records:,} records are hot")

    def _hot(self, jobs: int) -> dict[str, object]:
        """What stayed on the log after the first hour, and whether it grew."""
        later = [one for one in self.looks if one.at_s > 1.5 * self.hour_s] or self.looks[-1:]
        half = max(1, len(later) // 2)
        first, last = later[:half], later[-half:]
        mean = [sum(one.records for one in part) / len(part) for part in (first, last)]
        return {
            "ops": 2 * jobs,
            "hot_mb": round(max(one.size for one in later) / 1e6, 3),
            "hot_records": max(one.records for one in later),
            "hot_subjects": max(one.subjects for one in later),
            "hot_growth": round(mean[1] / mean[0], 3),
            "bytes_per_job": round(later[-1].size / max(1, later[-1].records) * 2),
        }

    def _rates(self, took_s: float) -> dict[str, object]:
        before = [rate for is_purging, rate in self.rates if not is_purging]
        beside = [rate for is_purging, rate in self.rates if is_purging] or before
        return {
            "jobs_per_s": round(median(beside)),
            "rate_kept": round(median(beside) / median(before or beside), 3),
            "requests": self.archiver.requests,
            "purged": self.archiver.purged,
            "purge_share": round(self.archiver.purging_s / took_s, 4),
        }

    async def _after(self, files: FolderStore, jobs: int) -> dict[str, object]:
        """Jobs that left the log, proved from the files alone."""
        rest, gone = random.Random("archive"), self.archiver.purged // 2
        drawn = [rest.randrange(max(1, gone)) for _ in range(min(DRAWN, gone))]
        reader = await ArchiveReader.open(files)
        verified = 0
        for number in drawn:
            key = job_key(KIND, manifest.job_id(body_of(number).manifest))
            try:
                verified += await assembled(reader, key) is not None
            except AntiphonError as problem:
                say(f"job {number}: {problem}")
        size = sum(one.stat().st_size for one in files.folder.rglob("*") if one.is_file())
        return {
            "drawn": len(drawn),
            "verified": verified,
            "archive_bytes_per_job": round(size / jobs),
            "replica_bytes_per_job": round((self.place / "replica.db").stat().st_size / jobs),
        }

    async def _newcomer(self, home: StateDirectory) -> dict[str, object]:
        """A full node that begins now."""
        async with AsyncExitStack() as stack:
            fresh = await stack.enter_async_context(assembly.join(home, "node"))
            path = self.place / "newcomer.db"
            replica = await stack.enter_async_context(assembly.owned_replica(path, None, fresh))
            began_s = time.monotonic()
            node = assembly.replicating(fresh, replica, caretaking=False)
            entered = await stack.enter_async_context(node)
            took_s = time.monotonic() - began_s
            return {
                "snapshot_start_s": round(took_s, 2),
                "snapshot_left_out": replica.tree.base,
                "snapshot_replica_mb": round(path.stat().st_size / 1e6, 2),
                "records": entered.applied,
            }


async def _newest(session: Session) -> int:
    newest = await session.log.last()
    return newest.seq if newest is not None else 0


async def _hot(session: Session, jobs: int, at_s: float) -> Look:
    """Records, subjects and bytes that are on the log now."""
    records, size, after, named, more = 0, 0, 0, set[str](), True
    while more:
        page = await session.log.read(after, limit=1_000)
        for one in page.records:
            records, size, after = records + 1, size + len(one.payload), one.seq
            named.add(one.subject)
        more = page.more
    return Look(jobs, at_s, records, len(named), size)


def plot(looks: list[Look]) -> str:
    """The hot records, from the first job to the last."""
    most, last = max(one.records for one in looks), looks[-1].jobs
    points = " ".join(
        f"{50 + 540 * one.jobs / last:.1f},{210 - 180 * one.records / most:.1f}" for one in looks
    )
    line = f'<polyline fill="none" stroke="#2166ac" stroke-width="1.5" points="{points}"/>'
    top = f'<text x="50" y="20">records on the log (0…{most:,})</text>'
    foot = f'<text x="50" y="{HEIGHT - 8}">from the first job to job {last:,}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' font-family="sans-serif" font-size="11">{line}{top}{foot}</svg>\n'
    )


def main(argv: list[str]) -> int:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(prog="bench archive", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer ops")
    parser.add_argument("--ops", type=int, default=OPS)
    parser.add_argument("--hour", type=float, default=0.0, help="how many seconds an hour is")
    parser.add_argument("--plot", type=Path, help="where to draw it, as SVG")
    given = parser.parse_args(argv)
    ops = min(given.ops, QUICK_OPS) if given.quick else given.ops
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        hour = Hour(Path(place), given.hour or (3.0 if given.quick else 60.0))
        found: dict[str, Any] = asyncio.run(hour.run(ops // 2))
    if given.plot is not None:
        given.plot.write_text(plot(hour.looks))
    conclude(**found)
    return 0 if found["verified"] == found["drawn"] > 0 else 1
