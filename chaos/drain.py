"""`chaos drain`: SIGTERM to `antiphon worker` in the middle of fifty jobs.

Half of the jobs end within the drain time and must be finished; the others do not, and must be
given back so that a second worker takes them at once. Leases are the default ones, thirty seconds:
a job that waited for one to run out would show. One in five runs in a thread, which nobody can
stop; it is given back all the same, and its fence is what keeps its late end from counting.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon import assembly, telemetry
from antiphon.assembly import hosting
from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.rules import Rules
from antiphon.runtime import client
from antiphon.runtime.handlers import call_text
from antiphon.runtime.home import Home
from antiphon.runtime.peer import Peer
from antiphon.testing.simulation.facts import Key
from bench.report import percentile
from chaos.hearing import heard
from chaos.reckoning import Reckoner, reckon
from chaos.witness import Reader, Tally

RULES: Final = Rules(authority="open")
KINDS: Final = ("drain.await",) * 4 + ("drain.block",)
SHORT_MS: Final = 1_000
LONG_MS: Final = 20_000
GRACE_S: Final = 5.0
"""Beyond the drain time: to write fifty ends and to say goodbye."""
PATIENCE_S: Final = 90.0
ROOT: Final = Path(__file__).parent.parent


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
    async def start(cls, home: Home, witness: Path, plan: Plan, *, hurry: bool) -> CommandWorker:
        environment = {
            **os.environ,
            "ANTIPHON_DRAIN_S": str(plan.drain_s),
            "CHAOS_WITNESS": str(witness),
            "CHAOS_HURRY": "1" if hurry else "",
            "PYTHONPATH": str(ROOT),
        }
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "antiphon"),
            *("worker", "chaos.drain_tasks", "--json", "--slots", str(plan.jobs)),
            *("--home", str(home.path)),
            stdout=PIPE,
            env=environment,
        )
        worker = cls(process)
        worker.did = (await worker.hears("ready"))["node"]
        return worker

    async def hears(self, event: str) -> dict[str, Any]:
        return await heard(self.process, event, within_s=PATIENCE_S)

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


async def call(peer: Peer, number: int) -> Key:
    work_ms = SHORT_MS if number % 2 else LONG_MS
    kind = KINDS[number % len(KINDS)]
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text((number, work_ms), {})], "timeout": 60}
    )
    called = await client.call(peer, ScheduleBody(kind=kind, manifest=content))
    return called.kind, called.job


async def until_running(reader: Reader, jobs: int) -> int:
    """Wait until that many run at once; how many did at most."""
    tally, most = Tally(), 0
    deadline = time.monotonic() + PATIENCE_S
    while most < jobs and time.monotonic() < deadline:
        tally.add(reader.new())
        most = max(most, sum(not one.ended_ns for one in tally.executions))
        await asyncio.sleep(0.01)
    return most


async def trial(place: Path, plan: Plan) -> dict[str, object]:
    async with AsyncExitStack() as stack:
        home = Home(place / "home")
        witness = place / "witness"
        reader = Reader(witness)
        stack.callback(reader.close)
        server = await stack.enter_async_context(hosting.development_server(home))
        await hosting.found_on(home, server, name="chaos", rules=RULES)
        caller = await stack.enter_async_context(assembly.join(home, "client"))
        keeper = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(home.replica, home, keeper)
        )
        await stack.enter_async_context(assembly.replicating(keeper, replica, caretaking=True))
        first = await CommandWorker.start(home, witness, plan, hurry=False)
        stack.push_async_callback(first.end)
        promised = [await call(caller.peer, number) for number in range(plan.jobs)]
        # The second comes up while the first holds everything.
        second, running = await asyncio.gather(
            CommandWorker.start(home, witness, plan, hurry=True), until_running(reader, plan.jobs)
        )
        stack.push_async_callback(second.end)
        drained_s = await first.drained_s()
        async with asyncio.timeout(PATIENCE_S):
            for key in promised:
                await client.wait_for_end(caller.peer, *key)
        reckoner = await reckon(home)
        return {
            **_counted(reckoner, promised, first.did),
            "running": running,
            "drain_s": round(drained_s, 2),
            "drain_limit_s": plan.drain_s,
            "exit": first.process.returncode,
            "lease_s": RULES.lease_ms / 1000,
        }


def _counted(reckoner: Reckoner, promised: list[Key], drained: str) -> dict[str, object]:
    for violation in reckoner.broken:
        print(f"broken: {violation}", file=sys.stderr)
    ends = [one for results in reckoner.accepted.values() for one in results]
    handovers = reckoner.handovers_s or [0.0]
    return {
        "finished": sum(one.author == drained for one in ends),
        "yielded": reckoner.deeds["job.yield"],
        "waited_for_expiry": reckoner.deeds["job.expire"] + reckoner.late_handovers,
        "lost": len(reckoner.lost(promised)),
        "accepted_twice": len(reckoner.accepted_twice),
        "handover_p50_s": round(percentile(handovers, 0.5), 3),
        "handover_max_s": round(max(handovers), 3),
        "broken_laws": reckoner.broken_count,
    }


def holds(told: dict[str, Any], plan: Plan) -> bool:
    never = ("waited_for_expiry", "lost", "accepted_twice", "broken_laws", "exit")
    return (
        not any(told[name] for name in never)
        and told["running"] == plan.jobs == told["finished"] + told["yielded"]
        and told["drain_s"] <= plan.drain_s + GRACE_S
    )


async def run(plan: Plan) -> int:
    with tempfile.TemporaryDirectory(prefix="antiphon-chaos-") as place:
        told = await trial(Path(place), plan)
    print(json.dumps(told))
    return 0 if holds(told, plan) else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos drain")
    parser.add_argument("--quick", action="store_true", help="the same: it takes seconds")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--drain-s", type=float, default=3.0)
    args = parser.parse_args(argv)
    telemetry.configure("error", "text")
    return asyncio.run(run(Plan(jobs=args.jobs, drain_s=args.drain_s)))
