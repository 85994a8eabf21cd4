"""Hosts a mesh: starts its server, creates it, runs its gate.

There are two sorts. A *development* mesh is open, on loopback, with a password in the state
directory. A *secured* one has its own account, TLS with its own authority, and a gate.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.assembly.logins import Purpose, connect
from antiphon.assembly.mesh_connection import OWNER
from antiphon.core.authority.rules import Rules
from antiphon.core.bus.subjects import ENTRY, MESSAGE_GATE, ROOTS
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.errors import Held, Misconfigured, Unavailable
from antiphon.files import replace_file
from antiphon.guard import Guard
from antiphon.runtime.gate.addresses import keep_announcing
from antiphon.runtime.gate.admission import Gate
from antiphon.runtime.gate.blob_rights import BlobRights
from antiphon.runtime.gate.member_registry import MemberRegistry
from antiphon.runtime.gate.pace_watch import PaceWatch
from antiphon.runtime.gate.relay_rules import RelayRules
from antiphon.runtime.gate.tickets import TicketRegistry
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.key_files import HeldKey, SeedKeyring
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from antiphon.runtime.log.author import Author
from antiphon.runtime.log.writer import Intent, write_one

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.engines.nats import LocalServer
    from antiphon.ports import Keyring
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.node.full_node import FullNode

OWNER_KEY_WITHIN_S: Final = 5.0
"""Commands hold the owner's key for moments only; the gate waits for it this long."""


class Listen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The addresses of a secured mesh's server."""

    host: str
    port: int
    names: tuple[str, ...]
    """The names and addresses by which members reach it: they are in its certificate."""


# --- development ------------------------------------------------------------------------------


@asynccontextmanager
async def development_server(home: StateDirectory, *, port: int = 0) -> AsyncIterator[LocalServer]:
    """Our own server on a loopback port (0: a free one), its files in the state directory."""
    from antiphon.engines.nats import LocalServer

    async with LocalServer(home.server, port=port) as server:
        yield server


async def found_on(
    home: StateDirectory, server: LocalServer, *, name: str, rules: Rules
) -> MeshFile:
    """Create a mesh on a server, or continue the one that this directory already has."""
    access = Access(
        user=server.user,
        password=server.password,
        system_user=server.system_credentials.user,
        system_password=server.system_credentials.password,
    )
    known = _known(home)
    if known is not None:
        described = MeshFile(mesh=known.mesh, name=known.name, engine=server.url)
        home.write(described, access)
        return described
    recovery = home.key("recovery", SystemEntropy())
    try:
        described = MeshFile(mesh="", name=name, engine=server.url)
        return await _found(home, described, access, recovery.keyring.did, rules)
    finally:
        recovery.release()


def _known(home: StateDirectory) -> MeshFile | None:
    try:
        return home.mesh()
    except Misconfigured:
        return None


async def _found(
    home: StateDirectory, described: MeshFile, access: Access, recovery: str, rules: Rules
) -> MeshFile:
    owner = home.key(OWNER, SystemEntropy())
    try:
        signed_genesis = genesis.sign(
            owner.keyring, SystemClock(), name=described.name, recovery=recovery, rules=rules
        )
        described = msgspec.structs.replace(described, mesh=signed_genesis.mesh)
        engine = await connect(described, access, Purpose(name="founder", create=True))
        try:
            await genesis.write(engine.log, signed_genesis)
        finally:
            await engine.close()
        home.write(described, access)
    finally:
        owner.release()
    return described


# --- secured ----------------------------------------------------------------------------------


class Hosted(Struct, frozen=True):
    """A secured mesh whose server is running."""

    mesh: MeshFile
    server: LocalServer
    recovery_seed: bytes
    """A recovery key that nobody has seen yet: to be shown, then `recovery_shown`. Else empty."""

    def __repr__(self) -> str:
        return f"Hosted({self.mesh.mesh})"


@asynccontextmanager
async def secured_server(
    home: StateDirectory, *, name: str, listen: Listen | None, rules: Rules
) -> AsyncIterator[Hosted]:
    """The directory's server, and its mesh, which is created if there is none.

    A mesh that there is listens at `listen` from now on, if that is given.
    A new mesh's owner key and recovery key are made here. The recovery key is in a file before the
    mesh exists and until somebody has seen it: nobody could make it again.
    """
    from antiphon.engines.nats import Accounts, LocalServer, UserKey, server_files

    known = _known(home)
    where = listen or listening(home)
    accounts = Accounts.open(home.server, name)
    tls = server_files(home.server / "tls", where.names)
    server = LocalServer(home.server, host=where.host, port=where.port, accounts=accounts, tls=tls)
    async with server:
        replace_file(
            home.server / "listen.json",
            msgspec.json.encode(msgspec.structs.replace(where, port=server.port)),
        )
        engine = f"nats://{where.names[0]}:{server.port}"
        user = UserKey.new() if known is None else UserKey.from_seed(home.access().user_seed)
        # Issued again at every start: no login is valid forever.
        jwt = accounts.user_jwt(
            user.public, None, expires_s=None, name=OWNER, issued_s=int(time.time())
        )
        access = Access(user=user.public, user_seed=user.seed, jwt=jwt)
        if known is not None:
            described = msgspec.structs.replace(
                known, engine=engine, ca=tls.authority.read_text(), moved_ms=0
            )
            home.write(described, access)
            yield Hosted(described, server, home.unshown_recovery())
            return
        seed = home.unshown_recovery() or home.new_recovery(SystemEntropy())
        described = MeshFile(mesh="", name=name, engine=engine, ca=tls.authority.read_text())
        described = await _found(home, described, access, SeedKeyring(seed).did, rules)
        yield Hosted(described, server, seed)


