"""A mesh for several machines: its server and its gate, from one directory (`antiphon up`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.assembly import moving
from antiphon.assembly.hosted_mesh import (
    Hosted,
    Listen,
    coordinate,
    gatekeeping,
    secured_server,
)
from antiphon.assembly.membership import invite, login_of, redeem
from antiphon.assembly.recovery import Recovered, Review, Setting, recover
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.errors import Held, Misconfigured, PortTaken
from antiphon.runtime.gate.tickets import Ticket, read_ticket, write_ticket
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from antiphon.runtime.node.full_node import FullNode
from antiphon.sdk.hosting.own_server import end_orphan, supervise, take_directory
from antiphon.sdk.hosting.strongest_key import with_authority
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
    moved_from: str = ""
    """Where members that joined before look for the mesh, if it is elsewhere from now on."""
    was_open: bool = False
    """Whether it was a development mesh until now."""

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
    command, rules = "antiphon init", rules or Rules()
    async with _host(home, name=name, listen=listen, rules=rules, command=command) as hosting:
        yield hosting


def further_listen(directory: Path, listen: Listen | None, reach: Sequence[str]) -> Listen:
    """Where a mesh that exists listens from now on, and what it is called besides."""
    return moving.further_listen(StateDirectory(directory), listen, reach)


@asynccontextmanager
async def host(directory: Path, *, listen: Listen | None = None) -> AsyncIterator[Hosting]:
    """Host the mesh that a directory already has, while the block runs.

    With `listen` its server listens there, from now on. A development mesh gets a gate by that,
    and is no longer open to whoever can connect.
    """
    home = StateDirectory(directory)
    known = home.mesh()
    if not known.ca and listen is None:
        raise Misconfigured(
            f"{directory} has the development mesh {known.name!r}",
            hint="start it with 'antiphon dev'; for other machines, to keep what is on it:"
            " antiphon up --listen 0.0.0.0:4222 --reach NAME",
        )
    has_members = any((home.gate / "members").glob("*.json"))
    async with _host(home, name=known.name, listen=listen, rules=Rules()) as hosting:
        moved = has_members and hosting.mesh.engine != known.engine
        yield msgspec.structs.replace(hosting, moved_from=known.engine if moved else "")


@asynccontextmanager
async def _host(
    home: StateDirectory, *, name: str, listen: Listen | None, rules: Rules, command: str = COMMAND
) -> AsyncIterator[Hosting]:
    if listen is not None:
        await _require_name(listen)
    lock = take_directory(home.path, COMMAND)
    try:
        await end_orphan(home.server)
        if listen is not None and (home.path / "mesh.json").exists() and not home.mesh().ca:
            moving.secure(home, listen)
        async with secured_server(home, name=name, listen=listen, rules=rules) as hosted:
            server = hosted.server
            was_open = await _no_longer_open(home)
            yield Hosting(home, hosted, server.pid or 0, server.kill, was_open=was_open)
    except PortTaken as taken:
        if listen is not None:
            port = "PORT" if command == COMMAND else "0"
            taken.hint = f"use a free port: {command} --listen {listen.host}:{port}"
        raise
    finally:
        lock.release()


async def _no_longer_open(home: StateDirectory) -> bool:
    """End the rules of a development mesh that is being opened; whether it is one."""
    if not moving.is_being_opened(home):
        return False
    async with with_authority(home.path) as mesh:
        await mesh.authority.set_rules({"authority": "chain"})
    moving.opened(home)
    return True


async def _require_name(listen: Listen) -> None:
    """`Misconfigured` if this machine could not reach its own server, which it does by name."""
    name = listen.names[0]
    try:
        await asyncio.get_running_loop().getaddrinfo(name, listen.port)
    except OSError as error:
        raise Misconfigured(
            f"this machine does not know the name {name!r}: {error.strerror}",
            hint="--reach takes a name that leads to this machine, or its address",
        ) from error


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
    "further_listen",
    "host",
    "invite",
    "login_of",
    "read_ticket",
    "recover",
    "redeem",
    "write_ticket",
]
