"""Many jobs through one mesh with its archive on, and whether the last go as quickly as the first.

A caller, a worker, a coordinator and a server, each a process of its own, from the first job to the
last. An hour is short here, and what ended before it is archived and purged beside the work. The
jobs come in ten parts; each is submitted, and waited for until all of it has ended. Of each there
are the jobs per second by the wall clock, which depends on what else the machine does, the
processor time per job of each process, which depends on it far less, and what is on the log.

At the end the coordinator is given time to archive the rest, and a full node begins anew with the
newest snapshot. Calls are fresh ones: an answer that may be asked for again stays for 30 days.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from antiphon import assembly
from antiphon.assembly.mesh_connection import MeshConnection
from antiphon.core.record import subjects
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from bench.measurement.child_process import child_process, start_together
from bench.measurement.process_usage import cpu_s, resident_mb
from bench.measurement.report import say
from bench.meshes.archiving_node import (
    Hot,
    Newcomer,
    archive_bytes,
    file_bytes,
    hot,
    newcomer,
)
from bench.meshes.job_load import ended_well, job_body, newest_seq
from bench.meshes.local_cluster import found_mesh, running_servers
from bench.meshes.short_hours import short_hours, short_rules

PARTS: Final = 10
SLOTS: Final = 384
JUDGED: Final = 100
"""Of the last jobs, by another session."""
SLICE: Final = 150
"""Jobs that are submitted at once, and that may not have ended when more are. A job that waits for
longer than a tenth of an hour keeps those behind it on the log for longer, and hours are short."""
BEHIND: Final = 6_000
"""Records that the newest seal may be behind when more jobs are submitted: a coordinator that falls
behind archives late, and hours are short."""
LOOK_S: Final = 0.05
READ: Final = 1_000
PART_WITHIN_S: Final = 3_600.0
WHO: Final = ("worker", "node", "server", "caller")
COMPLETION: Final = b'"type":"job.complete"'


class Part(Struct, frozen=True):
    """One tenth of the jobs."""

    per_s: float
    cpu_ms: dict[str, float]
    """Per job, by process."""
    resident_mb: dict[str, float]
    hot: Hot
    """What is on the log after it."""


class Kept(Struct, frozen=True):
    """What is left of all jobs an hour after the last."""

    hot: Hot
    archive: int
    """Bytes of the archive's files."""
    replica: int
    """Bytes of the coordinator's replica."""
    fresh: Newcomer
    judged_ok: int


class _Ends:
    """Counts completions on the log."""

    def __init__(self, session: Session, after: int) -> None:
        self._session, self._after = session, after
        self._lanes = f"{subjects.root(session.mesh)}.jobs.job.>"
        self.count = 0
        self.used_s = 0.0
        """Processor time of this process for counting, which is no caller's."""

    async def reach(self, count: int) -> None:
        """Return when there are so many."""
        async with asyncio.timeout(PART_WITHIN_S):
            while self.count < count:
                began_s = time.process_time()
                page = await self._session.log.read(self._after, limit=READ, subject=self._lanes)
                self.count += sum(COMPLETION in one.payload for one in page.records)
                self._after = page.records[-1].seq if page.records else self._after
                self.used_s += time.process_time() - began_s
                if not page.more:
                    await asyncio.sleep(LOOK_S)


