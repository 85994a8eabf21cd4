"""Deliberate bugs, one at a time: each must be noticed by the simulator.

    python -m simulator.mutants
    python -m simulator.mutants --mutant early_ack --seeds 1 --seed 2

A zero from `python -m simulator` means something only if a broken system does not get one.
Each mutant (`simulator.mutants`) is switched on around a run and off again. For each,
short and stormy seeds are run until a law is broken; then the seeds up to the last that was needed
must pass without any. `--quick` hunts the same mutants where they are found soonest (`at_once`),
and checks without mutants just the worlds in which one was caught. `--mutant` hunts one alone, or
`none`. Each world in which one was caught, and each that broke a law without any, is told with the
command that replays it. The last line on standard output is one JSON object; exits 0 only if all
were caught.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from simulator.actors.document_writers import documents_as_guest
from simulator.actors.guests import Guest
from simulator.actors.offline_writers import offline_as_guest
from simulator.locks.lock_agents import locks_as_guests
from simulator.mutants import (
    ABOUT_BURSTS,
    ABOUT_CALLS,
    ABOUT_CHAINS,
    ABOUT_DOCUMENTS,
    ABOUT_LOCKS,
    ABOUT_OUTBOXES,
    ABOUT_QUESTIONS,
    ABOUT_STEPS,
    MUTANTS,
    PROVOKED_BY,
)
from simulator.seeds.seed_plan import Outcome, Plan
from simulator.seeds.world import run

SEEDS: Final = 200
"""How many seeds a mutant may survive."""
CHAOS_S: Final = 480.0
PROVOKED_S: Final = 240.0
"""How long it storms: as things come, and where what provokes a mutant comes often."""
FAULTS_PER_HOUR: Final = 1_200.0
JOBS_PER_HOUR: Final = 450.0
BURSTS: Final = 12
FEW_JOBS_PER_HOUR: Final = 30.0
"""Where a mutant has nothing to do with jobs."""
NONE: Final = "none"
"""In place of a mutant's name: hunt none, and check the seeds as they are."""


class Catch(Struct, frozen=True):
    """How a mutant was caught, and where."""

    mutant: str
    plan: Plan
    law: str
    what: str
    digest: str
    """Of the world: the same one has the same digest."""

    @property
    def seed(self) -> int:
        """The seed of that world."""
        return self.plan.seed


def world(seed: int, stress: tuple[str, ...] = (), jobs_per_hour: float = JOBS_PER_HOUR) -> Plan:
    """A short and stormy run."""
    return Plan(
        seed=seed,
        chaos_s=PROVOKED_S if stress else CHAOS_S,
        jobs_per_hour=jobs_per_hour,
        faults_per_hour=FAULTS_PER_HOUR,
        stress=stress,
        stop_at_first=True,
    )


def anywhere(name: str, seeds: Sequence[int]) -> list[Plan]:
    """Worlds to hunt a mutant in: as they come."""
    return [replace(world(seed), **_besides(name)) for seed in seeds]


def at_once(name: str, seeds: Sequence[int]) -> list[Plan]:
    """Those in which it can do harm at all, with more of what provokes it."""
    is_of_jobs = name not in ABOUT_LOCKS | ABOUT_OUTBOXES
    jobs_per_hour = JOBS_PER_HOUR if is_of_jobs else FEW_JOBS_PER_HOUR
    stress, besides = PROVOKED_BY.get(name, ()), _besides(name)
    plans = [replace(world(seed, stress, jobs_per_hour), **besides) for seed in seeds]
    return [plan for plan in plans if plan.is_chained or name not in ABOUT_CHAINS]


def _besides(name: str) -> dict[str, Any]:
    """What else has to happen in a world, so that a mutant can do harm there."""
    return {
        "bursts": BURSTS if name in ABOUT_BURSTS else 0,
        "has_steps": name in ABOUT_STEPS,
        "is_audited": name in ABOUT_CALLS,
        "has_questions": name in ABOUT_QUESTIONS,
    }


def guests_for(name: str) -> list[Guest]:
    """Who else has to be in a world, so that a mutant can do harm there."""
    if name in ABOUT_LOCKS:
        return locks_as_guests()[0]
    if name in ABOUT_OUTBOXES:
        return [offline_as_guest()[0]]
    return [documents_as_guest()[0]] if name in ABOUT_DOCUMENTS else []


def hunt(name: str, plans: Sequence[Plan]) -> Catch | None:
    """The first world that breaks a law under this mutant, or None."""
    for plan in plans:
        with MUTANTS[name]():
            outcome = run(plan, guests_for(name))
        if outcome.violations:
            first = outcome.violations[0]
            return Catch(name, plan, first.law, first.what, outcome.digest)
    return None


def unmutated(plan: Plan, name: str) -> Outcome:
    """The same world without a mutant, with the guests that this one needs."""
    guests = guests_for(name)
    return run(plan, guests) if guests else run(plan)


