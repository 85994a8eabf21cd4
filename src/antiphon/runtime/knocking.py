"""What is said at the gate: asking to join, and asking for a new login.

Requests travel on the bus, on a subject on which only the asking engine user may publish. But a
member can have the server send something there as an answer to itself, so a request is also signed:
one for a login by the door key whose subject it is, one to join by all keys that it names, which
proves that the key to which the owner is about to delegate is really there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from antiphon.core import signing, terms
from antiphon.core.scope import Scope
from antiphon.errors import AntiphonError, Malformed, Rejected, Unavailable

if TYPE_CHECKING:
    from antiphon.ports import Bus, Keyring

LOGIN_TYPE: Final = "application/vnd.antiphon.login+json"
JOIN_TYPE: Final = "application/vnd.antiphon.join+json"
ANSWER_WITHIN_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 256 * 1024
MAX_KINDS: Final = 40

T = TypeVar("T")
Sign = Callable[[bytes], bytes]
"""An engine key's own signature."""


class JoinRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine asks to become a member."""

    mesh: str
    ticket: str
    secret: str
    node: str
    """The machine's own id, to which the grant will be made."""
    user: str
    door: str
    alias: str
    at_ms: int

    def __repr__(self) -> str:
        return f"JoinRequest({self.ticket}, node={self.node})"


class LoginRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member asks for a login that admits the queues of these kinds."""

    mesh: str
    kinds: tuple[str, ...] = ()


class Login(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the gate gives."""

    jwt: str
    scope: Scope
    kinds: tuple[str, ...]
    alias: str
    door_jwt: str = ""

    def __repr__(self) -> str:
        return f"Login({self.alias!r}, {self.scope})"


class Refusal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why the gate gives nothing."""

    message: str
    reason: str = ""
    hint: str = ""


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either a login or a refusal."""

    login: Login | None = None
    refusal: Refusal | None = None


class _SignedLogin(Struct, frozen=True, forbid_unknown_fields=True):
    request: str
    sig: str


class _Signed(Struct, frozen=True, forbid_unknown_fields=True):
    request: str
    sig: str
    """By the machine's key."""
    user_sig: str
    door_sig: str


def join_subject(user: str) -> str:
    """Where a ticket's engine user asks to join."""
    return f"gate.{user}.join"


def login_subject(door: str) -> str:
    """Where a member's door key asks for a login."""
    return f"gate.{door}.login"


def sign_join(request: JoinRequest, keyring: Keyring, user: Sign, door: Sign) -> bytes:
    """The request with the proof that all three new keys are there."""
    text = msgspec.json.encode(request)
    message = signing.pae(JOIN_TYPE, text)
    sig = keyring.sign(JOIN_TYPE, text).hex()
    return msgspec.json.encode(
        _Signed(text.decode(), sig, user(message).hex(), door(message).hex())
    )


def open_join(payload: bytes, is_signed_by: Callable[[str, bytes, bytes], bool]) -> JoinRequest:
    """A request whose keys signed it, or `Malformed`; engine keys are `is_signed_by`'s to check."""
    signed = _decoded(payload, _Signed)
    text = signed.request.encode()
    request = _decoded(text, JoinRequest)
    try:
        message = signing.pae(JOIN_TYPE, text)
        is_signed = (
            signing.is_signed(request.node, JOIN_TYPE, text, bytes.fromhex(signed.sig))
            and is_signed_by(request.user, message, bytes.fromhex(signed.user_sig))
            and is_signed_by(request.door, message, bytes.fromhex(signed.door_sig))
        )
    except ValueError:
        is_signed = False
    terms.check_alias(request.alias)
    if not is_signed:
        raise Malformed("the request is not signed by the keys that it names", reason="signature")
    return request


def sign_login(request: LoginRequest, door: Sign) -> bytes:
    """The request with the door key's signature."""
    text = msgspec.json.encode(request)
    sig = door(signing.pae(LOGIN_TYPE, text)).hex()
    return msgspec.json.encode(_SignedLogin(text.decode(), sig))


def open_login(
    payload: bytes, door: str, is_signed_by: Callable[[str, bytes, bytes], bool]
) -> LoginRequest:
    """A request for a login, within bounds and signed by this door key; or `Malformed`."""
    signed = _decoded(payload, _SignedLogin)
    text = signed.request.encode()
    request = _decoded(text, LoginRequest)
    try:
        is_signed = is_signed_by(door, signing.pae(LOGIN_TYPE, text), bytes.fromhex(signed.sig))
    except ValueError:
        is_signed = False
    if not is_signed:
        raise Malformed("the request is not signed by the door key", reason="signature")
    if len(request.kinds) > MAX_KINDS:
        raise Malformed(f"a login for {len(request.kinds)} kinds; up to {MAX_KINDS}")
    return request


def _decoded(payload: bytes | str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.MsgspecError as problem:
        raise Malformed("this is no request that the gate understands") from problem


async def ask(
    bus: Bus, subject: str, payload: bytes, *, within_s: float = ANSWER_WITHIN_S
) -> Login:
    """Ask the gate and wait for its answer; `Rejected` with its words if it refuses."""
    inbox = bus.new_inbox()
    async with bus.subscribe(inbox, max_pending=4) as answers:
        await bus.publish(subject, payload, reply=inbox)
        try:
            async with asyncio.timeout(within_s):
                async for message in answers:
                    return _opened(message.payload)
        except TimeoutError:
            pass
    raise Unavailable(
        f"the mesh's gate did not answer within {within_s:g} s",
        hint="is 'antiphon up' running on the machine where the mesh lives?",
    )


def _opened(payload: bytes) -> Login:
    try:
        answer = msgspec.json.decode(payload, type=Answer)
    except msgspec.MsgspecError as problem:
        raise Malformed("the gate's answer cannot be read; is it of another version?") from problem
    if answer.login is not None:
        return answer.login
    told = answer.refusal or Refusal(message="the gate refused without a reason")
    raise Rejected(told.message, reason=told.reason, hint=told.hint)


def refusal_of(error: AntiphonError) -> Answer:
    """An error as the asker shall hear it."""
    reason = getattr(error, "reason", "")
    return Answer(refusal=Refusal(message=error.message, reason=reason, hint=error.hint))
