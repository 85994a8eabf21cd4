"""Servers in network namespaces of their own: reached over a network, so with TLS and logins."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from antiphon.engines.nats import Accounts, LocalServer, TlsFiles, UserKey, server_files
from antiphon.engines.nats.server.process import find_binary
from antiphon.runtime.identity.state_directory import Access
from chaos.network.namespaces import NetworkNamespace, launcher

PORT: Final = 4222
ROUTE_PORT: Final = 6222


class NamespacedServer(LocalServer):
    """A server in a namespace, which may form a cluster with servers in others."""

    def __init__(
        self,
        directory: Path,
        namespace: NetworkNamespace,
        peers: Sequence[NetworkNamespace],
        *,
        accounts: Accounts,
        tls: TlsFiles,
    ) -> None:
        directory.mkdir(parents=True, mode=0o700)
        super().__init__(
            directory,
            host=namespace.address,
            port=PORT,
            binary=launcher(directory, namespace, find_binary()),
            accounts=accounts,
            tls=tls,
        )
        self.namespace, self._peers = namespace, peers

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
async def namespaced_servers(
    directory: Path, namespaces: Sequence[NetworkNamespace]
) -> AsyncIterator[tuple[list[NamespacedServer], Access, str]]:
    """One server per namespace, a login with all rights, and the certificate to trust."""
    accounts = Accounts.open(directory, "chaos")
    tls = server_files(directory / "tls", [namespace.address for namespace in namespaces])
    user = UserKey.new()
    jwt = accounts.user_jwt(
        user.public, None, expires_s=None, name="chaos", issued_s=int(time.time())
    )
    access = Access(user=user.public, user_seed=user.seed, jwt=jwt)
    async with AsyncExitStack() as stack:
        servers = []
        for number, namespace in enumerate(namespaces, 1):
            peers = [other for other in namespaces if other is not namespace]
            server = NamespacedServer(
                directory / f"server-{number}", namespace, peers, accounts=accounts, tls=tls
            )
            servers.append(await stack.enter_async_context(server))
        yield servers, access, tls.authority.read_text()
