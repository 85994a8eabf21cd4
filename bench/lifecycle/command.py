"""`bench lifecycle`: jobs per second through Antiphon and through the bare engine, in turn.

Each round founds a fresh mesh on fresh servers (`sync_interval: always`), and one side does its
part there: ours, the bare engine that writes each record by itself, and the bare engine that
gathers records as we do. Rounds alternate, so that all sides meet the same machine; a ratio is the
median of the rounds' ratios. What is measured is the mode:

- `drain`: the schedules are on the log, and worker processes drain them. The time is the engine's
  own, from the first claim to the last completion.
- `submit`: one caller lays the schedules on the log; from the first of them to the last.
- `both`: the workers are there while the caller submits; from the first schedule to the last
  completion.

Beside the rate each round has the processor time per job of the worker processes, of the servers,
of the caller and of the gate, which depends far less on what else the machine does.

Of our side's jobs another session reads and judges a sample; the run fails unless all of these
ended well by its verdicts.

Claim latency is measured apart, with a load well below the limit: from the schedule's commit
stamp to the claim's.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Final

from bench.lifecycle.claim_latency import latencies
from bench.lifecycle.round import SIDES, Load, Round, Side, Sizes, one_round
from bench.measurement.report import conclude, median, say, spread

WANTED_RATIO: Final = {1: 0.65, 3: 0.5}
"""By copies of the log; of the open mesh's `drain` with the slots and processes of the default."""
ASKED: Final = Load(jobs=0)
NAMES: Final = ("worker_cpu_ms", "server_cpu_ms", "caller_cpu_ms", "gate_cpu_ms")
QUICK_JOBS: Final = 1_500
QUICK_ROUNDS: Final = 1
QUICK_LATENCY_JOBS: Final = 100


async def run(load: Load, rounds: int, latency_jobs: int) -> int:
    sides: dict[Side, list[Round]] = {side: [] for side in SIDES}
    sizes: Sizes = (0, 0)
    for number in range(rounds):
        # The side that goes first changes from round to round. Ours begins: the bare sides then
        # write records of the same size.
        shift = number % len(SIDES)
        for side in SIDES[shift:] + SIDES[:shift]:
            one = await one_round(side, load, sizes)
            sides[side].append(one)
            sizes = one.sizes if side == "ours" else sizes
            figures = ", ".join(f"{name[:-7]} {getattr(one, name):.2f}" for name in NAMES)
            say(
                f"round {number + 1}: {side} {one.per_s:,.0f} jobs/s;"
                f" ms of processor per job: {figures}"
            )
    rates = {side: [one.per_s for one in found] for side, found in sides.items()}
    ratios = [ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)]
    batched = [ours / bare for ours, bare in zip(rates["ours"], rates["batched"], strict=True)]
    say(", ".join(f"{side} {spread(found)}" for side, found in rates.items()) + " jobs/s")
    conclude(
        mode=load.mode,
        account=load.mesh,
        ours_per_s=round(median(rates["ours"])),
        bare_per_s=round(median(rates["bare"])),
        ratio=round(median(ratios), 3),
        ratio_spread=[round(min(ratios), 3), round(max(ratios), 3)],
        batched_bare_per_s=round(median(rates["batched"])),
        batched_ratio=round(median(batched), 3),
        **_cpu("", sides["ours"]),
        **_cpu("bare_", sides["bare"]),
        **_cpu("batched_bare_", sides["batched"]),
        **(await latencies(load, latency_jobs) if latency_jobs else {}),
        workers=load.workers,
        slots=load.slots,
        replicas=load.replicas,
        sync="always",
        record_bytes=list(sizes),
        judged=sum(one.judged for one in sides["ours"]),
        judged_ok=sum(one.judged_ok for one in sides["ours"]),
        jobs=load.jobs,
        rounds=rounds,
    )
    if any(one.judged_ok < one.judged for one in sides["ours"]):
        say("another session does not accept what the workers wrote")
        return 1
    is_judged = (load.mode, load.mesh, load.workers, load.slots) == (
        ASKED.mode,
        ASKED.mesh,
        ASKED.workers,
        ASKED.slots,
    )
    return 1 if is_judged and median(ratios) < WANTED_RATIO[load.replicas] else 0


def _cpu(prefix: str, rounds: list[Round]) -> dict[str, float]:
    return {
        f"{prefix}{name}": round(median([getattr(one, name) for one in rounds]), 3)
        for name in NAMES
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench lifecycle")
    parser.add_argument("--mode", choices=["submit", "drain", "both"], default=ASKED.mode)
    parser.add_argument("--mesh", choices=["open", "chain", "members"], default=ASKED.mesh)
    parser.add_argument("--replicas", type=int, choices=[1, 3], default=ASKED.replicas)
    parser.add_argument("--slots", type=int, default=ASKED.slots, help="in flight per process")
    parser.add_argument("--processes", "--workers", dest="workers", type=int, default=ASKED.workers)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--latency-jobs", type=int, default=1_000, help="0: latency is left out")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    jobs, rounds, latency_jobs = args.jobs, args.rounds, args.latency_jobs
    if args.quick:
        jobs, rounds = min(jobs, QUICK_JOBS), min(rounds, QUICK_ROUNDS)
        latency_jobs = min(latency_jobs, QUICK_LATENCY_JOBS)
    load = Load(
        mode=args.mode,
        mesh=args.mesh,
        replicas=args.replicas,
        jobs=jobs,
        workers=args.workers,
        slots=args.slots,
    )
    return asyncio.run(run(load, rounds, latency_jobs))
