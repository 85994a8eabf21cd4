"""`chaos escape`: attacks from inside a command's sandbox, each with something real to reach.

Every probe is run in the sandbox, where it must get nothing, and as a plain process, where it
should succeed: an attack that cannot work anywhere shows nothing. The cost is measured as well:
how much longer a command takes to start and end than the same command without a sandbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from pathlib import Path

from antiphon.sandbox import Command, SandboxSupport, probe, run
from bench.measurement.report import say
from chaos.cluster.command_frame import parser_for, run_directory, run_to_end
from chaos.escape.attack import run_all
from chaos.escape.probes import PROBES

GOAL_MS = 10.0


async def time_plain() -> float:
    """Milliseconds from start to end of a command without a sandbox."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec("/bin/true", env={})
    await process.wait()
    return (time.perf_counter() - began) * 1000


async def time_sandboxed(able: SandboxSupport, work: Path) -> float:
    began = time.perf_counter()
    command = Command(argv=("/bin/true",), hidden=(work,))
    await run(command, work=work, on_output=lambda *_: None, abilities=able)
    return (time.perf_counter() - began) * 1000


async def time_starts(able: SandboxSupport, rounds: int) -> tuple[list[float], list[float]]:
    """Both in turn, so that whatever else the machine does slows down both."""
    inside, outside = [], []
    with run_directory("escape") as folder:
        for _ in range(3):
            await time_sandboxed(able, Path(folder))
        for _ in range(rounds):
            outside.append(await time_plain())
            inside.append(await time_sandboxed(able, Path(folder)))
    return inside, outside


async def measure(rounds: int, *, verbose: bool) -> int:
    able = probe()
    if not able.can_sandbox:
        say(f"commands cannot be sandboxed here: {able.problems} {able.remedies}")
        print(json.dumps({"probes": len(PROBES), "contained": 0, "start_p50_ms": None}))
        return 1
    inside, outside = await time_starts(able, rounds)
    results = await run_all(able, verbose=verbose)
    contained = [result for result in results if not result.got]
    shown = [result for result in results if result.without]
    start_p50_ms = statistics.median(inside) - statistics.median(outside)
    print(
        json.dumps(
            {
                "probes": len(results),
                "contained": len(contained),
                "start_p50_ms": round(start_p50_ms, 2),
                "start_goal_ms": GOAL_MS,
                "sandboxed_p50_ms": round(statistics.median(inside), 2),
                "bare_p50_ms": round(statistics.median(outside), 2),
                "start_min_ms": round(min(inside) - min(outside), 2),
                "rounds": rounds,
                "load_1m": round(os.getloadavg()[0], 2),
                "would_succeed_unsandboxed": len(shown),
                "not_shown_unsandboxed": [r.probe for r in results if not r.without],
                "walls": {result.probe: result.wall for result in contained},
                "escaped": {result.probe: result.got for result in results if result.got},
                "worker_uid": os.getuid(),
                "levels": sorted({result.isolation.level for result in results}),
                "held": list(results[-1].isolation.held),
            }
        )
    )
    return 0 if len(contained) == len(results) else 1


def main(argv: list[str]) -> int:
    parser = parser_for("escape", "fewer starts, the same probes", has_seed=False)
    parser.add_argument("--verbose", action="store_true", help="what each probe said")
    asked = parser.parse_args(argv)
    return run_to_end(measure(50 if asked.quick else 300, verbose=asked.verbose))
