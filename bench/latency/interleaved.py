"""`bench latency --fleet N --before TREE`: the same fleet with another source tree and this one.

In turn, so that what else the machine does falls on both. The other tree is a work tree of an older
commit (`git worktree add TREE COMMIT`), which runs its own benchmark with the interpreter and the
packages of this one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from bench.measurement.child_process import printed_by
from bench.measurement.report import conclude, median, say

KEYS: Final = (
    *("in_msgs_per_s", "out_msgs_per_s", "server_cpu_pct", "server_mb"),
    *("fleet_cpu_pct", "fleet_mb", "up_s"),
)
ROOT: Final = Path(__file__).parents[2]


def run(workers: int, before: Path, rounds: int, *, is_quick: bool) -> int:
    """Both, so many times each."""
    if not (before / "bench").is_dir():
        raise SystemExit(f"{before} is no source tree: git worktree add {before} COMMIT")
    found: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    for number in range(rounds):
        for name, tree in (("before", before), ("now", ROOT)):
            told = _fleet(tree.resolve(), workers, is_quick=is_quick)
            found[name].append(told)
            say(f"{number + 1}, {name}: { {key: told[key] for key in KEYS} }")
    medians = {
        name: {key: median([one[key] for one in runs]) for key in KEYS}
        for name, runs in found.items()
    }
    sent = [medians[name]["in_msgs_per_s"] for name in ("before", "now")]
    conclude(
        workers=found["now"][0]["workers"],
        rounds=rounds,
        share=round(sent[1] / max(sent[0], 0.01), 3),
        **medians,
    )
    return 0


def _fleet(tree: Path, workers: int, *, is_quick: bool) -> dict[str, Any]:
    path = os.pathsep.join((str(tree / "src"), str(tree)))
    printed = printed_by(
        *(sys.executable, "-m", "bench", "latency", "--fleet", str(workers)),
        *(["--quick"] if is_quick else []),
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path},
    )
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told
