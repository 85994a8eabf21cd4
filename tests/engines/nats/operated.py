"""A server with accounts and TLS, a mesh on it, and ways in of every kind."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.core.authority.scope import Scope
from antiphon.core.protocol import PROTOCOL
from antiphon.engines.nats import (
    Accounts,
    LocalServer,
    Login,
    NatsEngine,
    NatsLoginIssuer,
    Reader,
    ReadService,
    UserKey,
)
from antiphon.engines.nats.server.certificates import TlsFiles, client_context, server_files
from antiphon.engines.nats.server.login_issuer import system_connector
from antiphon.testing.engine_suite.harness import new_mesh
from tests.job_scopes import BRANCHES, job_queues, job_scope

RENDER = job_scope(reads=("render.>",), works=("render.>",), calls=("render.>",))


def now_s() -> int:
    return int(time.time())


class Operated:
    """What a test needs of it."""

    def __init__(self, server: LocalServer, accounts: Accounts, tls: TlsFiles, mesh: str) -> None:
        self.server = server
        self.accounts = accounts
        self.tls = tls
        self.mesh = mesh
        self.branches = BRANCHES
        self._has_gate = False
        self.owner: NatsEngine
        self.issuer: NatsLoginIssuer

    async def enter(self, key: UserKey, jwt, *, renew=None, **extra) -> NatsEngine:
        login = Login(jwt=jwt, user_seed=key.seed, renew=renew)
        settings = {"tls": client_context(self.tls.authority.read_text()), **extra}
        return await NatsEngine.connect(self.server.url, self.mesh, login=login, **settings)

    async def enter_fully(self, **extra) -> NatsEngine:
        key = UserKey.new()
        jwt = self.accounts.user_jwt(
            key.public, None, expires_s=None, name="owner", issued_s=now_s()
        )
        return await self.enter(key, jwt, **extra)

    async def admit(self, scope: Scope = RENDER, *, queues=(), key=None, **extra) -> NatsEngine:
        """A member as it would be after joining: it reads through the gate, where there is one."""
        key = UserKey.new() if key is None else key
        jwt = self.issuer.admit(key.public, scope, queues, name="member", now_s=now_s())
        if self._has_gate:
            extra = {"reader": Reader(key.public, scope, self.branches, PROTOCOL.rights), **extra}
        return await self.enter(key, jwt, **extra)

    async def make_queues(self, kind: str) -> tuple[str, ...]:
        """The queues of a kind of jobs, by their names."""
        queues = job_queues(self.mesh, kind)
        await self.issuer.make_queues(queues)
        return tuple(queues)

    @asynccontextmanager
    async def gate(self, scope: Scope) -> AsyncIterator[None]:
        """While entered, everybody's reads are answered within one scope."""
        read_service = ReadService(self.owner, lambda _: scope, self.branches)
        running = asyncio.ensure_future(read_service.run())
        await read_service.ready.wait()
        self._has_gate = True
        try:
            yield
        finally:
            self._has_gate = False
            running.cancel()
            await asyncio.wait([running])

    def connect_system(self):
        return system_connector(
            self.accounts, self.server.url, tls=client_context(self.tls.authority.read_text())
        )


@asynccontextmanager
async def operated(directory: Path, branches=BRANCHES) -> AsyncIterator[Operated]:
    """A running mesh behind both walls, with these branches of its log."""
    mesh = new_mesh()
    accounts = Accounts.open(directory, mesh)
    tls = server_files(directory, ["127.0.0.1", "localhost"])
    async with LocalServer(directory / "server", accounts=accounts, tls=tls) as server:
        place = Operated(server, accounts, tls, mesh)
        place.branches = branches
        async with await place.enter_fully(create=True) as owner:
            place.owner = owner
            place.issuer = NatsLoginIssuer(
                accounts, owner.log, branches, connect_system=place.connect_system()
            )
            yield place
