"""Simulated cluster-hours of faults, with every invariant always on.

    python -m simulator --hours 100 --seed 1
    python -m simulator --seeds 1 --seed 101

Runs seed after seed, each a cluster of five workers, two full nodes, two submitters, an owner and
a hostile member. `--hours` takes as many seeds as these hours need, `--seeds` a number of them.
What happens in a world follows from its seed (`seed_plan`), `--minutes` and `--faults`; not from
its place among the seeds. Progress goes to standard error, with a digest of each world; the last
line on standard output is one JSON object. Exits 0 only if no law was broken. A broken one is told
with its job's lane, and with the command that replays its world alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing.pool import AsyncResult
from typing import Final

from simulator.seeds.seed_plan import Outcome, Plan, plan_of
from simulator.seeds.world import run

HOURS: Final = 100.0
QUICK_HOURS: Final = 6.0
QUICK_S: Final = 25.0
"""After this many real seconds a quick run starts no further seed."""
HOUR_S: Final = 3600.0
TOLD: Final = 10
"""Broken laws of one seed that are told in full."""


class Tally:
    """What all seeds together come to."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.seconds = 0.0
        self.healing_s_max = 0.0
        self.seeds = self.jobs = self.ops = self.runs = self.violations = 0
        self.chained_worlds = self.grants = self.revocations = self.left_open = 0
        self.faults: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.broken: dict[int, str] = {}
        """Seeds whose worlds broke a law, each with its world's digest."""

    def add(self, outcome: Outcome) -> None:
        """Count one seed in."""
        self.seeds += 1
        self.seconds += outcome.seconds
        self.jobs += outcome.jobs
        self.ops += outcome.ops
        self.runs += outcome.runs
        self.violations += outcome.broken
        self.chained_worlds += outcome.is_chained
        self.grants += outcome.grants
        self.revocations += outcome.revocations
        self.left_open += outcome.left_open
        self.healing_s_max = max(self.healing_s_max, outcome.healing_s)
        self.faults.update(outcome.faults)
        self.verdicts.update(outcome.verdicts)
        if outcome.broken:
            self.broken[outcome.seed] = outcome.digest

    def report(self, began: float) -> dict[str, object]:
        """The object that the last line holds."""
        seconds = time.monotonic() - began
        hours = self.seconds / HOUR_S
        return {
            "hours": round(hours, 2),
            "faults": sum(self.faults.values()),
            "violations": self.violations,
            "broken": self.broken,
            "seeds": self.seeds,
            "seconds": round(seconds, 1),
            "hours_per_second": round(hours / seconds, 2),
            "jobs": self.jobs,
            "ops": self.ops,
            "runs": self.runs,
            "chained_worlds": self.chained_worlds,
            "grants": self.grants,
            "revocations": self.revocations,
            "left_open": self.left_open,
            "healing_s_max": self.healing_s_max,
            "fault_kinds": dict(self.faults.most_common()),
            "verdicts": dict(self.verdicts.most_common()),
        }


def outcomes(plans: Sequence[Plan], processes: int) -> Iterator[Outcome]:
    """Run plans, several at once where there are processors, and yield them in order."""
    if processes <= 1 or len(plans) == 1:
        yield from map(run, plans)
        return
    # Spawned, not forked: each process begins as clean as a replay of its seed does.
    pool = multiprocessing.get_context("spawn").Pool(processes)
    under_way: deque[AsyncResult[Outcome]] = deque()
    try:
        for plan in plans:
            under_way.append(pool.apply_async(run, (plan,)))
            if len(under_way) > processes:
                yield under_way.popleft().get()
        while under_way:
            yield under_way.popleft().get()
    finally:
        # What was begun ends, and clears its room away; nothing further is begun.
        pool.close()
        pool.join()


def tell(outcome: Outcome, arguments: argparse.Namespace) -> None:
    """Say what was broken, and how to see it again."""
    print(f"\nseed {outcome.seed}: {outcome.broken} violations", file=sys.stderr)
    for violation in outcome.violations[:TOLD]:
        where = f" (record {violation.seq})" if violation.seq else ""
        print(f"  {violation.law}{where}: {violation.what}", file=sys.stderr)
    for story in outcome.stories:
        print(f"\n{story}", file=sys.stderr)
    print(f"\nreplay it alone:  {replay(outcome.seed, arguments)}\n", file=sys.stderr)


def replay(seed: int, arguments: argparse.Namespace) -> str:
    """The command that runs the world of this seed again, and no other."""
    words = ["python -m simulator --seeds 1 --seed", seed]
    for option in ("minutes", "faults"):
        given = getattr(arguments, option)
        words += [f"--{option}", given] if given is not None else []
    return " ".join(map(str, words))


def above_zero(text: str) -> float:
    """A number of hours or minutes that ends."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a length of time: give more than 0")
    return number


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__.split("\n")[0])
    length = parser.add_mutually_exclusive_group()
    hours = f"simulated cluster-hours (default {HOURS:g})"
    length.add_argument("--hours", type=above_zero, help=hours)
    length.add_argument("--seeds", type=int, help="how many seeds, in place of hours")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--quick", action="store_true", help=f"at most {QUICK_HOURS:g} hours")
    minutes = "minutes of faults in each world (default by seed)"
    parser.add_argument("--minutes", type=above_zero, help=minutes)
    parser.add_argument("--faults", type=float, help="faults per simulated hour (default 180)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(argv)


def plans_of(arguments: argparse.Namespace) -> list[Plan]:
    """The worlds to run: those of consecutive seeds."""
    chaos_s = None if arguments.minutes is None else arguments.minutes * 60
    faults = 180.0 if arguments.faults is None else arguments.faults
    plans: list[Plan] = []
    left_s = (HOURS if arguments.hours is None else arguments.hours) * HOUR_S
    if arguments.quick:
        left_s = min(left_s, QUICK_HOURS * HOUR_S)
    for seed in itertools.count(arguments.seed):
        plans.append(plan_of(seed, chaos_s=chaos_s, faults_per_hour=faults))
        left_s -= plans[-1].chaos_s
        if left_s < 1 if arguments.seeds is None else len(plans) >= arguments.seeds:
            break
    return plans


def main(argv: Sequence[str] | None = None) -> int:
    """Run, report, and say by the exit code whether every law held."""
    arguments = parse(argv)
    plans = plans_of(arguments)
    began, tally = time.monotonic(), Tally()
    for outcome in outcomes(plans, arguments.processes):
        tally.add(outcome)
        if outcome.broken:
            tell(outcome, arguments)
        print(
            f"seed {outcome.seed}: {outcome.jobs} jobs, {outcome.ops} records,"
            f" {sum(outcome.faults.values())} faults, {outcome.broken} violations,"
            f" digest {outcome.digest[:16]}"
            f"  [{tally.seeds} of {len(plans)} seeds in {time.monotonic() - began:.0f} s]",
            file=sys.stderr,
        )
        if arguments.quick and time.monotonic() - began > QUICK_S:
            break
    print(json.dumps(tally.report(began)))
    return 0 if tally.violations == 0 else 1