def listening(home: StateDirectory) -> Listen:
    """Where the server of a directory listens, and the names by which it is reached."""
    path = home.server / "listen.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Listen)
    except FileNotFoundError as problem:
        raise Misconfigured(
            f"{home.path} does not host a mesh",
            hint="create one with 'antiphon init'; a machine that joined runs 'antiphon worker'",
        ) from problem


@asynccontextmanager
async def gatekeeping(
    home: StateDirectory, session: Session, node: FullNode | None = None
) -> AsyncIterator[Gate]:
    """The gate of a mesh that is hosted here, beside a block, over the connection of `session`.

    With a node it pauses members that write faster than the node reads.
    """
    from antiphon.engines.nats import (
        Accounts,
        BlobService,
        MemberRequests,
        NatsBus,
        NatsEngine,
        NatsLoginIssuer,
        ReadService,
        admits_readers,
        client_context,
        message_services,
        open_ear,
        relay_service,
        roll_call_service,
        system_connector,
    )
    from antiphon.runtime.messages import message_requests
    from antiphon.runtime.messages.message_desk import MessageDesk
    from antiphon.runtime.messages.message_gate import MessageGate
    from antiphon.runtime.services import beside

    described, engine, branches = home.mesh(), session.engine, session.protocol.branches
    if not isinstance(engine, NatsEngine) or engine.messages is None:
        raise Misconfigured("a gate needs a NATS server, and all permissions there")
    accounts = Accounts.open(home.server, described.name)
    tls = client_context(described.ca)
    system = system_connector(accounts, described.engine, tls=tls)
    members = MemberRegistry(home.gate / "members")
    users = [member.user for member in members.everyone()]
    ear = await open_ear(accounts, described.engine, described.mesh, tls=tls)
    bus, guard = NatsBus(ear, described.mesh), node.guard if node is not None else Guard()
    hearing = MemberRequests(
        ear,
        described.mesh,
        users,
        answers=engine.log.connection,
        party_of=lambda user: _node_of(members, user) or user,
        guard=guard,
    )
    gate = Gate(
        session,
        NatsLoginIssuer(
            accounts, engine.log, branches, connect_system=system, admitted=hearing.admit
        ),
        TicketRegistry(home.gate / "tickets"),
        members,
        lambda: owner_of(home, session),
        bus=bus,
        guard=guard,
    )
    house = ReadService(engine, gate.scope_of, branches, hearing=hearing)
    rights = BlobRights(
        session, gate.scope_of, lambda user: (_node_of(members, user),), members.users_of
    )
    storeroom = BlobService(engine, rights, hearing=hearing)
    messages, connection = MessageGate(session, engine.messages), engine.log.connection
    rules = RelayRules(session, gate.asker, engine.messages)
    admits = admits_readers(described.mesh, branches, gate.scope_of)
    others = (
        relay_service(engine, rules.accept),
        roll_call_service(connection, described.mesh),
        roll_call_service(connection, described.mesh, asks=ENTRY, admits=admits),
        roll_call_service(connection, described.mesh, asks=ROOTS),
        *message_services(
            MessageDesk(session, messages),
            put=message_requests.PUT,
            messages=message_requests.MESSAGES,
        ),
    )
    services = [gate.run(), hearing.serve(*others), house.run(), storeroom.run()]
    services.append(keep_announcing(home.gate, bus))
    if node is not None:
        services.append(PaceWatch(node, gate).run())
    try:
        async with beside(*services, ready=house.ready):
            await storeroom.ready.wait()
            await gate.ready.wait()
            with suppress(Unavailable):  # whoever waits for the last gate then asks again later
                await bus.publish(MESSAGE_GATE.at(), b"")
            yield gate
    finally:
        await messages.close()
        await ear.close()


def _node_of(members: MemberRegistry, user: str) -> str:
    member = members.by_user(user)
    return "" if member is None else member.node


async def coordinate(home: StateDirectory, session: Session) -> None:
    """Designate a node as coordinator if only the owner's key has ever been.

    The owner's key is in use for moments only, and a node has to be online to offer and to seal.
    """
    control = await session.sync_control()
    if control.coordinator != control.owner:
        return
    async with owner_of(home, session) as (author, _):
        body = CoordinatorBody(node=session.author.did)
        await write_one(session, Intent(MeshCoordinator, body, by=author))


@asynccontextmanager
async def owner_of(home: StateDirectory, session: Session) -> AsyncIterator[tuple[Author, Keyring]]:
    """The owner's key in use, for the length of the block."""
    held = await _owner_key(home)
    try:
        drift_ms = session.control.rules.max_drift_ms
        author = Author(
            session.mesh, held.keyring, session.wall, max_drift_ms=drift_ms, mark=held.mark
        )
        yield author, held.keyring
        author.settle()
    finally:
        held.release()


async def _owner_key(home: StateDirectory) -> HeldKey:
    deadline = time.monotonic() + OWNER_KEY_WITHIN_S
    while True:
        try:
            return home.key(OWNER, SystemEntropy())
        except Held:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
