"""`chaos drain`: SIGTERM to `antiphon worker` in the middle of fifty jobs.

Half of the jobs end within the drain time and must be finished; the others do not, and must be
given back so that a second worker takes them at once. Leases are the default ones, thirty seconds:
a job that waited for one to run out would show. One in five runs in a thread, which nobody can
stop; it is given back all the same, and its fence is what keeps its late end from counting.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon.assembly import hosted_mesh
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from bench.measurement.report import percentile, say
from chaos.audit.execution_journal import ExecutionTally, JournalReader
from chaos.audit.final_check import FinalCheck, check_log
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.mesh import attended
from chaos.cluster.process_events import wait_for_event
from simulator.checks.plain_record import Key

RULES: Final = Rules(authority="open")
KINDS: Final = ("drain.async",) * 4 + ("drain.blocking",)
SHORT_MS: Final = 1_000
LONG_MS: Final = 120_000
"""Longer than a busy machine needs until all of them run and the signal is sent."""
GRACE_S: Final = 5.0
"""Beyond the drain time: to write fifty ends and to disconnect."""
PATIENCE_S: Final = 90.0
ROOT: Final = Path(__file__).parents[2]


class Plan(Struct, frozen=True, kw_only=True):
    """How many jobs, and how long they are given."""

    jobs: int
    drain_s: float


class CommandWorker:
    """An `antiphon worker` as a person would start it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.did = ""

    @classmethod
    async def start(
        cls, home: StateDirectory, journal: Path, plan: Plan, *, quick: bool
    ) -> CommandWorker:
        environment = {
            **os.environ,
            "ANTIPHON_DRAIN_S": str(plan.drain_s),
            "CHAOS_JOURNAL": str(journal),
            "CHAOS_QUICK": "1" if quick else "",
            "PYTHONPATH": str(ROOT),
        }
        process = await start_owned(
            str(Path(sys.executable).parent / "antiphon"),
            *("worker", "chaos.drain.tasks", "--json", "--slots", str(plan.jobs)),
            *("--home", str(home.path)),
            stdout=PIPE,
            env=environment,
        )
        worker = cls(process)
        worker.did = (await wait_for_event(process, "ready", within_s=PATIENCE_S))["node"]
        return worker

    async def drained_s(self) -> float:
        """SIGTERM, and how long it takes to end."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            await self.process.wait()
        return time.monotonic() - begun

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def call(session: Session, number: int) -> Key:
    work_ms = SHORT_MS if number % 2 else LONG_MS
    kind = KINDS[number % len(KINDS)]
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text((number, work_ms), {})], "timeout": 60}
    )
    called = await submission.submit(session, ScheduleBody(kind=kind, manifest=content))
    return called.kind, called.id


async def until_running(reader: JournalReader, jobs: int) -> int:
    """Wait until that many run at once; the most that did."""
    tally, most = ExecutionTally(), 0
    deadline = time.monotonic() + PATIENCE_S
    while most < jobs and time.monotonic() < deadline:
        tally.add(reader.read_new())
        most = max(most, sum(not one.ended_ns for one in tally.executions))
        await asyncio.sleep(0.01)
    return most


async def trial(directory: Path, plan: Plan) -> dict[str, object]:
    async with AsyncExitStack() as stack:
        home = StateDirectory(directory / "home")
        journal = directory / "journal"
        reader = JournalReader(journal)
        stack.callback(reader.close)
        server = await stack.enter_async_context(hosted_mesh.development_server(home))
        await hosted_mesh.found_on(home, server, name="chaos", rules=RULES)
        caller = (await stack.enter_async_context(attended(home))).caller
        first = await CommandWorker.start(home, journal, plan, quick=False)
        stack.push_async_callback(first.end)
        promised = [await call(caller, number) for number in range(plan.jobs)]
        # The second starts while the first holds all jobs.
        second, running = await asyncio.gather(
            CommandWorker.start(home, journal, plan, quick=True), until_running(reader, plan.jobs)
        )
        stack.push_async_callback(second.end)
        drained_s = await first.drained_s()
        async with asyncio.timeout(PATIENCE_S):
            for key in promised:
                await submission.wait_for_end(caller, *key)
        check = await check_log(home)
        return {
            **_summarize(check, promised, first.did),
            "running": running,
            "drain_s": round(drained_s, 2),
            "drain_limit_s": plan.drain_s,
            "exit": first.process.returncode,
            "lease_s": RULES.lease_ms / 1000,
        }


def _summarize(check: FinalCheck, promised: list[Key], drained: str) -> dict[str, object]:
    for violation in check.violations:
        say(f"broken law: {violation}")
    ends = [one for results in check.accepted.values() for one in results]
    handovers = check.handovers_s or [0.0]
    return {
        "finished": sum(one.author == drained for one in ends),
        "yielded": check.accepted_ops["job.yield"],
        "waited_for_expiry": check.accepted_ops["job.expire"] + check.late_handovers,
        "lost": len(check.lost(promised)),
        "accepted_twice": len(check.accepted_twice),
        "handover_p50_s": round(percentile(handovers, 0.5), 3),
        "handover_max_s": round(max(handovers), 3),
        "broken_laws": check.violation_count,
    }


def holds(summary: dict[str, Any], plan: Plan) -> bool:
    never = ("waited_for_expiry", "lost", "accepted_twice", "broken_laws", "exit")
    return (
        not any(summary[name] for name in never)
        and summary["running"] == plan.jobs == summary["finished"] + summary["yielded"]
        and summary["drain_s"] <= plan.drain_s + GRACE_S
    )


async def run(plan: Plan) -> int:
    with run_directory() as directory:
        summary = await trial(directory, plan)
    return report(summary, holds=holds(summary, plan))


def main(argv: list[str]) -> int:
    parser = parser_for("drain", "the same: it takes seconds", has_seed=False)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--drain-s", type=float, default=3.0)
    args = parser.parse_args(argv)
    return run_to_end(run(Plan(jobs=args.jobs, drain_s=args.drain_s)))
