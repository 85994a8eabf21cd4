"""A process's connection to a mesh: an engine connection, a key in use and a session."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.assembly.logins import Purpose, connect, fresh_access, keep_fresh, log_in
from antiphon.core.authority import grant_terms
from antiphon.core.authority.chain_choice import chains_to
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import Rules
from antiphon.core.authority.scope import narrower, scope_of
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record.ids import DEFAULT_AGENT
from antiphon.core.visible_subjects import sight_of
from antiphon.errors import AntiphonError, Misconfigured
from antiphon.runtime.gate.addresses import keep_following
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.log.author import Author, Mark
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from antiphon.engines.http import LogService
    from antiphon.ports import Engine, EngineInfo, Keyring, WallClock
    from antiphon.runtime.identity.key_files import HeldKey
    from antiphon.runtime.identity.state_directory import Access, StateDirectory

MACHINE = "machine"
"""The key of a joined machine: others delegate to it, and it delegates to its processes' keys."""
OWNER = "owner"
HTTP = "http"
"""The key of a program that reaches the mesh over HTTP: others delegate to it."""
_ANY_TIME = 2**63

log = LazyLogger(__name__)


class MeshConnection(Struct, frozen=True):
    """One process's connection to a mesh."""

    session: Session
    keyring: Keyring
    alias: str
    agent: str = DEFAULT_AGENT

    @property
    def engine(self) -> Engine:
        """The engine connection."""
        return self.session.engine


class KeyInUse(Struct, frozen=True):
    """A key that this process has locked, and the author that stamps with it."""

    held: HeldKey
    author: Author


def place(  # noqa: PLR0913 - what a connection is made of
    engine: Engine,
    mesh: str,
    keyring: Keyring,
    alias: str,
    mark: Mark,
    protocol: Protocol = PROTOCOL,
    *,
    wall: WallClock | None = None,
    author: Author | None = None,
) -> MeshConnection:
    """Assemble a connection; with an author, where the key has one already."""
    wall, drift_ms = wall or SystemClock(), Rules().max_drift_ms
    author = author or Author(
        mesh, keyring, wall, max_drift_ms=drift_ms, mark=mark, protocol=protocol
    )
    return MeshConnection(Session(engine, author, wall, SystemEntropy()), keyring, alias)


@asynccontextmanager
async def join(  # noqa: PLR0913 - what a connection is made of
    home: StateDirectory,
    role: str,
    *,
    key: str | None = None,
    kinds: Sequence[str] = (),
    token: str | None = None,
    protocol: Protocol = PROTOCOL,
    in_use: KeyInUse | None = None,
) -> AsyncIterator[MeshConnection]:
    """Connect to the mesh that a state directory describes.

    Uses the named key, or the first free one of the role: one process per key. `kinds` are those
    that the process will work on. With a key that is `in_use`, it is that one, and stays locked.
    """
    described = home.mesh()
    entropy = SystemEntropy()
    if in_use is not None:
        held = in_use.held
    else:
        held = home.key(key, entropy) if key else home.free_key(role, entropy)
    try:
        access = await fresh_access(home, kinds)
        purpose = Purpose(name=held.name)
        alias = f"{access.alias}/{held.name}" if access.alias else held.name

        async def enter(by: Access) -> tuple[Engine, MeshConnection]:
            engine = await connect(
                described, by, purpose, home=home, token=token, protocol=protocol
            )
            who, mark = held.keyring, held.mark
            author = None if in_use is None else in_use.author
            found = place(engine, described.mesh, who, alias, mark, protocol, author=author)
            found.session.key_names = home.key_names
            return engine, found

        engine, connection = await enter(access)
        try:
            wider = await _wider_access(home, connection, access, kinds)
            if wider is not None and token is None:
                await engine.close()
                access = wider
                engine, connection = await enter(wider)
            async with keep_fresh(home, access, kinds), _following(home, connection, access):
                await _pass_on(home, connection)
                yield connection
        finally:
            await engine.close()
            if in_use is None:
                connection.session.author.settle()
    finally:
        if in_use is None:
            held.release()


