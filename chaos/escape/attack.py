"""One probe of `chaos escape`, run in the sandbox and without it; and all of them in turn."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

from antiphon.core.proof.statement import Isolation
from antiphon.sandbox import Command, Ended, Limits, SandboxSupport, run
from bench.measurement.report import say
from chaos.escape.probes import MIB, PROBES, Probe
from chaos.escape.programs import PRELUDE
from chaos.escape.targets import Targets

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


class Result(Struct, frozen=True, kw_only=True):
    probe: str
    got: str
    """What it reached in the sandbox; must be empty."""
    without: str
    """What it reached as a plain process."""
    wall: str
    isolation: Isolation


async def attack(
    item: Probe, targets: Targets, able: SandboxSupport, *, unsafe: bool, verbose: bool = False
) -> tuple[str, Ended]:
    """One run of one probe; what it reached, and how it ended."""
    targets.clear()
    said = bytearray()
    fields = {name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__} | item.limits
    if unsafe:
        fields |= item.unbounded
    interpreter = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    command = Command(
        argv=(
            str(interpreter),
            "-I",
            "-S",
            "-B",
            "-c",
            PRELUDE + item.program,
            targets.description(),
        ),
        outputs=("**",),
        visible=(targets.tools, *_interpreter_folders()),
        hidden=tuple(targets.states),
        limits=Limits(**fields),
    )
    with tempfile.TemporaryDirectory(dir=targets.directory) as work:
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
        got = targets.was_reached(bytes(said), kept)
        if len(said) > 2 * LIMITS.output_bytes:  # two streams
            got = got or f"{len(said)} bytes"
        targets.end_survivors()
    if verbose:
        say(f"--- {item.name} {'without sandbox' if unsafe else 'in the sandbox'}")
        say(said[:3000].decode(errors="replace"))
    return got, ended


def _interpreter_folders() -> tuple[Path, ...]:
    return () if sys.base_prefix.startswith("/usr") else (Path(sys.base_prefix),)


async def run_all(able: SandboxSupport, *, verbose: bool) -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory(prefix="antiphon-escape-") as folder:
        directory = Path(folder)
        directory.chmod(0o755)
        with Targets(directory) as targets:
            os.environ["ANTIPHON_TOKEN"] = targets.canary
            for item in PROBES:
                got, ended = await attack(item, targets, able, unsafe=False, verbose=verbose)
                without, _ = await attack(item, targets, able, unsafe=True, verbose=verbose)
                results.append(
                    Result(
                        probe=item.name,
                        got=got,
                        without=without,
                        wall=item.wall,
                        isolation=ended.isolation,
                    )
                )
                say(
                    f"{'OPEN' if got else 'held':5} {item.name:34} {got or item.wall:54} "
                    f"without sandbox: {without or '-'}"
                )
    return results
