"""The servers of a run: one, or a cluster of three; and a mesh that is founded on them.

Everything lies in one directory and listens on loopback. Servers can be killed and come back on
the same port with the same store. Chaos runs use them too.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from antiphon.assembly.logins import Purpose, connect
from antiphon.core.authority.rules import Rules
from antiphon.engines.nats import Accounts, LocalServer, TlsFiles
from antiphon.errors import AntiphonError
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory

FOUNDED_WITHIN_S: Final = 60.0
"""A new cluster elects its first leaders in this time."""
SETTLE_S: Final = 2.0
"""A cluster that is asked for a stream before its servers know each other is silent for 10 s."""


Change = Callable[[str], str]
"""From the text of a configuration file to another."""


class ClusterServer(LocalServer):
    """A server with routes to the other servers of its cluster."""

    def __init__(
        self,
        directory: Path,
        routes: Sequence[int] = (),
        number: int = 0,
        *,
        change: Change = str,
        accounts: Accounts | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        super().__init__(directory, accounts=accounts, tls=tls)
        self._routes, self._number, self._change = routes, number, change

    def _config(self) -> str:
        config = self._change(super()._config())
        if not self._routes:
            return config
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in self._routes)
        here = self._routes[self._number]
        cluster = f'cluster {{ name: local, listen: "127.0.0.1:{here}", routes: [{routes}] }}\n'
        return config + cluster


def free_ports(count: int) -> list[int]:
    """Loopback ports that nothing listens on right now.

    They lie below the range that systems assign by themselves, so none is taken before it is used.
    """
    found: list[int] = []
    while len(found) < count:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


@asynccontextmanager
async def running_servers(
    directory: Path, replicas: int, *, change: Change = str
) -> AsyncIterator[list[LocalServer]]:
    """One server for one copy, a cluster of that many for more; `change` edits their files."""
    async with AsyncExitStack() as stack:
        if replicas == 1:
            place = directory / "server-1"
            yield [await stack.enter_async_context(ClusterServer(place, change=change))]
            return
        routes = free_ports(replicas)
        passwords = {name: secrets.token_urlsafe(24) for name in ("mesh", "system")}
        servers: list[LocalServer] = []
        for number in range(replicas):
            place = directory / f"server-{number + 1}"
            place.mkdir(parents=True, mode=0o700)
            kept = place / "credentials.json"
            kept.touch(mode=0o600)
            kept.write_text(json.dumps(passwords))
            server = ClusterServer(place, routes, number, change=change)
            servers.append(await stack.enter_async_context(server))
        yield servers


async def found_mesh(
    home: StateDirectory,
    servers: Sequence[LocalServer],
    rules: Rules,
    *,
    access: Access | None = None,
    ca: str = "",
) -> MeshFile:
    """Found a mesh with as many copies of its log as there are servers.

    Logs in with the servers' user and password, unless `access` (and the `ca` to trust) is given.
    """
    described = MeshFile(
        mesh="",
        name="local",
        engine=",".join(server.url for server in servers),
        replicas=len(servers),
        ca=ca,
    )
    access = access or Access(user=servers[0].user, password=servers[0].password)
    owner = home.key("owner", SystemEntropy())
    recovery = home.key("recovery", SystemEntropy())
    try:
        signed_genesis = genesis.sign(
            owner.keyring, SystemClock(), name="local", recovery=recovery.keyring.did, rules=rules
        )
    finally:
        recovery.release()
        owner.release()
    described = msgspec.structs.replace(described, mesh=signed_genesis.mesh)
    deadline = time.monotonic() + FOUNDED_WITHIN_S
    if len(servers) > 1:
        await asyncio.sleep(SETTLE_S)
    while True:
        try:
            engine = await connect(described, access, Purpose(name="founder", create=True))
            try:
                await genesis.write(engine.log, signed_genesis)
            finally:
                await engine.close()
            break
        except AntiphonError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
    home.write(described, access)
    return described
