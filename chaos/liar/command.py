"""`chaos liar`: jobs are run three times and two have to agree, while workers lie.

First one of three members lies about every result. The true result must be accepted each time, and
the log must name the liar. Then two workers tell the same lie, under one delegation of the owner,
beside one honest member: that is one party, so there is no quorum, and the job ends without a
result. A resolve that the coordinator writes all the same is rejected.

At last a member copies: it computes nothing, reads what another replica's worker has written and
says the same. The one that it copies lies, so the lie has two votes, of two members that agreed on
nothing. That is measured and not judged: a quorum shows agreement, not independent work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from antiphon.core.families.jobs.ops import JobComplete, JobResolve, ResolveBody
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.record.verdict import Verdict
from antiphon.errors import JobFailed
from antiphon.runtime.log.writer import Intent
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.sdk.authority.quorum_record import PartyRecord
from antiphon.sdk.call_options import CallOptions
from bench.measurement.report import say
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.liar.target import KIND, Crew, Rounds, TargetMesh, lie, target_mesh, truth

REPLICAS: Final = 3
QUORUM: Final = 2
PATIENCE_S: Final = 60.0
TWO_OF_THREE: Final = CallOptions(replicas=REPLICAS, quorum=QUORUM)


async def one_lies(jobs: int) -> dict[str, Any]:
    """One of three members lies about every result."""
    crews = [Crew("alice", truth), Crew("mallory", lie), Crew("carol", truth)]
    with run_directory("liar") as directory:
        async with target_mesh(directory, crews, Rounds(REPLICAS)) as target:
            results = []
            for number in range(1, jobs + 1):
                handle = await target.owner.submit(KIND, number, options=TWO_OF_THREE)
                results.append((number, await handle.result(timeout=PATIENCE_S)))
                await _until(partial(_have_ended, target, handle.id))
            liar = await _record_of(target, "mallory")
            others = [await _record_of(target, alias) for alias in ("alice", "carol")]
            return {
                "jobs": jobs,
                "accepted_true": sum(result == truth(number) for number, result in results),
                "accepted_false": sum(result != truth(number) for number, result in results),
                "liar_named": liar.disagreed,
                "others_named": sum(one.disagreed for one in others),
                "with": sorted(liar.against) == sorted(one.party for one in others),
            }


async def two_collude() -> dict[str, Any]:
    """Two workers of one member tell the same lie."""
    crews, rounds = [Crew("crowd", lie, workers=2), Crew("alice", truth)], Rounds(REPLICAS)
    held = rounds.hold("alice")
    with run_directory("liar") as directory:
        async with target_mesh(directory, crews, rounds) as target:
            handle = await target.owner.submit(KIND, 7, options=TWO_OF_THREE)
            await _until(partial(_could_agree, target, handle.id))
            forced = await _force(target, handle.id, _succeeded(target, handle.id))
            held.set()
            try:
                accepted = await handle.result(timeout=PATIENCE_S)
            except JobFailed as failed:
                accepted = None
                say(f"colluding: {failed.message}")
            return {
                "colluders_accepted": int(accepted is not None),
                "forced_verdict": forced.value,
                "children": len(target.children(handle.id)),
                "children_max": 2 * REPLICAS,
            }


async def one_copies(jobs: int) -> dict[str, Any]:
    """One of three members repeats what it can read; the one that it reads lies."""
    crews = [Crew("mallory", lie), Crew("echo", None), Crew("alice", truth)]
    rounds, lies = Rounds(REPLICAS), 0
    with run_directory("liar") as directory:
        async with target_mesh(directory, crews, rounds) as target:
            for number in range(1, jobs + 1):
                held = rounds.hold("alice")
                handle = await target.owner.submit(KIND, number, options=TWO_OF_THREE)
                await _until(partial(_could_agree, target, handle.id))
                held.set()
                lies += await handle.result(timeout=PATIENCE_S) == lie(number)
                await _until(partial(_have_ended, target, handle.id))
            echo = await _record_of(target, "echo")
            return {
                "copied": echo.done,
                "copies_accepted": echo.agreed,
                "copied_lies_accepted": lies,
            }


async def _force(target: TargetMesh, job: str, children: list[Job]) -> Verdict:
    """Write a resolve that names the colluding children, as the coordinator could."""
    node = target.node
    stored = node.replica.record(children[0].ended_seq)
    op = node.session.open(stored.record).op if stored is not None else None
    body = ResolveBody(
        kind=KIND,
        job=job,
        children=tuple((child.id, child.ended_seq) for child in children),
        outputs=op.body.outputs if isinstance(op, JobComplete) else (),
    )
    written = await node.write(Intent(JobResolve, body, job_lane(node.replica, KIND, job)))
    return written.verdict or Verdict.PREV


async def _record_of(target: TargetMesh, alias: str) -> PartyRecord:
    """What the log says about a member's votes."""
    found = await target.owner.authority.quorum_record()
    return next(one for one in found if one.party == target.parties[alias])


def _succeeded(target: TargetMesh, job: str) -> list[Job]:
    return [child for child in target.children(job) if child.state is State.SUCCEEDED]


def _could_agree(target: TargetMesh, job: str) -> bool:
    return len(_succeeded(target, job)) >= QUORUM


def _have_ended(target: TargetMesh, job: str) -> bool:
    children = target.children(job)
    return bool(children) and all(child.is_terminal for child in children)


async def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("what the run waits for did not happen")
        await asyncio.sleep(0.02)


def holds(summary: dict[str, Any]) -> bool:
    """Whether the truth was accepted, the liar named, and the colluders were no quorum."""
    jobs = summary["jobs"]
    return (
        summary["accepted_true"] == summary["liar_named"] == jobs
        and not summary["accepted_false"]
        and not summary["others_named"]
        and summary["with"]
        and not summary["colluders_accepted"]
        and summary["forced_verdict"] == Verdict.QUORUM.value
        and summary["children"] <= summary["children_max"]
    )


async def run(jobs: int) -> int:
    summary = await one_lies(jobs)
    say(f"one lies: {summary}")
    summary |= await two_collude()
    summary |= await one_copies(jobs)
    return report(summary, holds=holds(summary))


def main(argv: list[str]) -> int:
    parser = parser_for("liar", "a smaller run", has_seed=False)
    parser.add_argument("--jobs", type=int)
    args = parser.parse_args(argv)
    return run_to_end(run(args.jobs or (3 if args.quick else 30)))
