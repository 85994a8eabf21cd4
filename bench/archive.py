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
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly.mesh_connection import MeshConnection
from antiphon.core import manifest
from antiphon.core.families.jobs.ops import CancelBody, JobCancel, ScheduleBody
from antiphon.core.families.jobs.state import job_key
from antiphon.errors import AntiphonError
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, Policy, unread, write
from bench.measurement.line_chart import Line, Panel, svg
from bench.measurement.report import conclude, median, say
from bench.meshes.archiving_node import (
    Coordinating,
    Hot,
    archive_bytes,
    coordinating,
    hot,
    newcomer,
)
from bench.meshes.local_cluster import found_mesh, running_servers
from bench.meshes.short_hours import short_hours, short_rules

KIND: Final = "bench.job"
OPS: Final = 5_000_000
QUICK_OPS: Final = 6_000
PART: Final = 100
"""Jobs between two looks at the clock."""
DRAWN: Final = 1_000
LOOKS: Final = 40
"""How often the hot log is read, from the first job to the last."""


class Look(Struct, frozen=True):
    """What is on the log after so many jobs."""

    jobs: int
    at_s: float
    hot: Hot


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

    coordinator: Coordinating

    def __init__(self, place: Path, hour_s: float) -> None:
        """Nothing runs yet."""
        self.hour_s, self.place = hour_s, place
        self.looks: list[Look] = []
        self.rates: list[tuple[bool, float]] = []
        """Jobs in a second, and whether purges had begun."""

    async def run(self, jobs: int) -> dict[str, object]:
        """All of it."""
        with short_hours():
            return await self._run(jobs)

    async def _run(self, jobs: int) -> dict[str, object]:
        home = StateDirectory(self.place / "home")
        files = FolderStore(self.place / "archive")
        async with running_servers(self.place, 1) as servers:
            await found_mesh(home, servers, short_rules(self.hour_s))
            async with assembly.join(home, "client") as caller:
                replica = self.place / "replica.db"
                async with coordinating(home, replica, files, self.hour_s) as self.coordinator:
                    await caller.session.sync_control()
                    began_s = time.monotonic()
                    await self._work(caller, jobs, began_s)
                    took_s = time.monotonic() - began_s
                found = await self._after(files, jobs)
                start = await newcomer(home, self.place / "newcomer.db")
        return {
            **self._hot(jobs),
            **self._rates(took_s),
            **found,
            "snapshot_start_s": start.start_s,
            "snapshot_left_out": start.left_out,
            "snapshot_replica_mb": start.replica_mb,
            "records": start.applied,
        }

    async def _work(self, caller: MeshConnection, jobs: int, began_s: float) -> None:
        session, node = caller.session, self.coordinator.node
        every = max(PART, jobs // LOOKS)
        for first in range(0, jobs, PART):
            before_s = time.monotonic()
            await some_jobs(session, first, min(PART, jobs - first))
            rate = min(PART, jobs - first) / (time.monotonic() - before_s)
            self.rates.append((self.coordinator.archiver.requests > 0, rate))
            await node.reached((await _newest(session)) - 4 * PART)  # it keeps pace
            if first // every != (first + PART) // every:
                seen = await hot(caller.engine, session.mesh)
                at_s = time.monotonic() - began_s
                self.looks.append(Look(first + PART, at_s, seen))
                say(f"{at_s:.0f} s, {first + PART:,} jobs: {seen.records:,} records are hot")

    def _hot(self, jobs: int) -> dict[str, object]:
        """What stayed on the log after the first hour, and whether it grew."""
        later = [one for one in self.looks if one.at_s > 1.5 * self.hour_s] or self.looks[-1:]
        half = max(1, len(later) // 2)
        first, last = later[:half], later[-half:]
        mean = [sum(one.hot.records for one in part) / len(part) for part in (first, last)]
        return {
            "ops": 2 * jobs,
            "hot_mb": round(max(one.hot.size for one in later) / 1e6, 3),
            "hot_records": max(one.hot.records for one in later),
            "hot_subjects": max(one.hot.subjects for one in later),
            "hot_growth": round(mean[1] / mean[0], 3),
            "bytes_per_job": round(later[-1].hot.size / max(1, later[-1].hot.records) * 2),
        }

    def _rates(self, took_s: float) -> dict[str, object]:
        before = [rate for is_purging, rate in self.rates if not is_purging]
        beside = [rate for is_purging, rate in self.rates if is_purging] or before
        return {
            "jobs_per_s": round(median(beside)),
            "rate_kept": round(median(beside) / median(before or beside), 3),
            "requests": self.coordinator.archiver.requests,
            "purged": self.coordinator.archiver.purged,
            "purge_share": round(self.coordinator.archiver.purging_s / took_s, 4),
        }

    async def _after(self, files: FolderStore, jobs: int) -> dict[str, object]:
        """Jobs that left the log, proved from the files alone."""
        rest, gone = random.Random("archive"), self.coordinator.archiver.purged // 2
        drawn = [rest.randrange(max(1, gone)) for _ in range(min(DRAWN, gone))]
        reader = await ArchiveReader.open(files)
        verified = 0
        for number in drawn:
            key = job_key(KIND, manifest.job_id(body_of(number).manifest))
            try:
                verified += await assembled(reader, key) is not None
            except AntiphonError as problem:
                say(f"job {number}: {problem}")
        return {
            "drawn": len(drawn),
            "verified": verified,
            "archive_bytes_per_job": round(archive_bytes(files.folder) / jobs),
            "replica_bytes_per_job": round((self.place / "replica.db").stat().st_size / jobs),
        }


async def _newest(session: Session) -> int:
    newest = await session.log.last()
    return newest.seq if newest is not None else 0


def plot(looks: list[Look]) -> str:
    """The hot records, from the first job to the last."""
    line = Line("records", [one.jobs for one in looks], [one.hot.records for one in looks])
    return svg("What stays on the log", [Panel("records", [line])], "jobs", "bench archive")


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
