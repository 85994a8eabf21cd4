"""How the outsider tries to log in as somebody else, with more rights, or again."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from typing import Any, Final

import msgspec
from nats import errors as nats_errors

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.bus.subjects import JOIN, LOGIN
from antiphon.engines.nats import UserKey
from antiphon.engines.nats.credentials.keypairs import AccountKey
from antiphon.runtime.gate import gate_requests
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.hosting.strongest_key import with_authority
from chaos.network.raw_connection import Credentials, RawConnection, header
from chaos.outsider.attempt import Attempt, Outcome, fill_in, publish_attempt
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh

GONE_WITHIN_S: Final = 12.0
"""From the revocation's commit to the end of the connection."""
TICKET_ENDS_S: Final = 5.0
_ANY_LOGIN: Final = MessageType[dict[str, Any]]("login", dict, max_bytes=1024 * 1024)
_TERMS: Final = hosted_mesh.Terms(can=("claim",), kinds=("render.*",))

# --- logins -------------------------------------------------------------------------------------


async def _is_let_in(target: TargetMesh, credentials: Credentials) -> bool:
    try:
        connection = await target.connect(credentials=credentials)
    except (nats_errors.Error, OSError, TimeoutError, ValueError):
        return False
    try:
        # The client takes a line that ends without a word for a login; only an answer is one.
        await connection.flush()
    except (nats_errors.Error, OSError, TimeoutError):
        return False
    finally:
        await connection.close()
    return True


def _claims(jwt: str) -> dict[str, Any]:
    body = jwt.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims


def part(value: object) -> str:
    """One part of a signed login."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _edited(jwt: str, *, key: Any = None, issuer: str = "", algorithm: str = "ed25519-nkey") -> str:
    """The same login with all permissions, signed as before or by a key of the outsider's."""
    claims = _claims(jwt)
    claims["nats"] = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}
    claims["iss"] = issuer or claims["iss"]
    signed = f"{part({'typ': 'JWT', 'alg': algorithm})}.{part(claims)}"
    signature = jwt.split(".")[2] if key is None else part(key.sign(signed.encode()))
    return f"{signed}.{signature}"


def _logging_in(name: str, make: Any) -> Attempt:
    """Present a login that the server must not take."""

    async def act(target: TargetMesh) -> Outcome:
        if await _is_let_in(target, make(target)):
            raise Breach("the server let it in")
        return Outcome("server", "not let in")

    return Attempt(name, act)


def _with_own_key(target: TargetMesh, **how: Any) -> Credentials:
    access = target.contractor.access()
    key = UserKey.from_seed(access.user_seed)
    return Credentials(_edited(access.jwt, key=key, **how), access.user_seed)


def _with_account_of_its_own(target: TargetMesh) -> Credentials:
    access, account = target.contractor.access(), AccountKey.new()
    jwt = _edited(access.jwt, key=account, issuer=account.public)
    return Credentials(jwt, access.user_seed)


_LOGGING_IN: Final = [
    _logging_in(
        "a login with edited permissions",
        lambda target: Credentials(
            _edited(target.contractor.access().jwt), target.contractor.access().user_seed
        ),
    ),
    _logging_in("a login that it signed itself", _with_own_key),
    _logging_in(
        "a login without a signature", lambda target: _with_own_key(target, algorithm="none")
    ),
    _logging_in("a login of an account of its own", _with_account_of_its_own),
    _logging_in(
        "the victim's login with its own key",
        lambda target: Credentials(
            target.victim.access().jwt, target.contractor.access().user_seed
        ),
    ),
    _logging_in(
        "its own login with a new key",
        lambda target: Credentials(target.contractor.access().jwt, UserKey.new().seed),
    ),
    _logging_in("no login", lambda target: Credentials("", target.contractor.access().user_seed)),
]

# --- the gate -----------------------------------------------------------------------------------


async def ask_gate(
    target: TargetMesh,
    connection: RawConnection,
    verb: str,
    body: bytes,
    *,
    within_s: float = gate_requests.ANSWER_WITHIN_S,
) -> dict[str, Any]:
    """What the gate answers this user; nothing if it does not."""
    inbox = f"inbox.{connection.user}.{os.urandom(4).hex()}"
    heard = await connection.listen(f"apb.{target.mesh}.{inbox}")
    head = header(Antiphon_Reply=inbox)
    await connection.publish(f"apb.{target.mesh}.gate.{connection.user}.{verb}", body, head=head)
    deadline = time.monotonic() + within_s
    while not heard and time.monotonic() < deadline:
        await asyncio.sleep(0.002)
    answer: dict[str, Any] = json.loads(heard[0].data) if heard else {}
    return answer


def _refresh_credentials(target: TargetMesh) -> Credentials:
    access = target.contractor.access()
    return Credentials(access.refresh_jwt, access.refresh_seed)


def signed_request(target: TargetMesh, fields: dict[str, Any]) -> bytes:
    """Any request for a login, signed by its own refresh key as it should be."""
    key = UserKey.from_seed(target.contractor.access().refresh_seed)
    signer, where = gate_requests.engine_signer(key.public, key.sign), LOGIN.at(user=key.public)
    return _ANY_LOGIN.sign(fields, signer, mesh=target.mesh, subject=where)


