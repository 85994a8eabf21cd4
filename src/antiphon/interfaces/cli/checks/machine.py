"""Checks of this machine: its state directory, its disk, its sandbox."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Final

from antiphon.interfaces.cli.checks.findings import Finding, ok, warning, wrong
from antiphon.interfaces.cli.screen.progress import size_words
from antiphon.interfaces.cli.screen.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from antiphon.sdk.mesh import StateDirectory

DISK_BYTES: Final = 1 << 30
DISK_SHARE: Final = 20
"""A disk is nearly full below a GiB, or below 1/this of it if it is small."""
DISK_LEAST_BYTES: Final = 16 << 20


def state(home: StateDirectory) -> Iterator[Finding]:
    """Whose it is, whether others can read its secrets, and whether there is room."""
    yield ok("state", f"{home.path} belongs to mesh {home.mesh().name!r}")
    yield from _privacy(home)
    used = shutil.disk_usage(home.path)
    yield disk_finding(home.path, used.total, used.free)


def disk_finding(path: Path, total: int, free: int) -> Finding:
    """Whether there is room for keys, the replica and, on the host, the log."""
    if free >= min(DISK_BYTES, total // DISK_SHARE):
        return ok("disk", f"{size_words(free)} free")
    level = wrong if free < DISK_LEAST_BYTES else warning
    words = f"{size_words(free)} free on the disk of {path}: when it is full, nothing is written"
    return level("disk", words, f"make room there; du -sh {path}/* shows what is large")


def _privacy(home: StateDirectory) -> Iterator[Finding]:
    """Whether other users of this machine can read secrets."""
    mode = home.path.stat().st_mode & 0o777
    listed = f"other users can list {home.path} (mode {mode:o})"
    if mode & 0o077:
        yield warning("private", listed, f"chmod 700 {home.path}")
    secrets = [*home.path.glob("keys/*.key"), home.path / "access.json"]
    loose = [path for path in secrets if path.exists() and path.stat().st_mode & 0o077]
    for path in loose:
        yield wrong("private", f"other users can read {path}", f"chmod 600 {path}")
    if not loose and not mode & 0o077:
        kept = counted(sum(path.suffix == ".key" for path in secrets), "key")
        yield ok("private", f"{kept}, readable by this user only")


async def sandbox(home: StateDirectory) -> Finding:
    """Whether this machine can run commands in a sandbox."""
    from antiphon.sdk.command_job import sandbox_status

    able, sentence, remedy = await asyncio.to_thread(sandbox_status, home)
    if able:
        return ok("sandbox", sentence)
    return warning("sandbox", f"commands cannot run here: {sentence}", remedy)
