"""Requests to the gate and its answers: to join, and to get a new login.

Requests travel on the bus, on a subject on which only the asking engine user may publish. But a
member can make the server publish there, as an answer to itself, so a request is also signed: a
login request by the refresh key whose subject it is, a join request by the machine's own key and
both its engine keys. That proves that the machine has the key to which the owner will delegate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from antiphon.core.authority import grant_terms
from antiphon.core.authority.scope import Scope
from antiphon.core.bus.signed_message import IsSigned, Message, MessageType, Refused, Signer
from antiphon.core.bus.subjects import JOIN, LOGIN
from antiphon.core.record import signing
from antiphon.decoding import UNREADABLE
from antiphon.errors import (
    AntiphonError,
    Conflict,
    Malformed,
    RateLimited,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    from antiphon.ports import Bus

ANSWER_WITHIN_S: Final = 10.0
MAX_REQUEST_BYTES: Final = 64 * 1024
MAX_KINDS: Final = 40

_AGAIN: Final = "nothing was refused: run the same command again"

T = TypeVar("T")


class GateFault(Unavailable):
    """The gate answered that it could not decide: the same request may be granted later."""


class JoinRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine asks to become a member; signed by its own key, user key and refresh key."""

    ticket: str
    secret: str
    alias: str

    def __repr__(self) -> str:
        return f"JoinRequest({self.ticket})"


class LoginRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member asks for a login that permits the queues of these kinds."""

    kinds: tuple[str, ...] = ()


class Login(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A login, as the gate issues it."""

    jwt: str
    scope: Scope
    kinds: tuple[str, ...]
    alias: str
    refresh_jwt: str = ""
    genesis: str = ""
    """For a machine that joins: the mesh's first record, which it knows by the mesh's id."""

    def __repr__(self) -> str:
        return f"Login({self.alias!r}, {self.scope})"


class Refusal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why the gate does not issue a login."""

    message: str
    reason: str = ""
    hint: str = ""
    retry_s: float = 0.0
    """When there is room again; 0: that is not the reason."""
    is_passing: bool = False
    """Whether nothing is wrong with the request: the same one may be granted a moment later."""


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either a login or a refusal."""

    login: Login | None = None
    refusal: Refusal | None = None


JOINS: Final = MessageType("join", JoinRequest, max_bytes=MAX_REQUEST_BYTES)
LOGINS: Final = MessageType("login", LoginRequest, max_bytes=MAX_REQUEST_BYTES)
_REFUSED: Final = {
    Refused.MESH: "this request is for another mesh",
    Refused.SUBJECT: "this request is for another login",
    Refused.SIGNATURE: "the request is not signed by the keys that it names",
}


def engine_signer(name: str, sign: Callable[[bytes], bytes]) -> Signer:
    """An engine key, which signs plain bytes, as the signer of a message."""
    return name, lambda payload_type, payload: sign(signing.pae(payload_type, payload))


def open_join(payload: bytes, mesh: str, ticket: str, engine: IsSigned) -> Message[JoinRequest]:
    """A join request, signed by the machine, its user key and its refresh key; or `Malformed`."""
    checks, where = (signing.is_signed, engine, engine), JOIN.at(user=ticket)
    request = _opened(JOINS.open(payload, mesh=mesh, subject=where, checks=checks))
    grant_terms.check_alias(request.body.alias)
    return request


def open_login(payload: bytes, mesh: str, refresh_key: str, engine: IsSigned) -> LoginRequest:
    """A login request, within bounds and signed by this refresh key; or `Malformed`."""
    where = LOGIN.at(user=refresh_key)
    request = _opened(LOGINS.open(payload, mesh=mesh, subject=where, checks=(engine,)))
    if request.author != refresh_key:
        raise Malformed("the request is not signed by the refresh key", reason=Refused.SIGNATURE)
    kinds = request.body.kinds
    if len(kinds) > MAX_KINDS:
        raise Malformed(f"{len(kinds)} kinds in one login request; at most {MAX_KINDS} are allowed")
    return request.body


def _opened(found: Message[T] | Refused) -> Message[T]:
    if isinstance(found, Refused):
        told = _REFUSED.get(found, "the gate does not understand this request")
        raise Malformed(told, reason=found)
    return found


async def ask(
    bus: Bus, subject: str, payload: bytes, *, within_s: float = ANSWER_WITHIN_S
) -> Login:
    """Ask the gate and wait for its answer; `Rejected` with its message if it refuses.

    `GateFault` if it could not decide.
    """
    inbox = bus.new_inbox()
    async with bus.subscribe(inbox, max_pending=4) as answers:
        await bus.publish(subject, payload, reply=inbox)
        try:
            async with asyncio.timeout(within_s):
                async for message in answers:
                    return _login_in(message.payload)
        except TimeoutError:
            pass
    raise Unavailable(
        f"the mesh's gate did not answer within {within_s:g} s",
        hint="is 'antiphon up' running on the machine that hosts the mesh?",
    )


def _login_in(payload: bytes) -> Login:
    try:
        answer = msgspec.json.decode(payload, type=Answer)
    except UNREADABLE as problem:
        raise Malformed("the gate's answer cannot be read; is it another version?") from problem
    if answer.login is not None:
        return answer.login
    told = answer.refusal or Refusal(message="the gate refused without giving a reason")
    if told.is_passing:
        raise GateFault(told.message, hint=told.hint)
    if told.retry_s:
        raise RateLimited(told.message, retry_s=told.retry_s)
    raise Rejected(told.message, reason=told.reason, hint=told.hint)


def refusal_of(error: AntiphonError) -> Answer:
    """An error as the answer that the asking machine gets."""
    if isinstance(error, RateLimited):
        refusal = Refusal(message=error.message, hint=error.hint, retry_s=error.retry_s)
    elif isinstance(error, Unavailable | Conflict):
        return fault(f"the mesh's gate could not decide: {error.message}")
    else:
        reason = getattr(error, "reason", "")
        refusal = Refusal(message=error.message, reason=reason, hint=error.hint)
    return Answer(refusal=refusal)


def fault(message: str) -> Answer:
    """The answer of a gate that could not decide, though nothing is wrong with the request."""
    return Answer(refusal=Refusal(message=message, hint=_AGAIN, is_passing=True))
