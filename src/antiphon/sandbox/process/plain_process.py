"""A command as a plain process, for machines where no sandbox is available.

Resource limits, a cleared environment and its own session; but the worker's uid, files and
network. The caller has passed `unsafe`, and the recorded isolation is "process".
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from antiphon.core.cost.usage import Resources
from antiphon.core.proof.statement import Isolation
from antiphon.processes.tree_usage import TreeUsage
from antiphon.sandbox.command import Command, Ended
from antiphon.sandbox.isolation import rlimits
from antiphon.sandbox.isolation.bubblewrap import environment_of
from antiphon.sandbox.process.child_process import Child, OnOutput
from antiphon.sandbox.process.run_end import keep_outputs
from antiphon.sandbox.process.usage_watch import OnUsage

NOT_HERE: Final = rlimits.PROCESSES + "s"
"""Limits that would count the worker's own processes too, or need a sandbox."""


async def run(
    command: Command, *, work: Path, on_output: OnOutput, on_usage: OnUsage | None = None
) -> Ended:
    """Run it in `work/job`; outputs are in `work/outputs`, as in a sandbox."""
    folder, environment = _prepared(command, work)
    child = Child(command.limits, on_output)
    set_limits = rlimits.script(command.limits, without=NOT_HERE)

    def send(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)

    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        child.start(
            ["/bin/sh", "-c", f'{set_limits} || exit 125; exec "$@"', "sh", *command.argv],
            stdin=nothing,
            env=environment,
            cwd=folder / command.cwd if command.cwd else folder,
            umask=0o077,
        )
        tree = TreeUsage(child.pid, on_usage)
        tree.start()
        try:
            reason = await child.lives(lambda: send(signal.SIGTERM))
        finally:
            tree.stop()
        await child.is_gone(lambda: send(signal.SIGKILL))
        send(signal.SIGKILL)  # what it left behind in its own group
        await child.last_words()
    finally:
        os.close(nothing)
        try:
            await child.is_gone(lambda: send(signal.SIGKILL))
        finally:
            child.close()
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        collection = await keep_outputs(command, opened, work / "outputs", is_apart=False)
    finally:
        os.close(opened)
    return Ended(
        exit=child.code,
        reason=reason,
        used=Resources(
            cpu_ms=child.cpu_ms,
            max_rss_kb=child.max_rss_kb,
            mem_kbs=tree.used().mem_kbs,
            disk_io_bytes=child.disk_io_bytes,
        ),
        isolation=Isolation(
            level="process",
            held=("environment:cleared", "rlimits", f"uid:{os.getuid()}"),
        ),
        outputs=tuple(collection.taken),
        left_out=tuple(collection.left_out),
    )


def _prepared(command: Command, work: Path) -> tuple[Path, dict[str, str]]:
    """The job's directory with its inputs, and an environment without the worker's."""
    folder, scratch, secrets = work / "job", work / "tmp", work / "secrets"
    for place in (folder, scratch, secrets, folder / command.cwd if command.cwd else folder):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, path in command.inputs:
        target = folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.symlink_to(path)
    for name, path in command.secrets:
        (secrets / name).symlink_to(path)
    own = {"HOME": str(scratch), "TMPDIR": str(scratch)}
    if command.secrets:
        own["ANTIPHON_SECRETS"] = str(secrets)
    return folder, {**environment_of(command), **own, **command.env}
