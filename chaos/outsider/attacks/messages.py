"""What the outsider tries with messages: to read, forge, settle or hold up those of others.

It may claim `render.*` and has no permission to send. It can ask the gate about its own inbox,
which is empty. Each attempt is made while a message of the owner's waits for the victim; afterwards
the victim reads it, for the first time and unchanged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Raw

from antiphon.core.messages import envelope
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.record.ids import split_address
from antiphon.errors import AntiphonError
from antiphon.runtime.messages import message_requests
from antiphon.runtime.messages.message_requests import MESSAGES, PUT, MessageRequest, Named
from chaos.network.raw_connection import frame
from chaos.outsider.attempt import Attempt, Outcome, publish_attempt, subscribe_attempt
from chaos.outsider.target import PATIENCE_S, Breach, TargetMesh

FLOOD: Final = 3_000
Try = Callable[[TargetMesh, str], Awaitable[Outcome]]


async def _ask(target: TargetMesh, verb: str, payload: bytes) -> message_requests.MessageAnswer:
    """One question to the gate on the outsider's own subject; raises what the gate says."""
    subject = f"apg.{target.mesh}.{target.connection.user}.{verb}"
    answers = await target.connection.ask(subject, payload)
    if not answers:
        raise Breach("the gate stays silent")
    return message_requests.read_answer(answers[0].data)


def _request(target: TargetMesh, *, author: str = "", user: str = "", **fields: Any) -> bytes:
    """A request that the outsider's key signs, in whoever's name and for whichever login."""
    keyring = target.contractor.signer("machine")
    return message_requests.REQUESTS.sign(
        MessageRequest(agent="main", **fields),
        (author or keyring.did, keyring.sign),
        mesh=target.mesh,
        subject=message_requests.request_subject(user or target.connection.user),
        at_ms=target.owner.connection.session.wall.now_ms(),
    )


def _message(target: TargetMesh, to: str, *, author: str = "") -> bytes:
    keyring = target.contractor.signer("machine")
    node, agent = split_address(to)
    body = MessageBody(
        node=node,
        agent=agent,
        sender="main",
        kind="note",
        key=os.urandom(8).hex(),
        payload=Raw(b'"forged"'),
    )
    at_ms = target.owner.connection.session.wall.now_ms()
    signer = (author or keyring.did, keyring.sign)
    return envelope.sign(body, signer, mesh=target.mesh, at_ms=at_ms)


def _attempt(name: str, act: Try) -> Attempt:
    async def whole(target: TargetMesh) -> Outcome:
        victim = target.working.mesh
        said = target.canary()
        sent = await target.owner.messages.send(victim.messages.address, said, kind="note")
        outcome = await act(target, sent)
        async with asyncio.timeout(PATIENCE_S), victim.messages.inbox() as inbox:
            message = await anext(inbox)
            if (message.id, message.payload, message.attempt) != (sent, said, 1):
                raise Breach(f"the victim was handed something else: {message!r}")
            await message.ack()
        return outcome

    return Attempt(name, whole)


async def _refused(target: TargetMesh, verb: str, payload: bytes) -> Outcome:
    try:
        answer = await _ask(target, verb, payload)
    except AntiphonError as refusal:
        return Outcome("gate", refusal.message)
    raise Breach(f"the gate answered: {answer!r}"[:300])


async def _reads_its_own(target: TargetMesh, _: str) -> Outcome:
    answer = await _ask(target, MESSAGES, _request(target, do="read", session="9999999999999.x"))
    if answer.handed or answer.threads:
        raise Breach("a request of the outsider's showed somebody's messages")
    return Outcome("gate", "it shows the inbox of the key that signed, and that is empty")


async def _reads_in_anothers_name(target: TargetMesh, _: str) -> Outcome:
    return await _refused(
        target, MESSAGES, _request(target, author=target.working.mesh.did, do="read")
    )


async def _replays_for_another_login(target: TargetMesh, _: str) -> Outcome:
    user = target.victim.access().user
    return await _refused(target, MESSAGES, _request(target, user=user, do="read"))


async def _settles_anothers(target: TargetMesh, sent: str) -> Outcome:
    ends = []
    for do in ("ack", "nack", "extend"):
        request = _request(target, do=do, named=(Named(sent, 0),))
        ends.append(await _refused(target, MESSAGES, request))
    return ends[-1]


async def _settles_in_anothers_name(target: TargetMesh, sent: str) -> Outcome:
    name = target.working.mesh.did
    return await _refused(
        target, MESSAGES, _request(target, author=name, do="ack", named=(Named(sent, 0),))
    )


def _puts(target: TargetMesh, to: str, author: str = "") -> bytes:
    return message_requests.encode_put(
        message_requests.Put(to, _message(target, to, author=author))
    )


async def _sends_without_permission(target: TargetMesh, _: str) -> Outcome:
    return await _refused(target, PUT, _puts(target, target.working.mesh.messages.address))


async def _forges_a_sender(target: TargetMesh, _: str) -> Outcome:
    payload = _puts(target, target.working.mesh.messages.address, target.owner.did)
    return await _refused(target, PUT, payload)


async def _sends_junk(target: TargetMesh, _: str) -> Outcome:
    for junk in (b"", b"\xc1", b"\x92\xa0\xc4\x00", os.urandom(200), b"[" * 2_000):
        await _refused(target, PUT, junk)
        await _refused(target, MESSAGES, junk)
    return Outcome("gate", "it does not understand it")


async def _floods(target: TargetMesh, _sent: str) -> Outcome:
    """The victim's message must still arrive: `_attempt` waits for it."""
    payload = _puts(target, target.working.mesh.messages.address)
    subject = f"apg.{target.mesh}.{target.connection.user}.{PUT}"
    reply = f"{target.connection.inbox}.flood"
    for _ in range(target.scaled(FLOOD) // 100):
        await target.connection.send(*[frame(subject, payload, reply=reply)] * 100)
    return Outcome("gate", "a flood is told to stop, and then dropped by the server")


MESSAGE_ATTEMPTS: Final = [
    publish_attempt("a message past the gate", "apm.<m>.box.x.-.0123"),
    publish_attempt("the messages' stream, purged", "$JS.API.STREAM.PURGE.AP_<m>_MESSAGES"),
    publish_attempt(
        "the messages' stream, read", "$JS.API.DIRECT.GET.AP_<m>_MESSAGES", b'{"seq":1}'
    ),
    publish_attempt("the messages' stream, deleted", "$JS.API.STREAM.DELETE.AP_<m>_MESSAGES"),
    publish_attempt("a request as the victim", "apg.<m>.<victim>.messages"),
    publish_attempt("a message as the victim", "apg.<m>.<victim>.messageput"),
    publish_attempt("a gate that begins", "apb.<m>.messagegate"),
    subscribe_attempt("notices of messages", "apn.<m>.>"),
    subscribe_attempt("the messages' subjects", "apm.<m>.>"),
    subscribe_attempt("others' requests about messages", "apg.<m>.*.messages"),
    _attempt("its own inbox", _reads_its_own),
    _attempt("the victim's inbox, by its name", _reads_in_anothers_name),
    _attempt("a request for another login", _replays_for_another_login),
    _attempt("settling the victim's message", _settles_anothers),
    _attempt("settling it in the victim's name", _settles_in_anothers_name),
    _attempt("a message without permission", _sends_without_permission),
    _attempt("a message in the owner's name", _forges_a_sender),
    _attempt("junk instead of messages", _sends_junk),
    _attempt("a flood of messages", _floods),
]
