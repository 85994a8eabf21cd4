"""A development mesh: a server in the state directory, created once and kept (`antiphon dev`)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.assembly.hosted_mesh import coordinate, development_server, found_on
from antiphon.core.authority.rules import Rules
from antiphon.errors import Misconfigured
from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory
from antiphon.sdk.hosting.own_server import end_orphan, supervise, take_directory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.runtime.node.full_node import FullNode

COMMAND: Final = "antiphon dev"


class Development(Struct, frozen=True):
    """A running development mesh."""

    home: StateDirectory
    mesh: MeshFile
    is_new: bool
    server_pid: int
    kill_server: Callable[[], None]
    """For an exit that cannot wait: stops the server at once."""

    async def coordinate(self, node: FullNode) -> None:
        """Designate this node as coordinator if only the owner's key has ever been."""
        await coordinate(self.home, node.session)

    async def supervise(self) -> None:
        """Raise `Unavailable` if the server stops; until then, wait."""
        await supervise(self.server_pid, self.home.server, COMMAND)


@asynccontextmanager
async def development(directory: Path, *, name: str) -> AsyncIterator[Development]:
    """Start the directory's server and create a mesh on it, or continue the one it has."""
    home = StateDirectory(directory)
    lock = take_directory(directory, COMMAND)
    try:
        known = _known(home)
        await end_orphan(home.server)
        async with development_server(home, port=_same_port(known)) as server:
            rules = Rules(authority="open")
            mesh = await found_on(home, server, name=name, rules=rules)
            yield Development(home, mesh, known is None, server.pid or 0, server.kill)
    finally:
        lock.release()


def _known(home: StateDirectory) -> MeshFile | None:
    """The mesh that this directory has on its own server, if any."""
    if not (home.path / "mesh.json").exists():
        return None
    known = home.mesh()
    if known.ca:
        raise Misconfigured(
            f"{home.path} has the mesh {known.name!r}, which is not a development mesh",
            hint="start it with 'antiphon up', or run 'antiphon dev' in another directory",
        )
    if not home.server.exists():
        raise Misconfigured(
            f"{home.path} belongs to the mesh {known.name!r} on {known.engine}",
            hint="start a development mesh in another directory",
        )
    return known


def _same_port(known: MeshFile | None) -> int:
    """The previous port if it is free, so that waiting workers can reconnect."""
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


__all__ = ["Development", "development"]
