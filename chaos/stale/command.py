"""`chaos stale`: a worker is stopped past its lease, and its late completion is refused.

One job, two worker processes, a full node, a real server. The first worker claims and is stopped
(SIGSTOP) or killed (SIGKILL) in the middle of the work. The full node ends its lease on the log,
the second worker takes over and completes. The first is resumed (SIGCONT) and commits its own
completion: a validly signed record, on the right subject, in the right place of the lane,
under a fence that is no longer current. The full node's verdict on it is `stale_verdict`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from typing import Any

from msgspec import Struct

from antiphon.assembly import hosted_mesh
from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import JobClaim, JobComplete, ScheduleBody
from antiphon.core.record.verdict import Verdict
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.replica_jobs import job_records
from chaos.cluster.command_frame import parser_for, run_directory, run_to_end
from chaos.cluster.mesh import attended
from chaos.cluster.process_events import wait_for_event
from chaos.stale.worker import KIND

RULES = Rules(
    authority="open",
    max_drift_ms=500,
    lease_min_ms=1_000,
    lease_ms=2_000,
    lease_ms_max=4_000,
)
WORK_S = 0.8
PATIENCE_S = 60.0


class Trial(Struct, frozen=True, kw_only=True):
    takeover_s: float
    accepted: int
    stale_verdict: str
    result: str


class SlowWorker:
    """A worker process and its events."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, home: StateDirectory, name: str, *, insists: bool = False) -> SlowWorker:
        extra = ["--insist"] if insists else []
        process = await start_owned(
            sys.executable,
            "-m",
            "chaos.stale.worker",
            *("--home", str(home.path), "--name", name, "--seconds", str(WORK_S)),
            *extra,
            stdout=PIPE,
        )
        worker = cls(process)
        await worker.wait_for("ready")
        return worker

    async def wait_for(self, event: str) -> dict[str, Any]:
        """Wait for an event of the process; its fields."""
        return await wait_for_event(self.process, event, within_s=PATIENCE_S)

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    async def end(self) -> None:
        if self.process.returncode is None:
            self.send(signal.SIGCONT)
            self.process.kill()
        await self.process.wait()


async def trial(how: int) -> Trial:
    """Stop or kill the holder of a lease; see who ends up with the result."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(run_directory())
        home = StateDirectory(directory)
        server = await stack.enter_async_context(hosted_mesh.development_server(home))
        await hosted_mesh.found_on(home, server, name="chaos", rules=RULES)
        beside = await stack.enter_async_context(attended(home))
        caller, node, replica = beside.caller, beside.node, beside.replica
        first = await SlowWorker.start(home, "first", insists=True)
        stack.push_async_callback(first.end)
        content = manifest.author(
            {"command": [f"@{KIND}"], "args": [call_text((), {})], "timeout": 60}
        )
        called = await submission.submit(caller, ScheduleBody(kind=KIND, manifest=content))
        await first.wait_for("claimed")
        first.send(how)
        second = await SlowWorker.start(home, "second")
        stack.push_async_callback(second.end)
        async with asyncio.timeout(PATIENCE_S):
            ended = await submission.wait_for_end(caller, KIND, called.id)
        stale_verdict = ""
        if how == signal.SIGSTOP:
            first.send(signal.SIGCONT)
            insisted = await first.wait_for("insisted")
            await node.reached(insisted["seq"])
            stored = replica.record(insisted["seq"])
            assert stored is not None
            stale_verdict = stored.verdict.value
            assert stale_verdict == insisted["verdict"], "light and full verdicts differ"
        takeover_s, accepted = read_back(node, called.id)
        return Trial(
            takeover_s=takeover_s,
            accepted=accepted,
            stale_verdict=stale_verdict,
            result=ended.outputs[0].text or "" if ended.outputs else "",
        )


def read_back(node: FullNode, job_id: str) -> tuple[float, int]:
    """From the full node's replica: seconds from the lease's end to the next claim, and results."""
    accepted, deadline_ms, takeover_ms, holder = 0, 0, 0, ""
    for stored in job_records(node.replica, KIND, job_id):
        opened = node.session.open(stored.record)
        if stored.verdict is not Verdict.OK:
            continue
        if isinstance(opened.op, JobClaim):
            if holder and opened.op.author != holder:
                takeover_ms = opened.commit_ms - deadline_ms
            holder = opened.op.author
            deadline_ms = opened.op.hlc[0] + opened.op.body.lease_ms
        accepted += isinstance(opened.op, JobComplete)
    return takeover_ms / 1000, accepted


async def run() -> int:
    stopped = await trial(signal.SIGSTOP)
    print(f"stopped: {stopped}", file=sys.stderr)
    killed = await trial(signal.SIGKILL)
    print(f"killed: {killed}", file=sys.stderr)
    holds = (
        stopped.stale_verdict == Verdict.FENCE.value
        and stopped.accepted == killed.accepted == 1
        and stopped.result == killed.result == '"second"'
    )
    print(
        json.dumps(
            {
                "takeover_s": stopped.takeover_s,
                "stale_verdict": stopped.stale_verdict,
                "accepted": stopped.accepted,
                "killed_takeover_s": killed.takeover_s,
                "killed_accepted": killed.accepted,
                "lease_s": RULES.lease_ms / 1000,
            }
        )
    )
    return 0 if holds else 1


def main(argv: list[str]) -> int:
    parser = parser_for("stale", "the same: it takes seconds", has_seed=False)
    parser.parse_args(argv)
    return run_to_end(run())
