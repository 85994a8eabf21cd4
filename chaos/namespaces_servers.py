"""Servers in places of their own, reached over a network: so with TLS and signed logins."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from antiphon.engines.nats import Accounts, LocalServer, TlsFiles, UserKey, server_files
from antiphon.engines.nats.server import find_binary
from antiphon.runtime.home import Access
from chaos.namespaces import Place, launcher

PORT: Final = 4222
ROUTE_PORT: Final = 6222


class PlacedServer(LocalServer):
    """A server in a place, which may have peers in others."""

    def __init__(
        self,
        directory: Path,
        place: Place,
        peers: Sequence[Place],
        *,
        accounts: Accounts,
        tls: TlsFiles,
    ) -> None:
        directory.mkdir(parents=True, mode=0o700)
        super().__init__(
            directory,
            host=place.address,
            port=PORT,
            binary=launcher(directory, place, find_binary()),
            accounts=accounts,
            tls=tls,
        )
        self.place, self._peers = place, peers

    @property
    def name(self) -> str:
        """What it calls itself, and what others call the leader of a stream by."""
        lines = (self.directory / "server.conf").read_text(encoding="utf-8").splitlines()
        return next(line.split()[1] for line in lines if line.startswith("server_name:"))

    def _config(self) -> str:
        if not self._peers:
            return super()._config()
        routes = ", ".join(f'"nats-route://{one.address}:{ROUTE_PORT}"' for one in self._peers)
        listen = f"{self.host}:{ROUTE_PORT}"
        return (
            super()._config()
            + f'cluster {{ name: chaos, listen: "{listen}", routes: [{routes}] }}\n'
        )


@asynccontextmanager
async def placed_servers(
    directory: Path, places: Sequence[Place]
) -> AsyncIterator[tuple[list[PlacedServer], Access, str]]:
    """One server per place, a login with all rights, and the certificate to trust."""
    accounts = Accounts.open(directory, "chaos")
    tls = server_files(directory / "tls", [place.address for place in places])
    user = UserKey.new()
    jwt = accounts.user_jwt(
        user.public, None, expires_s=None, name="chaos", issued_s=int(time.time())
    )
    access = Access(user=user.public, user_seed=user.seed, jwt=jwt)
    async with AsyncExitStack() as stack:
        servers = []
        for number, place in enumerate(places, 1):
            peers = [other for other in places if other is not place]
            server = PlacedServer(
                directory / f"server-{number}", place, peers, accounts=accounts, tls=tls
            )
            servers.append(await stack.enter_async_context(server))
        yield servers, access, tls.authority.read_text()
