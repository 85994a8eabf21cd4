"""Invites and joins: a ticket on one machine, a member on another."""

from __future__ import annotations

import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

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
    SECRET_BYTES,
    Invitation,
    Ticket,
    TicketRegistry,
    pin_of,
    write_ticket,
)
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from antiphon.runtime.log.breaker_guard import guarding
from antiphon.runtime.retries import RETRIES, retrying
from antiphon.settings import is_loopback

if TYPE_CHECKING:
    from antiphon.core.authority.grant_terms import Terms
    from antiphon.core.policy.circuit_breaker import CircuitBreaker
    from antiphon.engines.nats import Login, UserKey
    from antiphon.ports import Engine

JOIN_WITHIN_S: Final = 30.0
"""How long the gate has to answer: it first writes what is granted, perhaps to a busy disk."""
TICKET_S: Final = 15 * 60
"""How long a ticket can be used."""
MAX_WITHIN_S: Final = 400 * 86_400
"""No login of the engine is valid for longer."""


def invite(
    home: StateDirectory, granted: Terms, *, within_s: int = TICKET_S, protocol: Protocol = PROTOCOL
) -> Ticket:
    """A ticket for one machine, to be redeemed at the gate of this directory."""
    from antiphon.engines.nats import Accounts, sign_ticket_login
    from antiphon.engines.nats.server import permissions
    from antiphon.engines.nats.server.login_issuer import check_size

    protocol.rights.check(granted)
    described = home.mesh()
    if not (home.server / "accounts.json").is_file() or not home.has_key(OWNER):
        raise Misconfigured(
            f"{home.path} does not host a mesh with a gate, so you cannot invite to it",
            hint="invite on the machine where 'antiphon init' ran"
            if not home.server.is_dir()
            else "a development mesh is for this machine only. Stop 'antiphon dev', then:"
            " antiphon up --listen 0.0.0.0:4222 --reach NAME",
        )
    now_s = int(time.time())
    ticket = Ticket(
        mesh=described.mesh,
        engine=described.engine,
        pin=pin_of(ssl.PEM_cert_to_DER_cert(described.ca)),
        secret=SystemEntropy().token(SECRET_BYTES).hex(),
        account="",
        signature="",
        issued_s=now_s,
        expires_s=now_s + min(within_s, MAX_WITHIN_S),
    )
    user = _ticket_user(ticket)
    accounts = Accounts.open(home.server, described.name)
    scope, branches = _widest(granted), protocol.branches
    widest = permissions.of_member(described.mesh, user.public, scope, (), branches)
    # Better now than when the ticket is used.
    check_size(
        accounts.user_jwt(user.public, widest, expires_s=None, name="", issued_s=now_s),
    )
    account, signature = sign_ticket_login(
        accounts,
        described.mesh,
        user.public,
        issued_s=ticket.issued_s,
        expires_s=ticket.expires_s,
    )
    ticket = replace(ticket, account=account.hex(), signature=signature.hex())
    login_of(ticket)
    write_ticket(ticket)  # or says why nobody could use it, before the gate knows of it
    TicketRegistry(home.gate / "tickets").add(
        Invitation(
            id=ticket.id,
            secret_digest=digest(ticket.secret.encode()),
            user=user.public,
            terms=granted,
            expires_s=ticket.expires_s,
        )
    )
    return ticket


def login_of(ticket: Ticket) -> Login:
    """The engine login of a ticket's holder, who makes it from the ticket."""
    from antiphon.engines.nats import ticket_login

    return ticket_login(
        ticket.mesh,
        _ticket_user(ticket),
        bytes.fromhex(ticket.account),
        bytes.fromhex(ticket.signature),
        issued_s=ticket.issued_s,
        expires_s=ticket.expires_s,
    )


def _ticket_user(ticket: Ticket) -> UserKey:
    from antiphon.engines.nats import UserKey

    return UserKey(ticket.login_key)


def _widest(granted: Terms) -> Scope:
    kinds = tuple(one for glob in granted.kinds if (one := filter_of(glob)) is not None)
    return Scope(by_command={TOP: kinds})


