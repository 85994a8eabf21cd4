"""A worker process for `chaos stale`: the real worker with one slow task.

The task sleeps without yielding to the event loop, as a long computation would, so that a process
that is stopped in the middle resumes with its work done and its lease long over. With `--insist`
it then does what a broken worker might: it signs its completion again on top of the lane as it now
is, with the fence that it once held, and commits it.

Prints one JSON object per line: `claimed`, `returned`, `insisted`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path

from antiphon import JobContext, assembly, telemetry
from antiphon.core.families.jobs.ops import CompleteBody, JobComplete
from antiphon.core.proof.output import Output
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.worker.worker import WorkerSettings

KIND = "chaos.slow"


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


async def insist(session: Session, held: JobContext) -> None:
    """Commit a completion under a fence that has passed to someone else."""
    view = await session.read_lane(held.kind, held.job_id)
    text = '"stale"'
    output = Output(name="result", text=text)
    body = CompleteBody(
        kind=held.kind, job=held.job_id, fence=held.fence, status="succeeded", outputs=(output,)
    )
    draft = session.draft(JobComplete, body, prev=view.lane.job_tail)
    seq = await session.commit(draft)
    again = await session.read_lane(held.kind, held.job_id, at_least=seq)
    emit("insisted", seq=seq, verdict=again.verdict_of(draft.op_id))


async def work(home: StateDirectory, name: str, seconds: float, *, insists: bool) -> None:
    returned = asyncio.Event()
    held: list[JobContext] = []

    async def slow(*, ctx: JobContext) -> str:
        held.append(ctx)
        emit("claimed", job=ctx.job_id, fence=ctx.fence, attempt=ctx.attempt)
        time.sleep(seconds)  # a computation that never yields is the point
        emit("returned", job=ctx.job_id)
        returned.set()
        return name

    handlers = Handlers()
    handlers.register(KIND, slow)
    async with (
        assembly.join(home, "worker", key=name) as connection,
        assembly.working(connection, handlers.executors(), WorkerSettings(slots=1, drain_s=2)),
    ):
        emit("ready")
        await returned.wait()
        await asyncio.sleep(2)
        if insists:
            await insist(connection.session, held[0])
        await asyncio.sleep(3600)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--insist", action="store_true")
    args = parser.parse_args()
    telemetry.configure("warning", "text")
    asyncio.run(work(StateDirectory(args.home), args.name, args.seconds, insists=args.insist))


if __name__ == "__main__":
    main()
