"""`bench growth`: many jobs through one mesh, and whether the last go as quickly as the first.

A caller, a worker, a full node and a server, each a process of its own, from the first job to the
last. The jobs come in ten parts; each part is submitted, and waited for until all of it has ended.
Of each part there are the jobs per second by the wall clock, which depends on what else the machine
does, and the processor time per job of each process, which depends on it far less.

With `--plot FILE` the rates and the processor times are drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.runtime.caller.bulk_submission import submit_many
from bench.measurement.child_process import child_process, start_together
from bench.measurement.process_usage import cpu_s, resident_mb
from bench.measurement.report import conclude, say
from bench.meshes.fresh_mesh import fresh_mesh
from bench.meshes.job_load import ended_well, job_body, newest_seq

PARTS: Final = 10
JOBS: Final = 100_000
QUICK_JOBS: Final = 5_000
SLOTS: Final = 384
RECORDS: Final = 3
"""Of one job: its schedule, its claim, its completion."""
LOOK_S: Final = 0.02
PART_WITHIN_S: Final = 600.0
WIDTH: Final = 640
HEIGHT: Final = 320
COLOURS: Final = {"worker": "#b2182b", "node": "#2166ac", "server": "#4d9221", "caller": "#762a83"}


class Part(Struct, frozen=True):
    """One tenth of the jobs."""

    per_s: float
    cpu_ms: dict[str, float]
    """Per job, by process."""
    resident_mb: dict[str, float]


async def parts_of(jobs: int) -> tuple[list[Part], int]:
    """Run them all; also how many of a hundred of the last another session accepts."""
    found: list[Part] = []
    size = jobs // PARTS
    async with fresh_mesh("open", workers=2) as mesh, AsyncExitStack() as stack:
        worker_home, node_home = (str(home.path) for home in mesh.worker_homes)
        worker = child_process("bench.meshes.worker", "--home", worker_home, "--slots", str(SLOTS))
        node = child_process("bench.meshes.node_process", "--home", node_home)
        pids = [pid for pid, _ in await start_together(stack, [worker, node])]
        end = await newest_seq(mesh.observer)

        def used() -> dict[str, float]:
            worker_s, node_s = map(cpu_s, pids)
            server_s, caller_s = mesh.server_cpu_s(), time.process_time()
            return {"worker": worker_s, "node": node_s, "server": server_s, "caller": caller_s}

        submitted: list[str] = []
        for number in range(PARTS):
            bodies = [job_body(number * size + job) for job in range(size)]
            before, began_s = used(), time.monotonic()
            submitted = [one.id for one in await submit_many(mesh.caller, bodies)]
            end += RECORDS * size
            async with asyncio.timeout(PART_WITHIN_S):
                while await newest_seq(mesh.observer) < end:
                    await asyncio.sleep(LOOK_S)
            took_s, after = time.monotonic() - began_s, used()
            cpu_ms = {who: round((after[who] - before[who]) * 1000 / size, 3) for who in after}
            resident = dict(zip(("worker", "node"), map(resident_mb, pids), strict=True))
            found.append(Part(size / took_s, cpu_ms, resident))
            say(f"{(number + 1) * size:,} jobs: {size / took_s:,.0f} jobs/s, {cpu_ms}")
        well = await ended_well(mesh.observer, submitted[:100])
    return found, well


def plot(parts: list[Part], jobs: int) -> str:
    """Two curves: jobs per second, and the processor time of each process."""
    rates = _curve([one.per_s for one in parts], max(one.per_s for one in parts), "#333333")
    most_ms = max(max(one.cpu_ms.values()) for one in parts)
    lines, names = [rates], [f'<text x="50" y="20" fill="#333333">jobs/s (0…{_top(parts)})</text>']
    for at, (who, colour) in enumerate(COLOURS.items()):
        lines.append(_curve([one.cpu_ms[who] for one in parts], most_ms, colour, "4 3"))
        x = 190 + at * 110
        names.append(f'<text x="{x}" y="20" fill="{colour}">{who}, ms (0…{most_ms:.2f})</text>')
    foot = f'<text x="50" y="{HEIGHT - 8}">from the first job to job {jobs:,}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' font-family="sans-serif" font-size="11">{"".join((*lines, *names, foot))}</svg>\n'
    )


def _top(parts: list[Part]) -> str:
    return f"{max(one.per_s for one in parts):,.0f}"


def _curve(values: list[float], most: float, colour: str, dashes: str = "") -> str:
    left, low, high = 50, HEIGHT - 30, HEIGHT - 70
    step = (WIDTH - 2 * left) / max(len(values) - 1, 1)
    points = [
        f"{left + at * step:.1f},{low - high * one / most:.1f}" for at, one in enumerate(values)
    ]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.5"{dashed}'
        f' points="{" ".join(points)}"/>'
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench growth")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--plot", type=Path, help="where to draw it, as SVG")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    jobs = min(args.jobs, QUICK_JOBS) if args.quick else args.jobs
    parts, well = asyncio.run(parts_of(jobs))
    if args.plot is not None:
        args.plot.write_text(plot(parts, jobs))
    rates = [one.per_s for one in parts]
    conclude(
        jobs=jobs,
        per_s=[round(rate) for rate in rates],
        last_of_first=round(rates[-1] / rates[0], 3),
        **{f"{who}_cpu_ms": [one.cpu_ms[who] for one in parts] for who in COLOURS},
        **{
            f"{who}_mb": [round(one.resident_mb[who]) for one in parts]
            for who in ("worker", "node")
        },
        judged_ok=well,
    )
    return 0 if well == min(100, jobs // PARTS) else 1