async def redeem(
    home: StateDirectory, ticket: Ticket, *, alias: str, breaker: CircuitBreaker | None = None
) -> Access:
    """Join: make this machine's keys, ask the gate, and store the login that it issues.

    Without an answer, it asks again, with growing pauses: until the breaker opens, and without one
    a few times. Its engine keys are stored first, so that it asks with the same ones if it is
    killed, and the gate gives it what it gave before.
    """
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
        user, refresh_key = _engine_keys(home)
        where = JOIN.at(user=_ticket_user(ticket).public)
        payload = gate_requests.JOINS.sign(
            gate_requests.JoinRequest(ticket=ticket.id, secret=ticket.secret, alias=alias),
            (machine.keyring.did, machine.keyring.sign),
            *(gate_requests.engine_signer(key.public, key.sign) for key in (user, refresh_key)),
            mesh=ticket.mesh,
            subject=where,
        )
        ca, login = await _ask_until_answered(ticket, where, payload, breaker)
        name = genesis.name_in(login.genesis.encode(), ticket.mesh)
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
    home.write(MeshFile(mesh=ticket.mesh, name=name, engine=ticket.engine, ca=ca), access)
    return access


class _NoAnswer(Unavailable):
    """The engine could not be reached, or was lost before the gate answered: ask again."""


_AT_THE_HOST: Final = (
    "on the machine that hosts the mesh, join again with the same ticket; its address means that"
    " machine alone. For another one, there: antiphon up --listen 0.0.0.0:4222 --reach NAME, and"
    " a new ticket"
)


async def _ask_until_answered(
    ticket: Ticket, where: str, payload: bytes, breaker: CircuitBreaker | None
) -> tuple[str, gate_requests.Login]:
    """The mesh's certificate, and the gate's answer.

    The same request again is safe: it gets the same answer.
    """
    was_lost = False

    async def ask() -> tuple[str, gate_requests.Login]:
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
            f"tried {breaker.failures} times in a row: {last.message}",
            retry_s=breaker.wait_s(SystemClock.boot_s()),
            hint=_AT_THE_HOST
            if is_loopback(urlsplit(ticket.engine).hostname or "")
            else "check the network, then join again with the same ticket",
        ) from last
    except Rejected as refused:
        if was_lost and refused.reason == "ticket":
            refused.hint = (
                "the connection was lost while this machine joined, and perhaps the answer with"
                " it: ask for a new invitation"
            )
        raise


async def _ask(ticket: Ticket, where: str, payload: bytes) -> tuple[str, gate_requests.Login]:
    try:
        ca, engine = await _knock(ticket)
    except Unavailable as problem:
        raise _NoAnswer(problem.message, hint=problem.hint) from problem
    try:
        return ca, await gate_requests.ask(engine.bus, where, payload, within_s=JOIN_WITHIN_S)
    except RateLimited:
        raise
    except gate_requests.GateFault as fault:
        raise _NoAnswer(fault.message, hint=fault.hint) from fault
    except Unavailable as problem:
        if engine.connected and not engine.reconnects:
            raise  # the engine is there, but nobody at the gate
        raise _NoAnswer(problem.message, hint=problem.hint) from problem
    finally:
        await engine.close()


def _engine_keys(home: StateDirectory) -> tuple[UserKey, UserKey]:
    """Those of this machine: its running processes continue with the new login.

    A machine that has none stores new ones before it uses them.
    """
    from antiphon.engines.nats import UserKey

    with suppress(AntiphonError):  # there are none, or they can no longer be read
        access = home.access()
        if access.refresh_seed:
            return UserKey.from_seed(access.user_seed), UserKey.from_seed(access.refresh_seed)
    user, refresh_key = UserKey.new(), UserKey.new()
    home.write_access(
        Access(
            user=user.public,
            user_seed=user.seed,
            refresh_key=refresh_key.public,
            refresh_seed=refresh_key.seed,
        )
    )
    return user, refresh_key


async def _knock(ticket: Ticket) -> tuple[str, Engine]:
    """The mesh's certificate, and a connection to the server that has one of its."""
    from antiphon.engines.nats import NatsEngine, client_context, pinned_authority

    ca = await pinned_authority(ticket.engine, ticket.pin)
    try:
        return ca, await NatsEngine.connect(
            ticket.engine,
            ticket.mesh,
            login=login_of(ticket),
            tls=client_context(ca),
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
