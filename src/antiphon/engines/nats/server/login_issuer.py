"""`ports.LoginIssuer` on NATS: issues and revokes logins, and makes the queues that they admit.

Runs beside the server, with the keys of its accounts and a connection with all permissions.
Decides nothing: scopes come from the gate, subjects from `permissions`.

Invariant: a revocation is on disk before the server is told, so a server that could not be told
learns it when it starts.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from antiphon.core.authority.scope import Scope
from antiphon.core.record.branches import Branch
from antiphon.core.record.signing import pae
from antiphon.decoding import UNREADABLE
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection, Login
from antiphon.engines.nats.credentials.keypairs import UserKey, is_signed
from antiphon.engines.nats.log.log import NatsLog
from antiphon.engines.nats.server import permissions
from antiphon.engines.nats.server.accounts import Accounts
from antiphon.engines.nats.server.server_config import MAX_LOGIN_BYTES
from antiphon.errors import Rejected, Unavailable

_BESIDE_LOGIN_BYTES = 2048
"""What else a client sends when it connects."""
UPDATE_TIMEOUT_S = 5.0
_UPDATE = b"$SYS.REQ.CLAIMS.UPDATE"

ConnectSystem = Callable[[], Awaitable[Connection]]
"""A fresh connection to the server's system account."""


class _Status(Struct, frozen=True):
    """What the server says of an account that it has taken; nothing in it is read."""


class _Failure(Struct, frozen=True):
    description: str = ""


class _Updated(Struct, frozen=True):
    data: _Status | None = None
    error: _Failure | None = None


_decode = msgspec.json.Decoder(_Updated).decode


class NatsLoginIssuer:
    """Issues the logins, and so the server permissions, of one mesh."""

    def __init__(
        self,
        accounts: Accounts,
        log: NatsLog,
        branches: Sequence[Branch],
        *,
        connect_system: ConnectSystem,
        admitted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`admitted` is told of every member that gets a login."""
        self._accounts = accounts
        self._log = log
        self._branches = tuple(branches)
        self._mesh = log.mesh
        self._connect_system = connect_system
        self._admitted = admitted
        self._telling = asyncio.Lock()

    # --- letting in -------------------------------------------------------------------------

    def admit(
        self, user: str, scope: Scope, queues: Sequence[str], *, name: str, now_s: int
    ) -> str:
        """See `ports.LoginIssuer.admit`."""
        granted = permissions.of_member(self._mesh, user, scope, queues, self._branches)
        self._admitted(user)
        return check_size(
            self._accounts.user_jwt(
                user, granted, expires_s=scope.until_s, name=name, issued_s=now_s
            )
        )

    def admit_refresh_key(self, user: str, now_s: int) -> str:
        """See `ports.LoginIssuer.admit_refresh_key`."""
        granted = permissions.of_refresh_key(self._mesh, user)
        return self._accounts.user_jwt(
            user, granted, expires_s=None, name="refresh", issued_s=now_s
        )

    async def make_queues(self, queues: Mapping[str, str]) -> None:
        """See `ports.LoginIssuer.make_queues`."""
        for name, subject in queues.items():
            async with self._log.work(subject, name=name):
                pass  # joining makes it; leaving keeps it

    def is_signed_by(self, user: str, payload_type: str, payload: bytes, signature: bytes) -> bool:
        """See `ports.LoginIssuer.is_signed_by`."""
        return is_signed(user, pae(payload_type, payload), signature)

    # --- showing out ------------------------------------------------------------------------

    async def expel(self, users: Iterable[str], now_s: int) -> None:
        """See `ports.LoginIssuer.expel`; returns when the server has ended their connections.

        Only the members' account is updated. Updating the mesh's own would end what
        members wait for across the border, and no login there is ever revoked.
        """
        leaving = tuple(users)
        if leaving:
            async with self._telling:
                self._accounts.revoke(leaving, now_s)
                await self._tell_server(now_s)

    async def end_tickets(self, ends_s: Mapping[str, int], now_s: int) -> None:
        """See `ports.LoginIssuer.end_tickets`."""
        async with self._telling:
            self._accounts.revoke_tickets(ends_s, now_s)
            await self._tell_server(now_s)

    async def _tell_server(self, now_s: int) -> None:
        system = await self._connect_system()
        try:
            await _update(system, self._accounts.members_account_jwt(now_s))
        finally:
            await system.close()


def check_size(jwt: str) -> str:
    """The login, or `Rejected`: a server closes the connection on one that is too long."""
    if len(jwt) > MAX_LOGIN_BYTES - _BESIDE_LOGIN_BYTES:
        raise Rejected(
            f"a login for this many kinds has {len(jwt)} bytes, more than a server takes",
            reason="login",
            hint="grant few wide kinds ('render.*') rather than many narrow ones",
        )
    return jwt


def system_connector(
    accounts: Accounts, url: str, *, tls: ssl.SSLContext | None = None
) -> ConnectSystem:
    """How the issuer reaches the system account of a server that trusts these accounts."""

    async def connect() -> Connection:
        login = system_login(accounts)
        return await Connection.open(url, login=login, name="antiphon-login-issuer", tls=tls)

    return connect


async def open_ear(
    accounts: Accounts, url: str, mesh: str, *, tls: ssl.SSLContext | None = None
) -> Connection:
    """The gate's connection in the members' account, to listen to them (`member_requests`)."""
    key = UserKey.new()
    granted = permissions.of_ear(mesh, key.public)

    def login() -> str:
        now_s = int(time.time())
        return accounts.user_jwt(key.public, granted, expires_s=None, name="gate", issued_s=now_s)

    held = Login(jwt=login, user_seed=key.seed)
    return await Connection.open(url, login=held, name="antiphon-gate", tls=tls)


def system_login(accounts: Accounts) -> Login:
    """A login to the system account, for the holder of the accounts' keys."""
    key = UserKey.new()
    jwt = accounts.system_user_jwt(key.public, name="system", issued_s=int(time.time()))
    return Login(jwt=jwt, user_seed=key.seed)


async def _update(system: Connection, jwt: str) -> None:
    """Send the server an account's new JWT, and wait until it confirms it."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_answer(_subject: bytes, _reply: bytes, payload: bytes, _header: bytes) -> None:
        if not answered.done():
            answered.set_result(payload)

    inbox = f"{system.inbox}.update"
    listener = system.listen(inbox, on_answer)
    system.require_up()
    system.send(wire.pub(_UPDATE, jwt.encode(), inbox.encode()))
    try:
        async with asyncio.timeout(UPDATE_TIMEOUT_S):
            told = _decode(await answered)
    except TimeoutError as error:
        raise Unavailable("the NATS server did not confirm the new account") from error
    except UNREADABLE as error:
        raise Unavailable("the NATS server's answer about the account is unreadable") from error
    finally:
        system.unlisten(listener)
    if told.error is not None or told.data is None:
        why = told.error.description if told.error is not None else "no reason given"
        raise Unavailable(f"the NATS server refused the new account: {why}")
