"""A state directory that runs its own server: one process at a time, and no server left running.

Stops exactly the server that belongs to the directory, even one that a killed process left
running: two servers on one store would destroy it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from antiphon.engines.nats.server.process import is_in_use
from antiphon.errors import Held, Unavailable
from antiphon.runtime.identity import key_files
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.environment import read_environment

ORPHAN_GRACE_S: Final = 10.0
LOCK_GRACE_S: Final = 2.0
SUPERVISION_S: Final = 1.0
"""How often to check whether the server still runs."""


def take_directory(directory: Path, command: str) -> key_files.FileLock:
    """Create the directory, keep it out of version control, and lock it for hosting."""
    read_environment().require_server()
    StateDirectory(directory).make()
    try:
        lock = key_files.lock_file(
            directory / "dev.lock", f"'{command}' is already running in {directory}"
        )
    except Held as held:
        raise Held(
            held.message,
            hint="use that one: antiphon submit …; to start it with other options, stop it first",
        ) from held
    return lock


async def supervise(pid: int, server: Path, command: str) -> None:
    """Raise `Unavailable` if the server stops; until then, wait."""
    while is_running(pid, server / "server.conf"):  # noqa: ASYNC110 - a process has no event
        await asyncio.sleep(SUPERVISION_S)
    raise Unavailable(
        f"the nats-server of this mesh (process {pid}) has stopped",
        hint=f"see {server / 'server.log'}, then start '{command}' again",
    )


async def end_orphan(directory: Path) -> None:
    """Stop the server that a killed process left running on this store.

    A server writes its process id when it is ready and removes it when it ends in order. The
    process with that id is ours only if it was started with this directory's config. A process
    that ends loses its command line before its files, so the last thing to wait for is the lock.
    """
    for ports in (directory / "ports").glob("*.ports"):
        text = ports.stem.rpartition("_")[2]
        if not text.isdecimal() or not is_running(int(text), directory / "server.conf"):
            continue
        os.kill(int(text), signal.SIGTERM)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        while is_running(int(text), directory / "server.conf"):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"a nats-server of an earlier run (process {text}) does not stop",
                    hint=f"kill {text}",
                )
            await asyncio.sleep(0.05)
    deadline = time.monotonic() + LOCK_GRACE_S
    while is_in_use(directory) and time.monotonic() < deadline:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)


def is_running(pid: int, config: Path) -> bool:
    """Whether a process is the server that was started with this config."""
    proc = Path(f"/proc/{pid}/cmdline")
    if proc.parent.parent.joinpath("self").exists():
        try:
            return os.fsencode(config) in proc.read_bytes()
        except OSError:
            return False
    listed = subprocess.run(  # noqa: S603 - a number is the only argument
        ["ps", "-o", "command=", "-p", str(pid)],  # noqa: S607 - wherever this system has it
        capture_output=True,
        check=False,
        text=True,
    )
    return str(config) in listed.stdout