@asynccontextmanager
async def _following(
    home: StateDirectory, connection: MeshConnection, access: Access
) -> AsyncIterator[None]:
    """Hear where the mesh will be, for as long as the block runs, if this is a member."""
    if access.scope is None:
        yield
        return
    following = asyncio.ensure_future(keep_following(home, connection.session))
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])
        if not following.cancelled():
            following.exception()  # read, so that nobody is told


async def _wider_access(
    home: StateDirectory, connection: MeshConnection, access: Access, kinds: Sequence[str]
) -> Access | None:
    """Another login, if this machine was granted more since it got the one that it has."""
    if access.scope is None or not access.refresh_jwt or not home.has_key(MACHINE):
        return None
    session, machine = connection.session, home.signer(MACHINE).did
    control, now_s = await session.sync_control(), session.wall.now_ms() // 1000
    branches = session.protocol.branches
    granted = scope_of(control, branches, machine, now_s, access.kinds)
    if not narrower(access.scope, granted, branches):
        return None
    try:
        return await log_in(home, access, kinds)
    except AntiphonError as problem:
        log.warning("login_not_renewed", problem=problem.message)
        return None


async def _pass_on(home: StateDirectory, connection: MeshConnection) -> None:
    """Delegate the machine's permissions to a process's own key; written to the log once."""
    session, did = connection.session, connection.keyring.did
    control = await session.sync_control()
    if control.rules.authority == "open" or did == control.owner:
        return
    if chains_to(control.grants, control.owner, did, before=_ANY_TIME):
        return
    nonce = session.entropy.token
    if home.has_key(MACHINE):
        giver = home.signer(MACHINE)
        if giver.did == did:
            return
        payload = grant_terms.passing_on(
            issuer=giver.did, audience=did, mesh=session.mesh, alias=connection.alias, nonce=nonce
        )
    elif home.has_key(OWNER):
        giver = home.signer(OWNER)
        everything = grant_terms.Terms(can=("all",), alias=connection.alias, network=True)
        (payload,) = session.protocol.rights.payloads(
            everything,
            issuer=giver.did,
            audience=did,
            owner=control.owner,
            mesh=session.mesh,
            nonce=nonce,
        )
    else:
        raise Misconfigured(
            f"{home.path} has neither a machine key nor the owner's key",
            hint="join the mesh first: antiphon join TICKET",
        )
    body = DelegateBody(token=token_of(giver.delegate(payload).raw))
    await write_one(session, Intent(UcanDelegate, body))


@asynccontextmanager
async def connect_by_http(
    home: StateDirectory, url: str, mesh: str, *, key: str | None = None, ca: Path | None = None
) -> AsyncIterator[MeshConnection]:
    """Connect to the mesh of this id through a node; the state directory keeps the key."""
    from antiphon.engines.http import HttpEngine

    home.make()
    held = home.key(key or HTTP, SystemEntropy())
    try:
        engine = await HttpEngine.connect(
            url, mesh, held.keyring, wall=SystemClock(), entropy=SystemEntropy(), ca=ca
        )
        connection = place(engine, mesh, held.keyring, held.name, held.mark)
        try:
            yield connection
        finally:
            await engine.close()
            connection.session.author.settle()
    finally:
        held.release()


def member_log(session: Session) -> LogService:
    """The log of a node that reads everything, for members that ask over HTTP."""
    from antiphon.engines.http import LogService

    mesh, branches = session.mesh, session.protocol.branches
    return LogService(session.log, lambda scope: sight_of(mesh, branches, scope))


async def engine_info(home: StateDirectory, *, token: str | None = None) -> EngineInfo:
    """What the engine reports about itself; asking for its durability takes a moment."""
    described, access = home.mesh(), await fresh_access(home, ())
    purpose = Purpose(name="doctor", inspect=True)
    engine = await connect(described, access, purpose, home=home, token=token)
    try:
        return await engine.info()
    finally:
        await engine.close()
