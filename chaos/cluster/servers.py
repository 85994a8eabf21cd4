"""The servers of a run: one, or a cluster of three.

Everything lies in one directory and listens on loopback. Servers can be killed and come back on
the same port with the same store.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from antiphon.engines.nats import LocalServer


class ClusterServer(LocalServer):
    """A server with routes to the other servers of its cluster."""

    def __init__(self, directory: Path, routes: Sequence[int], number: int) -> None:
        super().__init__(directory)
        self._routes, self._number = routes, number

    def _config(self) -> str:
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in self._routes)
        here = self._routes[self._number]
        cluster = f'cluster {{ name: chaos, listen: "127.0.0.1:{here}", routes: [{routes}] }}\n'
        return super()._config() + cluster


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
async def running_servers(directory: Path, replicas: int) -> AsyncIterator[list[LocalServer]]:
    """One server for one copy, a cluster of that many for more."""
    async with AsyncExitStack() as stack:
        if replicas == 1:
            yield [await stack.enter_async_context(LocalServer(directory / "server-1"))]
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
            server = ClusterServer(place, routes, number)
            servers.append(await stack.enter_async_context(server))
        yield servers
