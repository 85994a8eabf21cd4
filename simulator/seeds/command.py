"""Simulated cluster-hours of faults, with every invariant always on.

    python -m simulator --hours 100 --seed 1

Runs seed after seed, each a cluster of five workers, two full nodes, two submitters, an owner and
a hostile member, until this many simulated hours are done. On every other one each op needs a chain
of delegations. Progress goes to standard error; the
last line on standard output is one JSON object. Exits 0 only if no law was broken. A broken one
is told with its job's lane, and with the command that replays that seed alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing.pool import AsyncResult
from typing import Final

from simulator.seeds.seed_plan import Outcome, Plan
from simulator.seeds.world import run

HOURS: Final = 100.0
QUICK_HOURS: Final = 6.0
QUICK_S: Final = 25.0
"""After this many real seconds a quick run starts no further seed."""
HOUR_S: Final = 3600.0
CHAOS_S: Final = 3300.0
"""Of each seed's hour; the rest is healing."""
BURSTS: Final = 6
"""Times in a world that both submitters submit the same jobs together."""
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

    def report(self, began: float) -> dict[str, object]:
        """The object that the last line holds."""
        seconds = time.monotonic() - began
        hours = self.seconds / HOUR_S
        return {
            "hours": round(hours, 2),
            "faults": sum(self.faults.values()),
            "violations": self.violations,
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
    replay = f"python -m simulator --hours 0.1 --seed {outcome.seed}"
    if arguments.minutes is not None:
        replay += f" --minutes {arguments.minutes:g}"
    if arguments.faults is not None:
        replay += f" --faults {arguments.faults:g}"
    print(f"\nreplay it alone:  {replay}\n", file=sys.stderr)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__.split("\n")[0])
    parser.add_argument("--hours", type=float, help=f"simulated cluster-hours (default {HOURS:g})")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--quick", action="store_true", help=f"at most {QUICK_HOURS:g} hours")
    parser.add_argument("--minutes", type=float, help="simulated minutes per seed (default 55)")
    parser.add_argument("--faults", type=float, help="faults per simulated hour (default 180)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, report, and say by the exit code whether every law held."""
    arguments = parse(argv)
    hours = HOURS if arguments.hours is None else arguments.hours
    if arguments.quick:
        hours = min(hours, QUICK_HOURS)
    chaos_s = CHAOS_S if arguments.minutes is None else arguments.minutes * 60
    faults = 180.0 if arguments.faults is None else arguments.faults
    count = max(1, -(-int(hours * HOUR_S) // int(chaos_s)))
    plans = [
        Plan(
            seed=arguments.seed + at,
            chaos_s=chaos_s,
            faults_per_hour=faults,
            bursts=BURSTS,
            has_steps=at % 2 == 1,
            is_audited=at % 4 == 2,
            has_questions=at % 8 == 6,
        )
        for at in range(count)
    ]
    began, tally = time.monotonic(), Tally()
    for outcome in outcomes(plans, arguments.processes):
        tally.add(outcome)
        if outcome.broken:
            tell(outcome, arguments)
        print(
            f"seed {outcome.seed}: {outcome.jobs} jobs, {outcome.ops} records,"
            f" {sum(outcome.faults.values())} faults, {outcome.broken} violations"
            f"  [{tally.seconds / HOUR_S:.1f} of {hours:g} h in {time.monotonic() - began:.0f} s]",
            file=sys.stderr,
        )
        if tally.seconds >= hours * HOUR_S or (
            arguments.quick and time.monotonic() - began > QUICK_S
        ):
            break
    print(json.dumps(tally.report(began)))
    return 0 if tally.violations == 0 else 1
