"""Running short shell scripts in a sandbox, and keeping their output."""

from pathlib import Path
from typing import Any, NamedTuple

from antiphon.sandbox import Command, Ended, Limits, SandboxSupport, run

MIB = 1 << 20
SMALL = Limits(
    timeout_s=60,
    grace_s=0.3,
    memory_bytes=128 * MIB,
    processes=32,
    file_bytes=8 * MIB,
    work_bytes=4 * MIB,
    scratch_bytes=2 * MIB,
    output_bytes=64 * 1024,
)


class Said(NamedTuple):
    ended: Ended
    out: str
    err: str


def small(**changes: Any) -> Limits:
    fields = {name: getattr(SMALL, name) for name in SMALL.__struct_fields__}
    return Limits(**{**fields, **changes})


async def shell(script: str, able: SandboxSupport | None, work: Path, **fields: Any) -> Said:
    """Run a script; `limits`, `inputs` and the like as for a command, `unsafe` as for `run`."""
    unsafe = fields.pop("unsafe", False)
    command = Command(argv=("sh", "-c", script), **{"limits": SMALL, **fields})
    heard = {"stdout": b"", "stderr": b""}

    def hear(stream: str, data: bytes) -> None:
        heard[stream] += data

    ended = await run(command, work=work, on_output=hear, abilities=able, unsafe=unsafe)
    return Said(ended, heard["stdout"].decode(), heard["stderr"].decode())


async def timed_out(script: str, able: SandboxSupport | None, work: Path, **fields: Any) -> Said:
    """Run a script that says `ready` into a timeout that came later than that."""
    limits = fields.pop("limits", {})
    for timeout_s in (0.3, 3, 30):
        said = await shell(
            script, able, work, limits=small(timeout_s=timeout_s, **limits), **fields
        )
        assert said.ended.reason == "timeout"
        if said.out.startswith("ready\n"):
            return said
    raise AssertionError(f"was not ready within {timeout_s} s")


def alive(mark: str) -> list[int]:
    """Processes of this machine that have a word on their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
