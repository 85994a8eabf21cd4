"""A mesh for several machines: its server and its gate, from one directory (`antiphon up`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.assembly.hosted_mesh import Hosted, Listen, coordinate, gatekeeping, secured_server
from antiphon.assembly.membership import invite, redeem
from antiphon.assembly.recovery import Recovered, Review, Setting, recover
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.errors import Held, Misconfigured, PortTaken
from antiphon.runtime.gate.tickets import Ticket, read_ticket, write_ticket
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from antiphon.runtime.node.full_node import FullNode
from antiphon.sdk.hosting.own_server import end_orphan, supervise, take_directory
from antiphon.sdk.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.runtime.gate.admission import Gate

COMMAND: Final = "antiphon up"


class Hosting(Struct, frozen=True):
    """A hosted mesh whose server is running."""

    home: StateDirectory
    hosted: Hosted
    server_pid: int
    kill_server: Callable[[], None]
    """For an exit that cannot wait: stops the server at once."""

    @property
    def mesh(self) -> MeshFile:
        """The mesh, as its state directory describes it."""
        return self.hosted.mesh

    @property
    def recovery_seed(self) -> bytes:
        """A recovery key that nobody has seen yet, or empty; call `recovery_shown` once it was."""
        return self.hosted.recovery_seed

    def recovery_shown(self) -> None:
        """Delete the recovery key's file: a person, or a program, has the key."""
        self.home.recovery_shown()

    async def supervise(self) -> None:
        """Raise `Unavailable` if the server stops; until then, wait."""
        await supervise(self.server_pid, self.home.server, COMMAND)

    @asynccontextmanager
    async def gate(self, over: FullNode | Mesh) -> AsyncIterator[Gate]:
        """Run the gate while the block runs, over the connection of a node or of a mesh."""
        if isinstance(over, Mesh):
            session, node = over.connection.session, None
        else:
            session, node = over.session, over
        async with gatekeeping(self.home, session, node) as gate:
            yield gate

    async def coordinate(self, node: FullNode) -> None:
        """Designate this node as coordinator if only the owner's key has ever been."""
        await coordinate(self.home, node.session)


@asynccontextmanager
async def found_and_host(
    directory: Path, *, name: str, listen: Listen, rules: Rules | None = None
) -> AsyncIterator[Hosting]:
    """Create a mesh in a directory that has none, and host it while the block runs.

    A mesh whose recovery key nobody has seen is not finished: it is continued, under its own name.
    """
    home = StateDirectory(directory)
    if (directory / "mesh.json").exists() and not home.unshown_recovery():
        raise Held(
            f"{directory} already has the mesh {home.mesh().name!r}",
            hint="start it with 'antiphon up', or run 'antiphon init' in another directory",
        )
    async with _host(home, name=name, listen=listen, rules=rules or Rules()) as hosting:
        yield hosting


@asynccontextmanager
async def host(directory: Path) -> AsyncIterator[Hosting]:
    """Host the mesh that a directory already has, while the block runs."""
    home = StateDirectory(directory)
    known = home.mesh()
    if not known.ca:
        raise Misconfigured(
            f"{directory} has the development mesh {known.name!r}",
            hint="start it with 'antiphon dev'; 'antiphon init' makes a mesh for several machines",
        )
    async with _host(home, name=known.name, listen=None, rules=Rules()) as hosting:
        yield hosting


@asynccontextmanager
async def _host(
    home: StateDirectory, *, name: str, listen: Listen | None, rules: Rules
) -> AsyncIterator[Hosting]:
    lock = take_directory(home.path, COMMAND)
    try:
        await end_orphan(home.server)
        async with secured_server(home, name=name, listen=listen, rules=rules) as hosted:
            server = hosted.server
            yield Hosting(home, hosted, server.pid or 0, server.kill)
    except PortTaken as taken:
        if listen is not None:
            taken.hint = f"use a free port: antiphon init --listen {listen.host}:0"
        raise
    finally:
        lock.release()


__all__ = [
    "Access",
    "FullNode",
    "Hosting",
    "Listen",
    "Recovered",
    "Review",
    "Setting",
    "Terms",
    "Ticket",
    "found_and_host",
    "host",
    "invite",
    "read_ticket",
    "recover",
    "redeem",
    "write_ticket",
]
