"""Simulated days of a log that is archived and purged, with every law always on.

Each seed is three worlds: with readers of single lanes, with full nodes and snapshots, and with
jobs that are forgotten.

    python -m simulator.archive --seeds 100
    python -m simulator.archive --mutants

The first runs seeds; the second puts in each deliberate bug and runs seeds until a law is broken.
The last line on standard output is one JSON object. Exits 0 only if no law was broken, or each bug
was noticed. A broken law is told with the command that replays its world alone.
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
WORLDS: Final = {"lanes": ArchiveWorld, "nodes": SnapshotWorld, "forgotten": ForgettingWorld}


def main(argv: Sequence[str] | None = None) -> int:
    """Run, report, and say by the exit code how it went."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.archive", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--steps", type=int, default=150, help="steps of each (default 150)")
    parser.add_argument("--world", choices=WORLDS, help="only one of a seed's worlds")
    parser.add_argument("--mutants", action="store_true", help="hunt deliberate bugs instead")
    given = parser.parse_args(argv)
    began = time.monotonic()
    report = _hunt(given.seed) if given.mutants else _soak(given)
    print(json.dumps({**report, "seconds": round(time.monotonic() - began, 1)}))
    return 0 if not report["violations"] and not report.get("missed") else 1


def _soak(given: argparse.Namespace) -> dict[str, object]:
    outcomes, deeds, broken = [], Counter[str](), dict[str, str]()
    for seed in range(given.seed, given.seed + given.seeds):
        for name in (given.world,) if given.world else WORLDS:
            outcome = run(ArchivePlan(seed=seed, steps=given.steps), WORLDS[name])
            outcomes.append(outcome)
            deeds.update(outcome.deeds)
            if not outcome.violations:
                continue
            broken[f"{seed} {name}"] = outcome.digest
            for violation in outcome.violations:
                print(f"seed {seed}: {violation}", file=sys.stderr)
            again = f"--seeds 1 --seed {seed} --world {name} --steps {given.steps}"
            print(f"replay it alone:  python -m simulator.archive {again}", file=sys.stderr)
    return {
        "seeds": given.seeds,
        "hours": round(sum(one.hours for one in outcomes), 1),
        "violations": sum(len(one.violations) for one in outcomes),
        "broken": broken,
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
