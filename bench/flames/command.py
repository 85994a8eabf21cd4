"""`bench flames`: samples a worker process by py-spy while it drains a queue, and draws it.

Needs py-spy (`pip install py-spy`) and the right to look into a child process. The picture goes to
`docs/understand/performance/worker-drain.svg`, or to `--output`.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Final

from antiphon.processes.owned_process import start_owned
from antiphon.runtime.caller.bulk_submission import submit_many
from bench.flames.flame_graph import svg, tree
from bench.measurement.child_process import child_process
from bench.measurement.report import conclude, say
from bench.meshes.fresh_mesh import Sort, fresh_mesh
from bench.meshes.job_load import job_body, newest_seq, wait_for_jobs

OUTPUT: Final = (
    Path(__file__).parents[2] / "docs" / "understand" / "performance" / "worker-drain.svg"
)
SAMPLES_PER_S: Final = 250
LONGEST_S: Final = 600


def find_sampler() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise SystemExit("bench flames: py-spy is missing. Type: pip install py-spy")
    return found


async def sample(sort: Sort, jobs: int, slots: int) -> list[str]:
    """The collapsed stacks of one worker process that drains so many jobs."""
    sampler = find_sampler()
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        stacks = Path(place) / "stacks"
        async with fresh_mesh(sort, workers=1) as mesh:
            home = str(mesh.worker_homes[0].path)
            before = await newest_seq(mesh.observer)
            await submit_many(mesh.caller, [job_body(number) for number in range(jobs)])
            worker = child_process("bench.meshes.worker", "--home", home, "--slots", str(slots))
            async with worker as (process, _):
                sampling = await start_owned(
                    *(sampler, "record", "--pid", str(process.pid), "--format", "raw"),
                    *("--rate", str(SAMPLES_PER_S), "--duration", str(LONGEST_S)),
                    *("--output", str(stacks)),
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                )
                await wait_for_jobs(mesh.observer, jobs, before=before)
            # The worker has ended; the sampler writes what it has seen, and ends as well.
            await sampling.wait()
        if not stacks.exists():
            raise SystemExit("bench flames: py-spy may not look into a child process here")
        return stacks.read_text(encoding="utf-8").splitlines()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench flames")
    parser.add_argument("--mesh", choices=["open", "chain", "members"], default="open")
    parser.add_argument("--slots", type=int, default=384)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    jobs = args.jobs or (1_000 if args.quick else 6_000)
    root = tree(asyncio.run(sample(args.mesh, jobs, args.slots)))
    title = (
        f"A worker drains {jobs:,} empty jobs: mesh {args.mesh}, {args.slots} slots,"
        f" {root.samples:,} samples of running code"
    )
    args.output.write_text(svg(root, title), encoding="utf-8")
    say(f"{args.output.name}: {args.output.stat().st_size:,} bytes")
    conclude(samples=root.samples, bytes=args.output.stat().st_size, jobs=jobs, mesh=args.mesh)
    return 0 if root.samples else 1
