"""What members ask the gate about messages, and its answers.

A put is the signed message itself with the address that it goes to. Everything else is a request
that the reader's key signs for the engine user that sends it: whoever else gets hold of it cannot
use it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.messages.envelope import MessageId
from antiphon.core.messages.inbox import ThreadSummary
from antiphon.core.messages.register import LEASE_MS, MAX_ERROR
from antiphon.core.record.op import AgentName, Count
from antiphon.decoding import UNREADABLE
from antiphon.errors import (
    AntiphonError,
    Held,
    InboxFull,
    Malformed,
    OutcomeUnknown,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.runtime.messages.dead_letter_store import DeadLetter
from antiphon.runtime.messages.message_gate import HandedMessage

PUT: Final = "messageput"
MESSAGES: Final = "messages"
"""The verbs on which a member asks; two, so that a flood of one's own messages does not keep one
from reading."""
MAX_REQUEST_BYTES: Final = 32 * 1024
MAX_AGE_MS: Final = 600_000
MAX_HOLDING: Final = 256
MAX_NAMED: Final = 64


class Put(Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A message and where it goes."""

    receiver: Annotated[str, Meta(max_length=200)]
    envelope: bytes


class Named(Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A message that the reader was handed."""

    id: MessageId
    revision: Count = 0


class MessageRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reader wants to do with its inbox."""

    do: Literal["read", "ack", "nack", "extend", "threads", "dead"]
    agent: AgentName
    session: Annotated[str, Meta(pattern=r"^([0-9]{13}\.[0-9A-Za-z_-]{1,48})?\Z")] = ""
    limit: Count = 1
    lease_ms: Count = LEASE_MS
    wait_ms: Count = 0
    thread: Annotated[str, Meta(max_length=128)] = ""
    holding: Annotated[tuple[MessageId, ...], Meta(max_length=MAX_HOLDING)] | None = None
    named: Annotated[tuple[Named, ...], Meta(max_length=MAX_NAMED)] = ()
    delay_ms: Count | None = None
    error: Annotated[str, Meta(max_length=MAX_ERROR)] = ""


REQUESTS: Final = MessageType(
    "message-request", MessageRequest, max_bytes=MAX_REQUEST_BYTES, max_age_ms=MAX_AGE_MS
)


def request_subject(user: str) -> str:
    """The subject for which a request is signed."""
    return f"message.{user}"


class MessageAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the gate says: one of these, or an error."""

    id: str = ""
    is_duplicate: bool = False
    handed: tuple[HandedMessage, ...] = ()
    threads: tuple[ThreadSummary, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    error: str = ""
    """The class of an error."""
    message: str = ""
    reason: str = ""
    hint: str = ""
    retry_s: float = 0.0


encode_answer = msgspec.msgpack.Encoder().encode
encode_put = msgspec.msgpack.Encoder().encode
decode_put = msgspec.msgpack.Decoder(Put).decode
_decode_answer = msgspec.msgpack.Decoder(MessageAnswer).decode


def told(error: AntiphonError) -> bytes:
    """An error as the asker gets it."""
    names = ("RateLimited", "InboxFull", "Held", "OutcomeUnknown", "Rejected", "Unavailable")
    classes = {one.__name__ for one in type(error).__mro__}
    name = next((one for one in names if one in classes), "Unavailable")
    return encode_answer(
        MessageAnswer(
            error=name,
            message=error.message,
            hint=error.hint,
            reason=getattr(error, "reason", ""),
            retry_s=getattr(error, "retry_s", 0.0),
        )
    )


def read_answer(payload: bytes) -> MessageAnswer:
    """The gate's answer; raises the error that it tells of."""
    try:
        answer = _decode_answer(payload)
    except UNREADABLE as problem:
        raise Malformed("the gate's answer cannot be read; is it another version?") from problem
    if not answer.error:
        return answer
    match answer.error:
        case "RateLimited":
            raise RateLimited(answer.message, retry_s=answer.retry_s, hint=answer.hint)
        case "InboxFull":
            raise InboxFull(answer.message, hint=answer.hint)
        case "Held":
            raise Held(answer.message, hint=answer.hint)
        case "OutcomeUnknown":
            raise OutcomeUnknown(answer.message, hint=answer.hint)
        case "Rejected":
            raise Rejected(answer.message, reason=answer.reason, hint=answer.hint)
        case _:
            raise Unavailable(answer.message, hint=answer.hint)
