"""Simulated days of a log that is archived and purged, with every law always on.

Each seed runs once with readers of single lanes, and once with full nodes and snapshots.

    python -m simulator.archive --seeds 100
    python -m simulator.archive --mutants

The first runs seeds; the second puts in each deliberate bug and runs seeds until a law is broken.
The last line on standard output is one JSON object. Exits 0 only if no law was broken, or each bug
was noticed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from simulator.archive.archive_mutants import MUTANTS, world_of
from simulator.archive.archive_world import ArchivePlan, ArchiveWorld, run
from simulator.archive.snapshot_world import ForgettingWorld, SnapshotWorld

HUNTED: Final = 60
"""How many seeds a bug may survive."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run, report, and say by the exit code how it went."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.archive", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--steps", type=int, default=150, help="steps of each (default 150)")
    parser.add_argument("--mutants", action="store_true", help="hunt deliberate bugs instead")
    given = parser.parse_args(argv)
    began = time.monotonic()
    report = _hunt(given.seed) if given.mutants else _soak(given.seed, given.seeds, given.steps)
    print(json.dumps({**report, "seconds": round(time.monotonic() - began, 1)}))
    return 0 if not report["violations"] and not report.get("missed") else 1


def _soak(first: int, seeds: int, steps: int) -> dict[str, object]:
    outcomes, deeds = [], Counter[str]()
    for seed in range(first, first + seeds):
        for world in (ArchiveWorld, SnapshotWorld, ForgettingWorld):
            outcome = run(ArchivePlan(seed=seed, steps=steps), world)
            outcomes.append(outcome)
            deeds.update(outcome.deeds)
            for violation in outcome.violations:
                print(f"seed {seed}: {violation}", file=sys.stderr)
    return {
        "seeds": seeds,
        "hours": round(sum(one.hours for one in outcomes), 1),
        "violations": sum(len(one.violations) for one in outcomes),
        "archives": sum(one.archives for one in outcomes),
        "purges": sum(one.purged for one in outcomes),
        "lives": sum(one.lives for one in outcomes),
        "joined": sum(one.joined for one in outcomes),
        "deeds": dict(deeds.most_common()),
    }


def _hunt(first: int) -> dict[str, object]:
    caught, missed = dict[str, str](), list[str]()
    for mutant in MUTANTS:
        for seed in range(first, first + HUNTED):
            with mutant():
                broken = run(ArchivePlan(seed=seed), world_of(mutant)).violations
            if broken:
                caught[mutant.__name__] = f"seed {seed}: {broken[0]}"
                print(f"{mutant.__name__}: {caught[mutant.__name__]}", file=sys.stderr)
                break
        else:
            missed.append(mutant.__name__)
    return {"violations": 0, "caught": len(caught), "missed": missed}
