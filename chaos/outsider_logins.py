"""How the outsider tries to come in as somebody else, as more than it is, or once more."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from typing import Any, Final

import msgspec
from nats import errors as nats_errors

from antiphon.core.bus_subjects import JOIN, LOGIN
from antiphon.core.signed_message import MessageType
from antiphon.engines.nats import UserKey
from antiphon.engines.nats.keypairs import AccountKey
from antiphon.runtime import knocking
from antiphon.runtime.keys import SeedKeyring
from antiphon.sdk import authority, hosting
from chaos.outsider_attempt import Attempt, Held, placed, publishing
from chaos.outsider_line import Line, Pass, header
from chaos.outsider_scene import BUILD, RENDER, Breach, Scene

GONE_WITHIN_S: Final = 1.5
"""From the revocation's commit to the end of the connection."""
TICKET_ENDS_S: Final = 5.0
_ANY_LOGIN: Final = MessageType[dict[str, Any]]("login", dict, max_bytes=1024 * 1024)
_TERMS: Final = hosting.Terms(can=("claim",), kinds=("render.*",))

# --- logins -------------------------------------------------------------------------------------


async def _is_let_in(scene: Scene, held: Pass) -> bool:
    try:
        line = await scene.enter(held=held)
    except (nats_errors.Error, OSError, TimeoutError, ValueError):
        return False
    await line.close()
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

    async def act(scene: Scene) -> Held:
        if await _is_let_in(scene, make(scene)):
            raise Breach("the server let it in")
        return Held("server", "not let in")

    return Attempt(name, act)


def _with_own_key(scene: Scene, **how: Any) -> Pass:
    access = scene.contractor.access()
    key = UserKey.from_seed(access.user_seed)
    return Pass(_edited(access.jwt, key=key, **how), access.user_seed)


def _with_account_of_its_own(scene: Scene) -> Pass:
    access, account = scene.contractor.access(), AccountKey.new()
    jwt = _edited(access.jwt, key=account, issuer=account.public)
    return Pass(jwt, access.user_seed)


_LOGGING_IN: Final = [
    _logging_in(
        "a login with edited permissions",
        lambda scene: Pass(
            _edited(scene.contractor.access().jwt), scene.contractor.access().user_seed
        ),
    ),
    _logging_in("a login that it signed itself", _with_own_key),
    _logging_in(
        "a login without a signature", lambda scene: _with_own_key(scene, algorithm="none")
    ),
    _logging_in("a login of an account of its own", _with_account_of_its_own),
    _logging_in(
        "the victim's login with its own key",
        lambda scene: Pass(scene.victim.access().jwt, scene.contractor.access().user_seed),
    ),
    _logging_in(
        "its own login with a new key",
        lambda scene: Pass(scene.contractor.access().jwt, UserKey.new().seed),
    ),
    _logging_in("no login", lambda scene: Pass("", scene.contractor.access().user_seed)),
]

# --- the gate -----------------------------------------------------------------------------------


async def knock(
    scene: Scene, line: Line, verb: str, body: bytes, *, within_s: float = knocking.ANSWER_WITHIN_S
) -> dict[str, Any]:
    """What the gate answers this user; nothing if it does not."""
    inbox = f"inbox.{line.user}.{os.urandom(4).hex()}"
    heard = await line.listen(f"apb.{scene.mesh}.{inbox}")
    head = header(Antiphon_Reply=inbox)
    await line.publish(f"apb.{scene.mesh}.gate.{line.user}.{verb}", body, head=head)
    deadline = time.monotonic() + within_s
    while not heard and time.monotonic() < deadline:
        await asyncio.sleep(0.002)
    answer: dict[str, Any] = json.loads(heard[0].data) if heard else {}
    return answer


def _door(scene: Scene) -> Pass:
    access = scene.contractor.access()
    return Pass(access.door_jwt, access.door_seed)


def asking(scene: Scene, fields: dict[str, Any]) -> bytes:
    """Any request for a login, signed by its own door key as it should be."""
    door = UserKey.from_seed(scene.contractor.access().door_seed)
    signer, where = knocking.engine_signer(door.public, door.sign), LOGIN.at(user=door.public)
    return _ANY_LOGIN.sign(fields, signer, mesh=scene.mesh, subject=where)


