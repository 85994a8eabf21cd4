"""A mesh at another address: its host announces it, its members go there.

And a mesh that was made for one machine: opened to others, with everything that is on it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from antiphon.assembly.backups import require_host
from antiphon.assembly.hosted_mesh import Listen, listening
from antiphon.assembly.logins import Purpose, connect
from antiphon.assembly.mesh_connection import OWNER
from antiphon.errors import EngineDenied, Misconfigured
from antiphon.files import replace_file
from antiphon.runtime.gate.addresses import announce, check_address, with_address
from antiphon.runtime.identity.state_directory import Access
from antiphon.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory

MOST_NAMES: Final = 16
"""Of one mesh, in the certificate of its server; the newest."""
OPENED: Final = "opened"
"""A file of the server's, while a development mesh is being opened."""


def announce_address(home: StateDirectory, address: str) -> str:
    """Have this host's gate tell members where the mesh will be; the address as they keep it."""
    described = require_host(home)
    if not described.ca:
        raise Misconfigured(
            f"{home.path} has a development mesh, which only this machine can reach",
            hint="stop 'antiphon dev', then: antiphon up --listen 0.0.0.0:4222 --reach NAME",
        )
    engine = check_address(address)
    now_ms = time.time_ns() // 1_000_000
    announce(home.gate, described.mesh, engine, home.signer(OWNER), now_ms=now_ms)
    return engine


async def follow_address(home: StateDirectory, address: str) -> MeshFile:
    """Look for this member's mesh at an address, and keep it; `AntiphonError` if it is not there.

    A server that refuses the login is the right one all the same: it has the mesh's certificate.
    """
    described = home.mesh()
    engine = check_address(address)
    there = msgspec.structs.replace(described, engine=engine)
    try:
        await (await connect(there, home.access(), Purpose(name="address"))).close()
    except EngineDenied:
        if not described.ca:
            raise
    moved = with_address(described, engine)
    home.write_mesh(moved)
    return moved


# --- opened to other machines ---------------------------------------------------------------------


def further_listen(home: StateDirectory, listen: Listen | None, reach: Sequence[str]) -> Listen:
    """Where a mesh that exists listens from now on, and what it is called besides.

    A port of 0 is the port that it has. Names that it had stay valid, behind the new ones.
    """
    described = home.mesh()
    has_password = (home.server / "credentials.json").is_file()
    is_development = not described.ca and has_password
    known = _development(described) if is_development else listening(home)
    if listen is None and is_loopback(known.host):
        raise Misconfigured(
            "this mesh listens to this machine alone",
            hint="antiphon up --listen 0.0.0.0:4222 --reach NAME",
        )
    host, port, names = known.host, known.port, tuple(reach)
    if listen is not None:
        host, port, names = listen.host, listen.port or known.port, listen.names
    every = dict.fromkeys([*names, *known.names])
    return Listen(host=host, port=port, names=tuple(every)[:MOST_NAMES])


def _development(described: MeshFile) -> Listen:
    port = urlsplit(described.engine).port or 0
    return Listen(host="127.0.0.1", port=port, names=("127.0.0.1",))


def secure(home: StateDirectory, listen: Listen) -> None:
    """Give a development mesh accounts and certificates: from now on it has a gate.

    Its server must not run. `mesh.json` comes last: with it, this cannot be undone. Until
    `is_being_opened` says no, its rules are those of a development mesh.
    """
    from antiphon.engines.nats import Accounts, UserKey, server_files

    described = home.mesh()
    Accounts.open(home.server, described.name)
    tls = server_files(home.server / "tls", listen.names)
    replace_file(home.server / "listen.json", msgspec.json.encode(listen))
    replace_file(home.server / OPENED, b"")
    home.keep_recovery_to_show()
    user = UserKey.new()
    access = Access(user=user.public, user_seed=user.seed)
    home.write(msgspec.structs.replace(described, ca=tls.authority.read_text()), access)
    (home.server / "credentials.json").unlink(missing_ok=True)


def is_being_opened(home: StateDirectory) -> bool:
    """Whether it was a development mesh, and has its rules still."""
    return (home.server / OPENED).exists()


def opened(home: StateDirectory) -> None:
    """Its rules are those of a mesh for several machines now."""
    (home.server / OPENED).unlink(missing_ok=True)