def _knocking(name: str, verb: str, *bodies: bytes | dict[str, Any]) -> Attempt:
    async def act(target: TargetMesh) -> Outcome:
        connection = await target.connect(credentials=_refresh_credentials(target))
        told = ""
        for body in bodies:
            text = body if isinstance(body, bytes) else signed_request(target, body)
            answer = await ask_gate(target, connection, verb, text)
            if not answer.get("refusal"):
                raise Breach(f"to {text[:80]!r} the gate said {list(answer)}")
            told = answer["refusal"]["message"]
        return Outcome("gate", told)

    return Attempt(name, act)


def _using_refresh_key(name: str, subject: str, *, listens: bool = False) -> Attempt:
    """A key that may ask for logins does nothing else."""

    async def act(target: TargetMesh) -> Outcome:
        connection = await target.connect(credentials=_refresh_credentials(target))
        where = fill_in(subject, target)
        if listens:
            is_refused = await connection.listen(where) is None
        else:
            is_refused = await connection.is_refused(where, b"{}", reply=f"{connection.inbox}.x")
        if not is_refused:
            raise Breach(f"a refresh key may use {where}")
        return Outcome("server", "no permission")

    return Attempt(f"with its refresh key, {name}", act)


_MADE_UP: Final = {
    "message": {
        "mesh": "x",
        "subject": "gate.x.join",
        "signers": ["did:key:x", "x", "x"],
        "body": {"ticket": "0" * 16, "secret": "x", "alias": "x"},
    },
    "sigs": ["00" * 64] * 3,
}


async def _join_by_guess(target: TargetMesh) -> Outcome:
    """With the login of a real ticket, and everything else made up."""
    ticket = hosted_mesh.invite(target.owner_home, msgspec.structs.replace(_TERMS, alias="guesser"))
    answers = [
        await _join_with(target, ticket, **{name: "0" * 16}) for name in ("ticket", "secret")
    ]
    connection = await target.connect(credentials=_ticket_login(ticket))
    answers += [
        await ask_gate(target, connection, "join", json.dumps(body).encode())
        for body in (_MADE_UP, {})
    ]
    if not all(answer.get("refusal") for answer in answers):
        raise Breach(f"the gate said {answers}")
    return Outcome("gate", answers[0]["refusal"]["message"])


_AT_THE_GATE: Final = [
    _knocking(
        "ask for the victim's queues", "login", {"kinds": [BUILD]}, {"kinds": [RENDER, BUILD]}
    ),
    _knocking(
        "ask for queues of no kind",
        "login",
        {"kinds": ["render"]},
        {"kinds": ["render.*"]},
        {"kinds": ["render.>"]},
        {"kinds": ["*"]},
        {"kinds": [f"render.k{n}" for n in range(200)]},
    ),
    _knocking("ask in words the gate does not know", "login", b"", b"[]", b"\xff", {"scope": 1}),
    Attempt("join with a ticket that it made up", _join_by_guess),
    publish_attempt("ask for a login without its refresh key", "apb.<m>.gate.<me>.login", b"{}"),
    _using_refresh_key("write on its kind", f"ap.<m>.jobs.job.{RENDER}.<id>"),
    _using_refresh_key(
        "read its kind", f"$JS.API.DIRECT.GET.<stream>.ap.<m>.jobs.job.{RENDER}.<id>"
    ),
    _using_refresh_key("read at the gate", "apg.<m>.<me>.get"),
    _using_refresh_key(
        "take announcements", "$JS.API.CONSUMER.MSG.NEXT.<stream>.render=video=normal"
    ),
    _using_refresh_key("call the roll", "apb.<m>.roll"),
    _using_refresh_key("hear control ops", "apr.<m>.ctl.>", listens=True),
    _using_refresh_key("hear the roll", "apb.<m>.roll", listens=True),
]


def _ticket_login(ticket: hosted_mesh.Ticket) -> Credentials:
    """The login that a ticket's holder makes from it."""
    login = hosted_mesh.login_of(ticket)
    return Credentials(login.current_jwt(), login.user_seed or "")


async def _use_the_ticket_again(target: TargetMesh) -> Outcome:
    """Its login ends a moment after its use; until then the gate knows that it was used."""
    await _until_shut_out(target, _ticket_login(target.ticket), TICKET_ENDS_S)
    return Outcome("server", "not let in")


