"""`chaos escape`: attacks from inside a command's room, each with something real to reach.

Every probe is run shut in, where it must get nothing, and as a plain process, where it should
succeed: an attack that cannot work anywhere shows nothing. Then the price: how much longer a
command takes to start and end than the same command without a sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from antiphon.core.proof import Isolation
from antiphon.sandbox import Abilities, Command, Ended, Limits, probe, run
from chaos.escape_probes import MIB, PROBES, Probe
from chaos.escape_programs import PRELUDE
from chaos.escape_scene import Scene

LIMITS = Limits(
    timeout_s=15,
    grace_s=0.2,
    memory_bytes=512 * MIB,
    processes=24,
    open_files=256,
    file_bytes=64 * MIB,
    work_bytes=8 * MIB,
    scratch_bytes=8 * MIB,
    output_bytes=MIB,
)
GOAL_MS = 10.0


class Result(Struct, frozen=True, kw_only=True):
    probe: str
    got: str
    """What it reached when shut in; must be empty."""
    without: str
    """What it reached as a plain process."""
    wall: str
    isolation: Isolation


async def attack(
    item: Probe, scene: Scene, able: Abilities, *, unsafe: bool, verbose: bool = False
) -> tuple[str, Ended]:
    """One run of one probe; what it reached, and how it ended."""
    scene.clear()
    said = bytearray()
    fields = {name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__} | item.limits
    if unsafe:
        fields |= item.unbounded
    interpreter = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    command = Command(
        argv=(str(interpreter), "-I", "-S", "-B", "-c", PRELUDE + item.program, scene.knowledge()),
        outputs=("**",),
        visible=(scene.tools, *_interpreter_folders()),
        hidden=tuple(scene.states),
        limits=Limits(**fields),
    )
    with tempfile.TemporaryDirectory(dir=scene.place) as work:
        ended = await run(
            command,
            work=Path(work),
            on_output=lambda _, data: said.extend(data),
            abilities=able,
            unsafe=unsafe,
        )
        kept = [output.path for output in ended.outputs]
        if unsafe:  # as a worker would that reads what it finds under the name of an output
            kept += [path for path in Path(work, "job").rglob("*") if path.is_file()]
        got = scene.was_reached(bytes(said), kept)
        if len(said) > 2 * LIMITS.output_bytes:  # two streams
            got = got or f"{len(said)} bytes"
        scene.end_survivors()
    if verbose:
        print(f"--- {item.name} {'plain' if unsafe else 'shut in'}", file=sys.stderr)
        print(said[:3000].decode(errors="replace"), file=sys.stderr)
    return got, ended


def _interpreter_folders() -> tuple[Path, ...]:
    return () if sys.base_prefix.startswith("/usr") else (Path(sys.base_prefix),)


async def attacks(able: Abilities, *, verbose: bool) -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory(prefix="antiphon-escape-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        with Scene(place) as scene:
            os.environ["ANTIPHON_TOKEN"] = scene.canary
            for item in PROBES:
                got, ended = await attack(item, scene, able, unsafe=False, verbose=verbose)
                without, _ = await attack(item, scene, able, unsafe=True, verbose=verbose)
                results.append(
                    Result(
                        probe=item.name,
                        got=got,
                        without=without,
                        wall=item.wall,
                        isolation=ended.isolation,
                    )
                )
                print(
                    f"{'OPEN' if got else 'held':5} {item.name:34} {got or item.wall:54} "
                    f"plain: {without or '-'}",
                    file=sys.stderr,
                )
    return results


async def bare() -> float:
    """Milliseconds from start to end of the same command with nothing around it."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec("/bin/true", env={})
    await process.wait()
    return (time.perf_counter() - began) * 1000


async def shut_in(able: Abilities, work: Path) -> float:
    began = time.perf_counter()
    command = Command(argv=("/bin/true",), hidden=(work,))
    await run(command, work=work, on_output=lambda *_: None, abilities=able)
    return (time.perf_counter() - began) * 1000


async def prices(able: Abilities, rounds: int) -> tuple[list[float], list[float]]:
    """Turn by turn, so that whatever else the machine does falls on both."""
    inside, outside = [], []
    with tempfile.TemporaryDirectory(prefix="antiphon-escape-") as folder:
        for _ in range(3):
            await shut_in(able, Path(folder))
        for _ in range(rounds):
            outside.append(await bare())
            inside.append(await shut_in(able, Path(folder)))
    return inside, outside


async def measure(rounds: int, *, verbose: bool) -> int:
    able = probe()
    if not able.can_shut_in:
        print(f"cannot shut commands in: {able.problems} {able.remedies}", file=sys.stderr)
        print(json.dumps({"probes": len(PROBES), "contained": 0, "start_p50_ms": None}))
        return 1
    inside, outside = await prices(able, rounds)
    results = await attacks(able, verbose=verbose)
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
    parser = argparse.ArgumentParser(prog="chaos escape")
    parser.add_argument("--quick", action="store_true", help="fewer starts, the same probes")
    parser.add_argument("--verbose", action="store_true", help="what each probe said")
    asked = parser.parse_args(argv)
    return asyncio.run(measure(50 if asked.quick else 300, verbose=asked.verbose))
