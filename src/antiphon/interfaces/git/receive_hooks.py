"""Makes a repository ask the bridge about pushes: hooks and a few settings."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.errors import Misconfigured
from antiphon.interfaces.git import receive_hook

if TYPE_CHECKING:
    from antiphon.interfaces.git.repository import Repository

HOOKS: Final = ("pre-receive", "proc-receive")
AFTER: Final = "post-receive"
"""Only where branches are followed: it makes the bridge look at them at once."""
MARK: Final = "# Written by 'antiphon git serve': asks the bridge about pushed jobs."
JOBS: Final = "refs/gatos/jobs/new"
MAX_PUSH_BYTES: Final = 64 * 1024 * 1024

_LISTS: Final = {
    "receive.procReceiveRefs": (JOBS,),
    # Git itself refuses to write these, and does not list thousands of them for every push.
    "receive.hideRefs": ("refs/gatos", f"!{JOBS}", "refs/notes/antiphon"),
}
_DEFAULTS: Final = {"receive.maxInputSize": str(MAX_PUSH_BYTES), "receive.fsckObjects": "true"}


async def install_hooks(repository: Repository, *, follows: bool = False) -> None:
    """Write the hooks and the settings; `Misconfigured` if the repository has hooks of its own."""
    answer = await repository.git("rev-parse", "--git-path", "hooks")
    folder = (repository.path / answer.decode().strip()).resolve()
    if not folder.is_relative_to(repository.path):
        raise Misconfigured(
            f"hooks of {repository.path} are run from {folder}, which other repositories may use",
            hint=f"git -C {repository.path} config core.hooksPath hooks, or --read-only",
        )
    await asyncio.to_thread(_write, folder, (*HOOKS, AFTER) if follows else HOOKS)
    for name, values in _LISTS.items():
        _, out, _ = await repository.try_git("config", "--get-all", name)
        there = out.decode().splitlines()
        for value in values:
            if value not in there:
                await repository.git("config", "--add", name, value)
    for name, value in _DEFAULTS.items():
        code, _, _ = await repository.try_git("config", "--get", name)
        if code != 0:
            await repository.git("config", name, value)


def _write(folder: Path, hooks: tuple[str, ...]) -> None:
    folder.mkdir(exist_ok=True)
    before = folder / AFTER
    if AFTER not in hooks and before.exists() and MARK in before.read_text(errors="replace"):
        before.unlink()
    for hook in hooks:
        file = folder / hook
        if file.exists() and MARK not in file.read_text(errors="replace"):
            raise Misconfigured(
                f"{file} exists and is somebody else's",
                hint="move it away, or use --read-only: then no jobs can be pushed",
            )
        program = shlex.join([sys.executable, "-I", receive_hook.__file__, hook])
        fresh = file.with_suffix(".new")
        fresh.write_text(f"#!/bin/sh\n{MARK}\nexec {program}\n")
        fresh.chmod(0o755)
        fresh.replace(file)
