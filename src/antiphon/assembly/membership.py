"""Invites and joins: a ticket on one machine, a member on another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from antiphon.assembly.mesh_connection import MACHINE, OWNER
from antiphon.core.authority.scope import Scope, filter_of
from antiphon.core.bus.subjects import JOIN
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record.ids import digest
from antiphon.core.ucan import TOP
from antiphon.errors import (
    AntiphonError,
    CircuitOpen,
    EngineDenied,
    Held,
    Misconfigured,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.runtime.gate import gate_requests
from antiphon.runtime.gate.tickets import (
    ID_BYTES,
    SECRET_BYTES,
    Invitation,
    Ticket,
    TicketRegistry,
    write_ticket,
)
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from antiphon.runtime.log.breaker_guard import guarding
from antiphon.runtime.retries import RETRIES, retrying

if TYPE_CHECKING:
    from antiphon.core.authority.grant_terms import Terms
    from antiphon.core.policy.circuit_breaker import CircuitBreaker
    from antiphon.engines.nats import UserKey
    from antiphon.ports import Engine

JOIN_WITHIN_S: Final = 30.0
"""How long the gate has to answer: it first writes what is granted, perhaps to a busy disk."""
TICKET_S: Final = 15 * 60
"""How long a ticket can be used."""


def invite(
    home: StateDirectory, granted: Terms, *, within_s: int = TICKET_S, protocol: Protocol = PROTOCOL
) -> Ticket:
    """A ticket for one machine, to be redeemed at the gate of this directory."""
    from antiphon.engines.nats import Accounts, UserKey
    from antiphon.engines.nats.server import permissions
    from antiphon.engines.nats.server.login_issuer import check_size

    protocol.rights.check(granted)
    described = home.mesh()
    if not (home.server / "accounts.json").is_file() or not home.has_key(OWNER):
        raise Misconfigured(
            f"{home.path} does not host a mesh with a gate, so you cannot invite to it",
            hint="invite on the machine where 'antiphon init' ran"
            if not home.server.is_dir()
            else "a development mesh is open to this machine only: antiphon init makes a real one",
        )
    entropy = SystemEntropy()
    now_s = int(time.time())
    user = UserKey.new()
    secret = entropy.token(SECRET_BYTES).hex()
    identifier = entropy.token(ID_BYTES).hex()
    accounts = Accounts.open(home.server, described.name)
    scope, branches = _widest(granted), protocol.branches
    widest = permissions.of_member(described.mesh, user.public, scope, (), branches)
    # Better now than when the ticket is used.
    check_size(
        accounts.user_jwt(user.public, widest, expires_s=None, name="", issued_s=now_s),
    )
    jwt = accounts.user_jwt(
        user.public,
        permissions.of_ticket(described.mesh, user.public),
        expires_s=now_s + within_s,
        name="ticket",
        issued_s=now_s,
    )
    ticket = Ticket(
        mesh=described.mesh,
        name=described.name,
        engine=described.engine,
        ca=described.ca,
        owner=home.signer(OWNER).did,
        id=identifier,
        secret=secret,
        user_seed=user.seed,
        jwt=jwt,
        expires_s=now_s + within_s,
    )
    write_ticket(ticket)  # or says why nobody could use it, before the gate knows of it
    TicketRegistry(home.gate / "tickets").add(
        Invitation(
            id=identifier,
            secret_digest=digest(secret.encode()),
            user=user.public,
            terms=granted,
            expires_s=now_s + within_s,
        )
    )
    return ticket


def _widest(granted: Terms) -> Scope:
    kinds = tuple(one for glob in granted.kinds if (one := filter_of(glob)) is not None)
    return Scope(by_command={TOP: kinds})


async def redeem(
    home: StateDirectory, ticket: Ticket, *, alias: str, breaker: CircuitBreaker | None = None
) -> Access:
    """Join: make this machine's keys, ask the gate, and store the login that it issues.

    Without an answer, it asks again, with growing pauses: until the breaker opens, and without one
    a few times.
    """
    from antiphon.engines.nats import UserKey

    is_member = _require_place(home, ticket)
    if ticket.expires_s < time.time():
        raise Rejected(
            "this ticket has expired",
            reason="ticket",
            hint="ask for a new invitation",
        )
    home.make()
    machine = home.key(MACHINE, SystemEntropy())
    try:
        ticket_user = UserKey.from_seed(ticket.user_seed)
        user, refresh_key = _engine_keys(home)
        where = JOIN.at(user=ticket_user.public)
        payload = gate_requests.JOINS.sign(
            gate_requests.JoinRequest(ticket=ticket.id, secret=ticket.secret, alias=alias),
            (machine.keyring.did, machine.keyring.sign),
            *(gate_requests.engine_signer(key.public, key.sign) for key in (user, refresh_key)),
            mesh=ticket.mesh,
            subject=where,
        )
        login = await _ask_until_answered(ticket, where, payload, breaker)
    except Rejected as refused:
        if is_member:
            refused.hint = "this machine has joined already: antiphon worker MODULE"
        raise
    finally:
        machine.release()
    access = Access(
        user=user.public,
        user_seed=user.seed,
        jwt=login.jwt,
        refresh_key=refresh_key.public,
        refresh_seed=refresh_key.seed,
        refresh_jwt=login.refresh_jwt,
        scope=login.scope,
        kinds=login.kinds,
        alias=login.alias,
    )
    home.write(
        MeshFile(mesh=ticket.mesh, name=ticket.name, engine=ticket.engine, ca=ticket.ca), access
    )
    return access


class _NoAnswer(Unavailable):
    """The engine could not be reached, or was lost before the gate answered: ask again."""


async def _ask_until_answered(
    ticket: Ticket, where: str, payload: bytes, breaker: CircuitBreaker | None
) -> gate_requests.Login:
    """The gate's answer. The same request again is safe: a ticket is used up once."""
    was_lost = False

    async def ask() -> gate_requests.Login:
        nonlocal was_lost
        try:
            with guarding(breaker, SystemClock.boot_s):
                return await _ask(ticket, where, payload)
        except _NoAnswer:
            was_lost = True
            raise

    retries = RETRIES if breaker is None else breaker.failures - 1
    try:
        return await retrying(ask, SystemEntropy(), retries=retries, after=_NoAnswer)
    except _NoAnswer as last:
        if breaker is None:
            raise Unavailable(last.message, hint=last.hint) from last
        raise CircuitOpen(
            f"the mesh's engine did not answer {breaker.failures} times in a row: {last.message}",
            retry_s=breaker.wait_s(SystemClock.boot_s()),
            hint="check the network, then join again with the same ticket",
        ) from last
    except Rejected as refused:
        if was_lost and refused.reason == "ticket":
            refused.hint = (
                "the connection was lost while this machine joined, and perhaps the answer with"
                " it: ask for a new invitation"
            )
        raise