class Crew:
    """Runs several things at once where there are processors; answers come in order."""

    def __init__(self, processes: int) -> None:
        """With one process everything runs in this one."""
        # Spawned, not forked: each process begins as clean as a replay of its seed does.
        context = multiprocessing.get_context("spawn")
        self._pool = context.Pool(processes) if processes > 1 else None

    def hunt(self, wanted: Sequence[tuple[str, Sequence[Plan]]]) -> Iterator[Catch | None]:
        """Hunt each mutant in its worlds."""
        if self._pool is None:
            return (hunt(name, plans) for name, plans in wanted)
        begun = [self._pool.apply_async(hunt, one) for one in wanted]
        return (one.get() for one in begun)

    def check(self, worlds: Sequence[tuple[Plan, str]]) -> Iterator[Outcome]:
        """Run each world as it is; with it, the mutant whose guests it needs."""
        if self._pool is None:
            return (unmutated(*one) for one in worlds)
        begun = [self._pool.apply_async(unmutated, one) for one in worlds]
        return (one.get() for one in begun)

    def dismiss(self) -> None:
        """Let go of the processes."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.mutants", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many a mutant may survive")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the same mutants, in worlds that provoke them; only those are checked without any",
    )
    parser.add_argument("--mutant", choices=[*MUTANTS, NONE], metavar="NAME", help="only this one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(argv)


def replay(name: str, seed: int, arguments: argparse.Namespace) -> str:
    """The command that hunts a mutant in one world, and checks that one without it."""
    how = " --quick" if arguments.quick else ""
    return f"python -m simulator.mutants --mutant {name} --seeds 1 --seed {seed}{how}"


def wanted_of(arguments: argparse.Namespace) -> list[str]:
    """The mutants to hunt."""
    if arguments.mutant == NONE:
        return []
    return [arguments.mutant] if arguments.mutant else list(MUTANTS)


def hunted(crew: Crew, arguments: argparse.Namespace) -> dict[str, Catch]:
    """Hunt them all, and say how each went."""
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    where = at_once if arguments.quick else anywhere
    wanted = [(name, where(name, seeds)) for name in wanted_of(arguments)]
    catches: dict[str, Catch] = {}
    for (name, tried), catch in zip(wanted, crew.hunt(wanted), strict=True):
        if catch is None:
            print(f"{name}: SURVIVED {len(tried)} seeds", file=sys.stderr)
            continue
        catches[name] = catch
        print(f"{name}: caught at seed {catch.seed} by {catch.law}: {catch.what}", file=sys.stderr)
        print(f"  replay it alone:  {replay(name, catch.seed, arguments)}", file=sys.stderr)
    return catches


def unmutated_worlds(
    arguments: argparse.Namespace, catches: Mapping[str, Catch], needed: int
) -> dict[tuple[Plan, str], str]:
    """What has to pass without a mutant: plan and guests, each with the mutant that replays it."""
    if not arguments.quick or arguments.mutant == NONE:
        seeds = range(arguments.seed, arguments.seed + needed)
        return {(world(seed), ""): NONE for seed in seeds}
    with_guests = ABOUT_LOCKS | ABOUT_DOCUMENTS | ABOUT_OUTBOXES
    worlds: dict[tuple[Plan, str], str] = {}
    for name, catch in catches.items():
        worlds.setdefault((catch.plan, name if name in with_guests else ""), name)
    return worlds


def main(argv: Sequence[str] | None = None) -> int:
    """Hunt them all; say by the exit code whether each was caught and the original was not."""
    arguments = parse(argv)
    began, crew, wanted = time.monotonic(), Crew(arguments.processes), wanted_of(arguments)
    try:
        catches = hunted(crew, arguments)
        needed = max((one.seed - arguments.seed + 1 for one in catches.values()), default=0)
        if not wanted or len(catches) < len(wanted):
            needed = arguments.seeds
        worlds = unmutated_worlds(arguments, catches, needed)
        checked = zip(worlds.values(), crew.check(list(worlds)), strict=True)
        broken = [(name, outcome) for name, outcome in checked if outcome.broken]
    finally:
        crew.dismiss()
    for name, outcome in broken:
        print(f"unmutated seed {outcome.seed} broke {outcome.violations[0]}", file=sys.stderr)
        print(f"  replay it alone:  {replay(name, outcome.seed, arguments)}", file=sys.stderr)
    report = {
        "mutants": len(wanted),
        "caught": len(catches),
        "seeds_max": needed,
        "unmutated_violations": len(broken),
        "unmutated_worlds": len(worlds),
        "broken": {f"{outcome.seed} {name}": outcome.digest for name, outcome in broken},
        "seconds": round(time.monotonic() - began, 1),
        "by": {
            name: {"seed": one.seed, "law": one.law, "digest": one.digest}
            for name, one in catches.items()
        },
    }
    print(json.dumps(report))
    return 0 if len(catches) == len(wanted) and not broken else 1