def _knocking(name: str, verb: str, *bodies: bytes | dict[str, Any]) -> Attempt:
    async def act(scene: Scene) -> Held:
        line = await scene.enter(held=_door(scene))
        told = ""
        for body in bodies:
            text = body if isinstance(body, bytes) else asking(scene, body)
            answer = await knock(scene, line, verb, text)
            if not answer.get("refusal"):
                raise Breach(f"to {text[:80]!r} the gate said {list(answer)}")
            told = answer["refusal"]["message"]
        return Held("gate", told)

    return Attempt(name, act)


def _at_the_door(name: str, subject: str, *, listens: bool = False) -> Attempt:
    """A key that may ask for logins does nothing else."""

    async def act(scene: Scene) -> Held:
        line = await scene.enter(held=_door(scene))
        where = placed(subject, scene)
        if listens:
            is_refused = await line.listen(where) is None
        else:
            is_refused = await line.is_refused(where, b"{}", reply=f"{line.inbox}.x")
        if not is_refused:
            raise Breach(f"a door key may use {where}")
        return Held("server", "no permission")

    return Attempt(f"with its door key, {name}", act)


_MADE_UP: Final = {
    "message": {
        "mesh": "x",
        "subject": "gate.x.join",
        "signers": ["did:key:x", "x", "x"],
        "body": {"ticket": "0" * 16, "secret": "x", "alias": "x"},
    },
    "sigs": ["00" * 64] * 3,
}


async def _join_by_guess(scene: Scene) -> Held:
    """With the login of a real ticket, and everything else made up."""
    ticket = hosting.invite(scene.owner_home, msgspec.structs.replace(_TERMS, alias="guesser"))
    answers = [
        await _knock_with(scene, msgspec.structs.replace(ticket, **{name: "0" * 16}))
        for name in ("id", "secret")
    ]
    line = await scene.enter(held=Pass(ticket.jwt, ticket.user_seed))
    answers += [
        await knock(scene, line, "join", json.dumps(body).encode()) for body in (_MADE_UP, {})
    ]
    if not all(answer.get("refusal") for answer in answers):
        raise Breach(f"the gate said {answers}")
    return Held("gate", answers[0]["refusal"]["message"])


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
    publishing("ask for a login without its door key", "apb.<m>.gate.<me>.login", b"{}"),
    _at_the_door("write on its kind", f"ap.<m>.job.{RENDER}.<id>"),
    _at_the_door("read its kind", f"$JS.API.DIRECT.GET.<stream>.ap.<m>.job.{RENDER}.<id>"),
    _at_the_door("read at the gate", "apg.<m>.<me>.get"),
    _at_the_door("take announcements", "$JS.API.CONSUMER.MSG.NEXT.<stream>.render=video=1"),
    _at_the_door("call the roll", "apb.<m>.roll"),
    _at_the_door("hear control ops", "apr.<m>.ctl.>", listens=True),
    _at_the_door("hear the roll", "apb.<m>.roll", listens=True),
]


async def _use_the_ticket_again(scene: Scene) -> Held:
    """Its login ends a moment after its use; until then the gate knows that it was used."""
    await _until_shut_out(scene, Pass(scene.ticket.jwt, scene.ticket.user_seed), TICKET_ENDS_S)
    return Held("server", "not let in")


