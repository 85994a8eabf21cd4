"""Simulated half hours of beats, with every law of the pulse always on.

    python -m simulator.tempo --seeds 3 --seed 1

Each seed is a mesh of 200 machines that keep time, five of which may lead. The last line on
standard output is one JSON object. Exits 0 only if no law was broken; a broken one is told with the
command that replays its world alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from simulator.tempo.tempo_world import TempoPlan, run

TOLD: Final = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Run, report, and say by the exit code whether every law held."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.tempo", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many (default 1)")
    parser.add_argument("--minutes", type=float, default=30.0, help="simulated minutes of each")
    parser.add_argument("--agents", type=int, default=200, help="machines (default 200)")
    given = parser.parse_args(argv)
    began, faults, outcomes = time.monotonic(), Counter[str](), []
    for seed in range(given.seed, given.seed + given.seeds):
        outcome = run(TempoPlan(seed=seed, minutes=given.minutes, agents=given.agents))
        outcomes.append(outcome)
        faults.update(outcome.faults)
        print(
            f"seed {seed}: {outcome.beats} beats, {outcome.faults}, digest {outcome.digest[:16]}",
            file=sys.stderr,
        )
        for violation in outcome.violations[:TOLD]:
            print(f"  {violation.law}: {violation.what}", file=sys.stderr)
        if outcome.violations:
            again = f"--seeds 1 --seed {seed} --minutes {given.minutes} --agents {given.agents}"
            print(f"replay it alone:  python -m simulator.tempo {again}", file=sys.stderr)
    report = {
        "agents": given.agents,
        "minutes": sum(one.seconds for one in outcomes) / 60,
        "seeds": [one.seed for one in outcomes],
        "violations": sum(len(one.violations) for one in outcomes),
        "broken": {one.seed: one.digest for one in outcomes if one.violations},
        "beats": sum(one.beats for one in outcomes),
        "terms": sum(one.terms for one in outcomes),
        "kills": sum(one.kills for one in outcomes),
        "takeover_beats_max": max(one.takeover_beats_max for one in outcomes),
        "tempo_changes": sum(one.tempo_changes for one in outcomes),
        "bars": sum(one.bars for one in outcomes),
        "bars_changed": sum(one.bars_changed for one in outcomes),
        "drift_pct": max(one.drift_pct for one in outcomes),
        "faults": dict(faults.most_common()),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(report))
    return 0 if not report["violations"] else 1
