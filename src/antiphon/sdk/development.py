"""A mesh of one's own: a server in the state directory, founded once and kept (`antiphon dev`).

Owns the directory's development lock and ends exactly the server that belongs to the directory,
even one that a killed process left behind: two servers on one store would destroy it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.assembly import development_server, found_on
from antiphon.core.rules import Rules
from antiphon.errors import Held, Misconfigured, Unavailable
from antiphon.runtime import keys
from antiphon.runtime.home import PRIVATE_DIRECTORY, Home, MeshFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ORPHAN_GRACE_S: Final = 10.0
SUPERVISION_S: Final = 1.0
"""How often to look whether the server still runs."""


class Development(Struct, frozen=True):
    """A running development mesh."""

    home: Home
    mesh: MeshFile
    is_new: bool
    server_pid: int
    kill_server: Callable[[], None]
    """For an exit that cannot wait: ends the server at once."""

    async def supervise(self) -> None:
        """Raise `Unavailable` if the server ends by itself; until then, wait."""
        config = self.home.server / "server.conf"
        while _is_running(self.server_pid, config):  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(SUPERVISION_S)
        raise Unavailable(
            f"the nats-server of this mesh (process {self.server_pid}) ended by itself",
            hint=f"see {self.home.server / 'server.log'}, then start 'antiphon dev' again",
        )


@asynccontextmanager
async def development(directory: Path, *, name: str) -> AsyncIterator[Development]:
    """Start the directory's server and found a mesh on it, or come back to the one it has."""
    home = Home(directory)
    lock = _take(directory)
    try:
        known = _known(home)
        await _end_orphan(home.server)
        async with development_server(home, port=_same_port(known)) as server:
            mesh = await found_on(home, server, name=name, rules=Rules(authority="open"))
            yield Development(home, mesh, known is None, server.pid or 0, server.kill)
    finally:
        os.close(lock)


def _take(directory: Path) -> int:
    """Make the directory, keep it out of version control, and be its one development process."""
    directory.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
    try:
        lock = keys.lock_file(directory / "dev.lock", f"'antiphon dev' already runs in {directory}")
    except Held as held:
        raise Held(held.message, hint="use that one: antiphon submit …, antiphon jobs") from held
    (directory / ".gitignore").write_text("# keys and state of one machine\n*\n")
    return lock


def _known(home: Home) -> MeshFile | None:
    """The mesh that this directory has on a server of its own, if any."""
    if not (home.path / "mesh.json").exists():
        return None
    known = home.mesh()
    if not home.server.exists():
        raise Misconfigured(
            f"{home.path} belongs to the mesh {known.name!r} on {known.engine}",
            hint="start a development mesh in another directory",
        )
    return known


def _same_port(known: MeshFile | None) -> int:
    """The port of last time if it is free, so that waiting workers find their way back."""
    port = urlsplit(known.engine).port if known is not None else None
    if port is None:
        return 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


async def _end_orphan(directory: Path) -> None:
    """End the server that a killed process left on this store.

    A server writes down its process id when it is ready and removes it when it ends in order.
    Whatever has that id now is ours only if it was started with this directory's config.
    """
    for ports in (directory / "ports").glob("*.ports"):
        text = ports.stem.rpartition("_")[2]
        if not text.isdecimal() or not _is_running(int(text), directory / "server.conf"):
            continue
        os.kill(int(text), signal.SIGTERM)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        while _is_running(int(text), directory / "server.conf"):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"a nats-server of an earlier run (process {text}) does not end",
                    hint=f"kill {text}",
                )
            await asyncio.sleep(0.05)


def _is_running(pid: int, config: Path) -> bool:
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


__all__ = ["Development", "development"]