async def _until_shut_out(scene: Scene, held: Pass, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while await _is_let_in(scene, held):
        if time.monotonic() > deadline:
            raise Breach("the server let it in")
        await asyncio.sleep(0.2)


async def _knock_with(scene: Scene, ticket: hosting.Ticket, **named: str) -> dict[str, Any]:
    """Join with a ticket, with new keys, whatever keys the request names."""
    node, user, door = SeedKeyring(os.urandom(32)), UserKey.new(), UserKey.new()
    alias = named.get("alias", "second")
    line = await scene.enter(held=Pass(ticket.jwt, ticket.user_seed))
    signed = knocking.JOINS.sign(
        knocking.JoinRequest(ticket=ticket.id, secret=ticket.secret, alias=alias),
        (node.did, node.sign),
        knocking.engine_signer(named.get("user", user.public), user.sign),
        knocking.engine_signer(named.get("door", door.public), door.sign),
        mesh=ticket.mesh,
        subject=JOIN.at(user=line.user),
    )
    return await knock(scene, line, "join", signed, within_s=3.0)


async def _use_a_ticket_twice(scene: Scene) -> Held:
    ticket = hosting.invite(scene.owner_home, msgspec.structs.replace(_TERMS, alias="twice"))
    answers = list(await asyncio.gather(*(_knock_with(scene, ticket) for _ in range(4))))
    if await _is_let_in(scene, Pass(ticket.jwt, ticket.user_seed)):
        answers.append(await _knock_with(scene, ticket))
    if sum(bool(answer.get("login")) for answer in answers) != 1:
        raise Breach("one ticket let several machines in, or none")
    told = [one["refusal"]["message"] for one in answers if one.get("refusal")]
    return Held("gate", told[0] if told else "no answer")


async def _take_a_name(scene: Scene) -> Held:
    """With a ticket that leaves the name to its holder."""
    ticket = hosting.invite(scene.owner_home, msgspec.structs.replace(_TERMS, alias=""))
    answer = await _knock_with(scene, ticket, alias="victim")
    if answer.get("login") or not answer.get("refusal"):
        raise Breach("two machines have one name: whom a revocation means is open")
    return Held("gate", answer["refusal"]["message"])


def _join_as(whose: str) -> Attempt:
    """A joining machine names its own engine keys; here it names somebody else's."""

    async def act(scene: Scene) -> Held:
        theirs = (scene.victim if whose == "victim" else scene.owner_home).access()
        ticket = hosting.invite(scene.owner_home, msgspec.structs.replace(_TERMS, alias="thief"))
        chosen = {"user": theirs.user}
        if theirs.door:
            chosen["door"] = theirs.door
        answer = await _knock_with(scene, ticket, **chosen)
        if answer.get("refusal"):
            return Held("gate", answer["refusal"]["message"])
        await scene.restart_victim()
        await scene.pulse()
        async with authority.with_authority(scene.owner_home.path) as mesh:
            await authority.revoke(mesh, "thief")
        await asyncio.sleep(GONE_WITHIN_S)
        await scene.pulse()
        ended = scene.owner_home.server / "revoked.json"
        if theirs.user in ended.read_text():
            raise Breach(f"the {whose}'s own login ends when the server next starts")
        return Held("harmless", "the gate keeps the two apart")

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


async def _stay(scene: Scene) -> Held:
    """The owner takes its grant back; all of its connections must end at once."""
    others = [await scene.enter() for _ in range(3)]
    async with authority.with_authority(scene.owner_home.path) as mesh:
        revoking = asyncio.ensure_future(authority.revoke(mesh, "contractor"))
        await asyncio.wait((revoking,))
        revoking.result()
        begun = time.monotonic()
    scene.is_expelled = True
    try:
        async with asyncio.timeout(2 * GONE_WITHIN_S):
            for line in (scene.line, *others):
                await line.ended.wait()
    except TimeoutError as late:
        raise Breach(f"still connected after {2 * GONE_WITHIN_S:g} s") from late
    took = time.monotonic() - begun
    if took > GONE_WITHIN_S:
        raise Breach(f"connected for {took:.1f} s after its revocation")
    return Held("server", f"hung up {took * 1000:.0f} ms after the revocation")


def _coming_back(name: str, held: Any, *, within_s: float = 0.0) -> Attempt:
    async def act(scene: Scene) -> Held:
        if not scene.is_expelled:
            await _stay(scene)
        await _until_shut_out(scene, held(scene), within_s)
        return Held("server", "not let in")

    return Attempt(name, act)


LEAVING: Final = [
    Attempt("stay after its revocation", _stay),
    _coming_back(
        "come back with its login",
        lambda scene: Pass(scene.contractor.access().jwt, scene.contractor.access().user_seed),
    ),
    _coming_back("come back with its door key", _door, within_s=GONE_WITHIN_S),
    _coming_back(
        "come back with its ticket",
        lambda scene: Pass(scene.ticket.jwt, scene.ticket.user_seed),
        within_s=TICKET_ENDS_S,
    ),
]