async def _ask(ticket: Ticket, where: str, payload: bytes) -> gate_requests.Login:
    try:
        engine = await _knock(ticket)
    except Unavailable as problem:
        raise _NoAnswer(problem.message, hint=problem.hint) from problem
    try:
        return await gate_requests.ask(engine.bus, where, payload, within_s=JOIN_WITHIN_S)
    except RateLimited:
        raise
    except Unavailable as problem:
        if engine.connected and not engine.reconnects:
            raise  # the engine is there, but nobody at the gate
        raise _NoAnswer(problem.message, hint=problem.hint) from problem
    finally:
        await engine.close()


def _engine_keys(home: StateDirectory) -> tuple[UserKey, UserKey]:
    """The existing ones of this machine: its running processes continue with the new login."""
    from antiphon.engines.nats import UserKey

    try:
        access = home.access()
    except AntiphonError:  # there are none, or they can no longer be read
        return UserKey.new(), UserKey.new()
    if not access.refresh_seed:
        return UserKey.new(), UserKey.new()
    return UserKey.from_seed(access.user_seed), UserKey.from_seed(access.refresh_seed)


async def _knock(ticket: Ticket) -> Engine:
    from antiphon.engines.nats import Login, NatsEngine, client_context

    try:
        return await NatsEngine.connect(
            ticket.engine,
            ticket.mesh,
            login=Login(jwt=ticket.jwt, user_seed=ticket.user_seed),
            tls=client_context(ticket.ca) if ticket.ca else None,
        )
    except EngineDenied as denied:
        raise Rejected(
            "the mesh does not accept this ticket: it was already used, or revoked",
            reason="ticket",
            hint="ask for a new invitation",
        ) from denied


def _require_place(home: StateDirectory, ticket: Ticket) -> bool:
    """Whether a directory is a member's; it belongs to one mesh, which may be joined again."""
    try:
        known = home.mesh()
    except Misconfigured:
        return False
    if known.mesh != ticket.mesh:
        raise Held(
            f"{home.path} already belongs to the mesh {known.name!r}",
            hint="join in another directory, or with --home PATH",
        )
    if home.has_key(OWNER):
        raise Held(
            f"{home.path} is the state directory of the mesh's owner",
            hint="join on the other machine, or in another directory",
        )
    return True