async def _until_shut_out(target: TargetMesh, credentials: Credentials, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while await _is_let_in(target, credentials):
        if time.monotonic() > deadline:
            raise Breach("the server let it in")
        await asyncio.sleep(0.2)


async def _join_with(
    target: TargetMesh, ticket: hosted_mesh.Ticket, /, **named: str
) -> dict[str, Any]:
    """Join with a ticket, with new keys, whatever keys, ticket and secret the request names."""
    node, user, refresh_key = SeedKeyring(os.urandom(32)), UserKey.new(), UserKey.new()
    alias = named.get("alias", "second")
    connection = await target.connect(credentials=_ticket_login(ticket))
    named_ticket, secret = named.get("ticket", ticket.id), named.get("secret", ticket.secret)
    signed = gate_requests.JOINS.sign(
        gate_requests.JoinRequest(ticket=named_ticket, secret=secret, alias=alias),
        (node.did, node.sign),
        gate_requests.engine_signer(named.get("user", user.public), user.sign),
        gate_requests.engine_signer(named.get("refresh_key", refresh_key.public), refresh_key.sign),
        mesh=ticket.mesh,
        subject=JOIN.at(user=connection.user),
    )
    return await ask_gate(target, connection, "join", signed, within_s=3.0)


async def _use_a_ticket_twice(target: TargetMesh) -> Outcome:
    ticket = hosted_mesh.invite(target.owner_home, msgspec.structs.replace(_TERMS, alias="twice"))
    answers = list(await asyncio.gather(*(_join_with(target, ticket) for _ in range(4))))
    if await _is_let_in(target, _ticket_login(ticket)):
        answers.append(await _join_with(target, ticket))
    if sum(bool(answer.get("login")) for answer in answers) != 1:
        raise Breach("one ticket let several machines in, or none")
    told = [one["refusal"]["message"] for one in answers if one.get("refusal")]
    return Outcome("gate", told[0] if told else "no answer")


async def _take_a_name(target: TargetMesh) -> Outcome:
    """With a ticket whose holder chooses the name."""
    ticket = hosted_mesh.invite(target.owner_home, msgspec.structs.replace(_TERMS, alias=""))
    answer = await _join_with(target, ticket, alias="victim")
    if answer.get("login") or not answer.get("refusal"):
        raise Breach("two machines have one name: whom a revocation means is open")
    return Outcome("gate", answer["refusal"]["message"])


def _join_as(whose: str) -> Attempt:
    """A joining machine names its own engine keys; here it names somebody else's."""

    async def act(target: TargetMesh) -> Outcome:
        theirs = (target.victim if whose == "victim" else target.owner_home).access()
        ticket = hosted_mesh.invite(
            target.owner_home, msgspec.structs.replace(_TERMS, alias="thief")
        )
        chosen = {"user": theirs.user}
        if theirs.refresh_key:
            chosen["refresh_key"] = theirs.refresh_key
        answer = await _join_with(target, ticket, **chosen)
        if answer.get("refusal"):
            return Outcome("gate", answer["refusal"]["message"])
        await target.restart_victim()
        await target.check_work()
        async with with_authority(target.owner_home.path) as mesh:
            await mesh.authority.revoke("thief")
        await asyncio.sleep(GONE_WITHIN_S)
        await target.check_work()
        ended = target.owner_home.server / "revoked.json"
        if theirs.user in ended.read_text():
            raise Breach(f"the {whose}'s own login ends when the server next starts")
        return Outcome("harmless", "the gate keeps the two apart")

    return Attempt(f"join under the {whose}'s engine keys", act)


LOGINS: Final = [
    *_LOGGING_IN,
    *_AT_THE_GATE,
    Attempt("use its ticket again", _use_the_ticket_again),
    Attempt("use one ticket for several machines", _use_a_ticket_twice),
    Attempt("take another machine's name", _take_a_name),
    _join_as("victim"),
    _join_as("owner"),
]

# --- leaving ------------------------------------------------------------------------------------


async def _stay_connected(target: TargetMesh) -> Outcome:
    """The owner revokes its grant; all of its connections must end at once."""
    others = [await target.connect() for _ in range(3)]
    async with with_authority(target.owner_home.path) as mesh:
        revoking = asyncio.ensure_future(mesh.authority.revoke("contractor"))
        await asyncio.wait((revoking,))
        revoking.result()
        begun = time.monotonic()
    target.is_expelled = True
    try:
        async with asyncio.timeout(2 * GONE_WITHIN_S):
            for connection in (target.connection, *others):
                await connection.ended.wait()
    except TimeoutError as late:
        raise Breach(f"still connected after {2 * GONE_WITHIN_S:g} s") from late
    took = time.monotonic() - begun
    if took > GONE_WITHIN_S:
        raise Breach(f"connected for {took:.1f} s after its revocation")
    return Outcome("server", f"hung up {took * 1000:.0f} ms after the revocation")


def _coming_back(name: str, credentials: Any, *, within_s: float = 0.0) -> Attempt:
    async def act(target: TargetMesh) -> Outcome:
        if not target.is_expelled:
            await _stay_connected(target)
        await _until_shut_out(target, credentials(target), within_s)
        return Outcome("server", "not let in")

    return Attempt(name, act)


LEAVING: Final = [
    Attempt("stay after its revocation", _stay_connected),
    _coming_back(
        "come back with its login",
        lambda target: Credentials(
            target.contractor.access().jwt, target.contractor.access().user_seed
        ),
    ),
    _coming_back("come back with its refresh key", _refresh_credentials, within_s=GONE_WITHIN_S),
    _coming_back(
        "come back with its ticket",
        lambda target: _ticket_login(target.ticket),
        within_s=TICKET_ENDS_S,
    ),
]
