"""`bench counts`: what a job costs in calls, signatures, requests and bytes, against a baseline.

Processor time says as much about the machine as about the code. This counts instead, in virtual
time on the memory engine, so that two runs of the same code count the same, on any machine.
`tests/bench/counts` runs it in CI.

`--write` records what it finds as the new baseline. Do that in the commit that changes a cost, and
say there why: a lower figure keeps what was gained, a higher one is a decision.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Final

from bench.counts.measure import Counts, count, cpu_ratios
from bench.measurement.report import conclude, say

PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
BASELINE: Final = Path(__file__).with_name("baseline.json")
ROOM: Final = {"calls": 0.03, "bytes": 0.02, "records": 0.0, "cpu": 0.6}
"""How far above its baseline a figure may be, by what it counts. Two runs of the same code with
the same Python count the same, to a few calls in a thousand, so the room is only for changes that
are too small to be worth a decision. Processor time is here for what calls do not show, such as a
slow loop in C: over ten runs, five of them beside eight busy processes on two cores, its ratio to
the calibration was between 0.44 and 0.59, so 1.6 times the baseline is out of noise's reach."""
ROOM_OF_OTHERS: Final = 0.1
"""Of signatures and requests: they are shared, and one turn more or less changes the share."""


def above(found: Counts, baseline: Counts) -> dict[str, tuple[float, float]]:
    """Figures that are too high, each with its limit; one that the baseline lacks is not judged."""
    over: dict[str, tuple[float, float]] = {}
    for name, value in found.items():
        room = ROOM.get(name.rpartition(".")[2], ROOM_OF_OTHERS)
        limit = baseline.get(name, math.inf) * (1 + room)
        if value > limit + 1e-9:
            over[name] = (value, round(limit, 3))
    return over


def read_baseline() -> Counts:
    """What is recorded. Another Python makes other calls, so it is judged by the rest alone."""
    recorded = json.loads(BASELINE.read_text())
    known: Counts = recorded["counts"]
    if recorded["python"] == PYTHON:
        return known
    return {name: value for name, value in known.items() if not name.endswith((".calls", ".cpu"))}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench counts")
    parser.add_argument("--quick", action="store_true", help="without processor time")
    parser.add_argument("--write", action="store_true", help="record this as the baseline")
    args = parser.parse_args(argv)
    found = count()
    if args.write or not args.quick:
        found |= cpu_ratios()
    if args.write:
        BASELINE.write_text(json.dumps({"python": PYTHON, "counts": found}, indent=1) + "\n")
    baseline = read_baseline()
    over = above(found, baseline)
    for name, value in found.items():
        say(f"{name:18} {value:10,.3f}  baseline {baseline.get(name, math.nan):10,.3f}")
    conclude(**found, above={name: list(pair) for name, pair in over.items()}, python=PYTHON)
    return 1 if over else 0
