"""Simulated inboxes while gates, agents, lines and the server fail, with every law always on.

    python -m simulator.messages --seeds 20 --seed 1

The last line on standard output is one JSON object. Exits 0 only if no law was broken; a broken one
is told with the command that replays its world alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence

from simulator.messages.message_world import MessagePlan, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run, report, and say by the exit code whether every law held."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.messages", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=10, help="how many (default 10)")
    given = parser.parse_args(argv)
    began, faults, outcomes = time.monotonic(), Counter[str](), []
    for seed in range(given.seed, given.seed + given.seeds):
        outcome = run(MessagePlan(seed=seed))
        outcomes.append(outcome)
        faults.update(outcome.faults)
        print(f"seed {seed}: {outcome.faults}, digest {outcome.digest[:16]}", file=sys.stderr)
        for violation in outcome.violations:
            print(f"  {violation}", file=sys.stderr)
        if outcome.violations:
            again = f"python -m simulator.messages --seeds 1 --seed {seed}"
            print(f"replay it alone:  {again}", file=sys.stderr)
    broken = {one.seed: one.digest for one in outcomes if one.violations}
    report = {
        "seeds": given.seeds,
        "violations": sum(len(one.violations) for one in outcomes),
        "broken": broken,
        "messages": sum(one.facts.sent for one in outcomes),
        "redelivered": sum(one.facts.redelivered for one in outcomes),
        "faults": dict(faults.most_common()),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(report))
    return 0 if not broken else 1