class _Run:
    """The processes of one run."""

    def __init__(self, place: Path, hour_s: float) -> None:
        self.place, self.hour_s = place, hour_s
        self.home = StateDirectory(place / "home")
        self.archive = place / "archive"
        self.pids: dict[str, int] = {}
        self.submitted: list[str] = []

    async def start(self, stack: AsyncExitStack) -> MeshConnection:
        """Found the mesh and start everybody; the caller is this process."""
        stack.enter_context(short_hours())
        (server,) = await stack.enter_async_context(running_servers(self.place, 1))
        await found_mesh(self.home, [server], short_rules(self.hour_s))
        home = ("--home", str(self.home.path))
        slots = ("--slots", str(SLOTS), "--short-hours")
        hours = ("--archive", str(self.archive), "--hour", str(self.hour_s))
        started = await start_together(
            stack,
            [
                child_process("bench.meshes.worker", *home, *slots),
                child_process("bench.meshes.archiving_node", *home, *hours),
            ],
        )
        pids = [pid for pid, _ in started]
        self.pids = {"worker": pids[0], "node": pids[1], "server": server.pid or 0}
        caller = await stack.enter_async_context(assembly.join(self.home, "client"))
        await caller.session.sync_control()
        return caller

    async def parts(self, caller: MeshConnection, jobs: int) -> list[Part]:
        """All jobs, a tenth at a time."""
        ends = _Ends(caller.session, await newest_seq(caller.session))
        found: list[Part] = []
        for number in range(PARTS):
            found.append(await self._part(caller, ends, number, jobs // PARTS))
            part, count = found[-1], (number + 1) * (jobs // PARTS)
            say(f"{count:,} jobs: {part.per_s:,.0f} jobs/s, {part.cpu_ms}, {part.hot}")
        return found

    async def _part(self, caller: MeshConnection, ends: _Ends, number: int, size: int) -> Part:
        before, began_s = self._used(ends), time.monotonic()
        first, end = number * size, (number + 1) * size
        for begin in range(first, end, SLICE):
            await ends.reach(begin - SLICE)
            await self._keep_pace(caller.session)
            numbers = range(begin, min(begin + SLICE, end))
            bodies = [job_body(one, is_fresh=True) for one in numbers]
            self.submitted += [one.id for one in await submit_many(caller.session, bodies)]
            del self.submitted[:-JUDGED]
        await ends.reach(end)
        took_s, after = time.monotonic() - began_s, self._used(ends)
        return Part(
            size / took_s,
            {who: round((after[who] - before[who]) * 1000 / size, 3) for who in WHO},
            {who: round(resident_mb(pid)) for who, pid in self.pids.items()},
            await hot(caller.engine, caller.session.mesh),
        )

    async def _keep_pace(self, session: Session) -> None:
        """Wait while the coordinator is far behind, once it has sealed for the first time."""
        subject = f"{subjects.root(session.mesh)}.seal"
        while found := await session.log.newest([subject]):
            op, _, _ = found[-1].payload.partition(b"\n")
            upto = int(msgspec.json.decode(op)["body"]["upto"])
            if await newest_seq(session) - upto <= BEHIND:
                return
            await asyncio.sleep(LOOK_S)

    def _used(self, ends: _Ends) -> dict[str, float]:
        of_others = {who: cpu_s(pid) for who, pid in self.pids.items()}
        return {**of_others, "caller": time.process_time() - ends.used_s}

    async def kept(self, caller: MeshConnection) -> Kept:
        """Judge some of the last jobs, wait until they are archived, and begin anew."""
        well = await ended_well(caller.session, self.submitted)
        left = await self._archived(caller)
        return Kept(
            hot=left,
            archive=archive_bytes(self.archive),
            replica=file_bytes(self.home.path / "replica.db"),
            fresh=await newcomer(self.home, self.place / "newcomer.db"),
            judged_ok=well,
        )

    async def _archived(self, caller: MeshConnection) -> Hot:
        """What is on the log once nothing has left it for an hour, after the first."""
        left, since_s = await hot(caller.engine, caller.session.mesh), time.monotonic()
        while time.monotonic() - since_s < 2 * self.hour_s:
            await asyncio.sleep(self.hour_s / 10)
            now = await hot(caller.engine, caller.session.mesh)
            if now.records < left.records:
                left, since_s = now, time.monotonic()
        say(f"once all was archived: {left}")
        return left


async def measure(jobs: int, hour_s: float) -> tuple[list[Part], Kept]:
    """All of it, on a mesh of its own."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        run = _Run(Path(place), hour_s)
        async with AsyncExitStack() as stack:
            caller = await run.start(stack)
            parts = await run.parts(caller, jobs)
            return parts, await run.kept(caller)


def report(jobs: int, hour_s: float, parts: list[Part], kept: Kept) -> dict[str, object]:
    """What `bench growth` prints of it; `judged_ok` of `judged` ended well."""
    rates = [one.per_s for one in parts]
    first, last = parts[0].cpu_ms["worker"], parts[-1].cpu_ms["worker"]
    millions = jobs / 1e6
    return {
        "jobs": jobs,
        "hour_s": hour_s,
        "snapshot_start_s": kept.fresh.start_s,
        "snapshot_left_out": kept.fresh.left_out,
        "mb_per_million": round(kept.archive / 1e6 / millions, 1),
        "replica_mb_per_million": round(kept.replica / 1e6 / millions, 1),
        "hot_mb": [round(one.hot.size / 1e6, 2) for one in parts],
        "hot_records": [one.hot.records for one in parts],
        "hot_mb_after": round(kept.hot.size / 1e6, 2),
        "per_s": [round(rate) for rate in rates],
        "last_of_first": round(rates[-1] / rates[0], 3),
        "worker_slope": round(last / max(first, 0.001) - 1, 3),
        **{f"{who}_cpu_ms": [one.cpu_ms[who] for one in parts] for who in WHO},
        **{
            f"{who}_mb": [one.resident_mb[who] for one in parts]
            for who in ("worker", "node", "server")
        },
        "judged": min(JUDGED, jobs // PARTS * PARTS),
        "judged_ok": kept.judged_ok,
    }
