"""Logs in to the engine: with this machine's login, or with a new one from the gate."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.authority.scope import NOTHING, Scope
from antiphon.core.bus.subjects import LOGIN
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record.subjects import is_kind
from antiphon.errors import AntiphonError, EngineDenied, Rejected, Unavailable
from antiphon.runtime.gate import gate_requests
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from antiphon.ports import Engine
    from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory

AHEAD_S: Final = 60
"""A login is renewed this long before its end."""
AGAIN_S: Final = 15.0
"""The wait after a renewal that failed."""
LOOK_S: Final = 60.0
"""How often the wall clock is read meanwhile: it may be set, and machines sleep."""


class Purpose(Struct, frozen=True, kw_only=True):
    """What a connection is for."""

    name: str
    """The name of the connection on the server."""
    create: bool = False
    """Create the log if there is none."""
    inspect: bool = False
    """Ask the server about itself, where this machine may."""


async def connect(
    described: MeshFile,
    access: Access,
    purpose: Purpose,
    *,
    home: StateDirectory | None = None,
    token: str | None = None,
    protocol: Protocol = PROTOCOL,
) -> Engine:
    """A connection with this machine's login; `home` lets it use a renewed one later.

    The log shows what the login's scope permits on the protocol's branches. A `token` replaces the
    login; it comes from the environment and is not stored.
    """
    if access.jwt and token is None:
        return await _connect_by_login(described, access, purpose, home, protocol)
    from antiphon.engines.nats import Login, NatsEngine

    system = (
        Login(user=access.system_user, password=access.system_password)
        if purpose.inspect and access.system_user
        else None
    )
    own = Login(user=access.user, password=access.password)
    return await NatsEngine.connect(
        described.engine,
        described.mesh,
        login=own if token is None else Login(token=token),
        system=system,
        create=purpose.create,
        replicas=described.replicas,
        name=purpose.name,
        addresses=_addresses(home),
    )


def _addresses(home: StateDirectory | None) -> Callable[[], str]:
    """Where the server is by what the state directory says then: a mesh may move."""
    return str if home is None else lambda: home.mesh().engine


async def _connect_by_login(
    described: MeshFile,
    access: Access,
    purpose: Purpose,
    home: StateDirectory | None,
    protocol: Protocol,
) -> Engine:
    from antiphon.engines.nats import (
        Accounts,
        Login,
        NatsEngine,
        Reader,
        client_context,
        system_login,
    )

    system = None
    if purpose.inspect and home is not None and (home.server / "accounts.json").is_file():
        system = system_login(Accounts.open(home.server, described.name))
    kept = _KeptLogin(home, access)
    reader = Reader(access.user, kept.scope, protocol.branches, protocol.rights)

    async def enter() -> Engine:
        return await NatsEngine.connect(
            described.engine,
            described.mesh,
            login=Login(
                jwt=kept.present,
                user_seed=access.user_seed,
                renew=kept.renew if kept.is_renewable else None,
            ),
            create=purpose.create,
            replicas=described.replicas,
            system=system,
            name=purpose.name,
            tls=client_context(described.ca) if described.ca else None,
            reader=None if access.scope is None else reader,
            addresses=_addresses(home),
        )

    try:
        return await enter()
    except EngineDenied:
        if not kept.is_renewable:
            raise
    # The login was revoked while no process was running: perhaps a smaller scope is left.
    await kept.renew()
    return await enter()


class _KeptLogin:
    """The login that a connection uses: the newest in the state directory, if there is one."""

    def __init__(self, home: StateDirectory | None, access: Access) -> None:
        self._home = home
        self._access = access
        self.is_renewable = home is not None and bool(access.refresh_jwt)

    def _newest(self) -> Access:
        return self._access if self._home is None else self._home.access()

    def present(self) -> str:
        """What to send to the server now."""
        self._access = self._newest()
        return self._access.jwt

    def scope(self) -> Scope:
        """What the newest login permits."""
        return self._newest().scope or NOTHING

    async def renew(self) -> None:
        """Ask the gate for a new one, unless another process of this machine just did.

        It names no kinds: the gate grants what is left of those that were asked for before.
        """
        newest = self._newest()
        if self._home is None or newest.jwt != self._access.jwt:
            return
        try:
            await log_in(self._home, newest, ())
        except Rejected as refused:
            if refused.reason:
                raise
            raise Unavailable(refused.message, hint=refused.hint) from refused  # the gate failed


async def fresh_access(home: StateDirectory, kinds: Sequence[str]) -> Access:
    """This machine's login, renewed if it ends soon or does not permit these kinds."""
    access = home.access()
    if not access.refresh_jwt or access.scope is None:
        return access
    until_s = access.scope.until_s
    is_ending = until_s is not None and until_s - time.time() < AHEAD_S
    if is_ending or not set(kinds) <= set(access.kinds):
        return await log_in(home, access, kinds)
    return access


async def log_in(home: StateDirectory, access: Access, kinds: Sequence[str]) -> Access:
    """Ask the gate for a login and store it."""
    from antiphon.engines.nats import Login, NatsEngine, UserKey, client_context

    described = home.mesh()
    wanted = tuple(kind for kind in kinds if is_kind(kind))
    where = LOGIN.at(user=access.refresh_key)
    signer = gate_requests.engine_signer(
        access.refresh_key, UserKey.from_seed(access.refresh_seed).sign
    )
    request = gate_requests.LoginRequest(kinds=wanted)
    signed = gate_requests.LOGINS.sign(request, signer, mesh=described.mesh, subject=where)
    engine = await NatsEngine.connect(
        described.engine,
        described.mesh,
        login=Login(jwt=access.refresh_jwt, user_seed=access.refresh_seed),
        tls=client_context(described.ca) if described.ca else None,
    )
    try:
        login = await gate_requests.ask(engine.bus, where, signed)
    finally:
        await engine.close()
    renewed = msgspec.structs.replace(access, jwt=login.jwt, scope=login.scope, kinds=login.kinds)
    home.write_access(renewed)
    return renewed


@asynccontextmanager
async def keep_fresh(
    home: StateDirectory, access: Access, kinds: Sequence[str]
) -> AsyncIterator[None]:
    """Renew the login before it ends, for as long as the block runs."""
    if access.scope is None or access.scope.until_s is None or not access.refresh_jwt:
        yield
        return
    renewing = asyncio.ensure_future(_renew(home, kinds))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])


async def _renew(home: StateDirectory, kinds: Sequence[str]) -> None:
    while True:
        access = home.access()
        until_s = access.scope.until_s if access.scope is not None else None
        if until_s is None:
            return
        await asyncio.sleep(AGAIN_S)
        while (left_s := until_s - AHEAD_S - time.time()) > 0:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(min(left_s, LOOK_S))
        try:
            await log_in(home, access, kinds)
        except AntiphonError as problem:
            LazyLogger(__name__).warning("login_not_renewed", problem=problem.message)
