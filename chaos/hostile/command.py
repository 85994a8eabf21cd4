"""`chaos hostile`: a worker with a real login for a kind attacks the jobs of that kind.

Beside one honest worker it attacks in one of the ways of `attacks.py` for a while, and is gone
then, as if its login had been revoked. Jobs may be late by what the rules allow, which is printed
beside what was measured; none may be lost. A member that may only read has a run of its own:
`--only reader` (`reader`); and so has a member with one other right: `--right lock` (`rights`).
`--over http` has it attack what its right opens at a node's HTTP interface (`http`).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from bench.measurement.report import say
from chaos.audit.final_check import FinalCheck, check_log
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.hostile import right_trial as rights
from chaos.hostile.attacks import ATTACKS, Attack
from chaos.hostile.reader import trial as reader
from chaos.hostile.target import KIND, TargetMesh, target_mesh
from simulator.checks.plain_record import Key

CALLS_PER_S: Final = 5
PATIENCE_S: Final = 150.0


async def trial(attack: Attack, jobs: int) -> dict[str, Any]:
    """One mesh, one attack; the report of it."""
    with run_directory("hostile") as directory:
        async with target_mesh(directory) as target:
            called: list[Key] = []
            attacking = asyncio.ensure_future(attack.run(target, called))
            begun = time.monotonic()
            try:
                await asyncio.sleep(0.3)  # it is there first
                for number in range(jobs):
                    handle = await target.owner.submit(KIND, number)
                    called.append((KIND, handle.id))
                    await asyncio.sleep(1 / CALLS_PER_S)
                await asyncio.sleep(attack.stays_s)
                if attacking.done():
                    attacking.result()
            finally:
                while not attacking.done():  # nats-py may swallow a cancellation
                    attacking.cancel()
                    await asyncio.wait([attacking], timeout=0.5)
            there_s = time.monotonic() - begun
            bound_s = attack.bound_s(there_s)
            await _until_all_ended(target, called, PATIENCE_S)  # the bound is checked below
            check = await check_log(
                target.home, hostile_authors=[target.hostile.session.author.did]
            )
    return _summarize(check, called, there_s, bound_s)


async def _until_all_ended(target: TargetMesh, called: list[Key], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and not all(target.has_ended(job) for _, job in called):
        await asyncio.sleep(0.1)


def _summarize(
    check: FinalCheck, called: list[Key], there_s: float, bound_s: float
) -> dict[str, Any]:
    delays = [(check.ended[key] - check.called[key]) / 1000 for key in called if key in check.ended]
    return {
        "jobs": len(called),
        # A job that was given up is lost to its caller.
        "lost": len(called) - check.succeeded,
        "delayed_max_s": round(max(delays, default=0.0), 2),
        "bound_s": round(bound_s, 1),
        "there_s": round(there_s, 1),
        "accepted_twice": len(check.accepted_twice),
        "records": check.records,
        "claims": check.accepted_ops["job.claim"],
        "expiries": check.accepted_ops["job.expire"],
        "calls_again": check.accepted_ops["job.offer"],
    }


def holds(summary: dict[str, Any]) -> bool:
    is_in_time = summary["delayed_max_s"] <= summary["bound_s"]
    return bool(is_in_time) and not summary["lost"] and not summary["accepted_twice"]


async def run(names: list[str], jobs: int) -> int:
    summaries: dict[str, Any] = {}
    chosen = [attack for attack in ATTACKS if attack.name in names] if names else ATTACKS
    for attack in chosen:
        summaries[attack.name] = await trial(attack, jobs)
        say(f"{attack.name}: {summaries[attack.name]}")
    return report(summaries, holds=all(holds(summary) for summary in summaries.values()))


async def run_right(right: str, floods: list[str], attack_s: float, over: rights.Over) -> int:
    plan = rights.plan_of(attack_s, over, len(floods))
    summary = await rights.trial(right, plan, floods, over)
    return report(summary, holds=rights.holds(summary))


async def run_reader(plan: reader.Plan) -> int:
    summary = await reader.trial(plan)
    return report(summary, holds=reader.holds(summary))


def main(argv: list[str]) -> int:
    parser = parser_for("hostile", "a smaller run", has_seed=False)
    parser.add_argument("--jobs", type=int)
    attacks = [attack.name for attack in ATTACKS]
    parser.add_argument("--only", action="append", default=[], choices=[*attacks, "reader"])
    parser.add_argument(
        "--right",
        choices=rights.RIGHTS,
        help="with --only reader: the one right of the member; 'read' without it",
    )
    parser.add_argument(
        "--over",
        choices=["engine", "http"],
        default="engine",
        help="with --right: what the right opens at the engine, or over HTTP",
    )
    parser.add_argument(
        "--flood", action="append", default=[], help="with --right: only this; may be repeated"
    )
    parser.add_argument("--flood-s", type=float, help="with --right: how long each lasts")
    args = parser.parse_args(argv)
    if args.right is not None and args.only != ["reader"]:
        parser.error("--right is for --only reader: the member that has this right, and no other")
    if args.right is None and args.over == "http":
        parser.error("--over is for --right: what a member with one right opens there")
    if args.right is None or (args.right == rights.READ and args.over == "engine"):
        if args.flood or args.flood_s:
            parser.error("--flood and --flood-s are for --right: one member that does one thing")
    else:
        known = rights.floods_of(args.right, args.over)
        if unknown := [one for one in args.flood if one not in known]:
            parser.error(f"--right {args.right} has no flood {unknown[0]!r}: {', '.join(known)}")
        attack_s = rights.QUICK_ATTACK_S if args.quick else rights.ATTACK_S
        floods = args.flood or [*known]
        if args.flood_s:
            attack_s = args.flood_s * len(floods)
        elif args.flood:
            attack_s *= len(floods) / len(known)
        return run_to_end(run_right(args.right, floods, attack_s, args.over))
    if "reader" in args.only:
        if len(args.only) > 1:
            parser.error("--only reader is a run of its own and takes no other --only beside it")
        return run_to_end(run_reader(reader.QUICK if args.quick else reader.FULL))
    return run_to_end(run(args.only, args.jobs or (10 if args.quick else 60)))
