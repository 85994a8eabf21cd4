"""A message from one agent to another, as it is signed, stored and read (spec §10).

The envelope is the one that all signed messages have (`core.bus.signed_message`), on the subject
`message.<inbox>`. So a message is valid for one inbox of one mesh. Its id follows from sender,
receiver and key: the same key again is the same message.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from blake3 import blake3
from msgspec import Meta, Raw, Struct

from antiphon.core.bus.signed_message import Message, MessageType, Refused, Signer
from antiphon.core.record.ids import agent_address, name_of_key
from antiphon.core.record.op import AgentName, Count, Did, Kind
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""A whole message with its signature; send larger things as artifacts."""
MAX_AGE_MS: Final = 120_000
"""How far the sender's clock may be from the gate's. Older bytes are not stored again."""
DEFAULT_KIND: Final = "message"
URGENT: Final = 3
_ID_BYTES: Final = 16
_WHERE: Final = "message."

MessageId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Thread = Annotated[str, Meta(max_length=128)]
Key = Annotated[str, Meta(min_length=1, max_length=128)]
_NULL: Final = Raw(b"null")


class MessageBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a message says. Policies of delegations test these fields, above all `kind`."""

    node: Did
    """The receiver's node."""
    agent: AgentName
    """The receiver on that node."""
    sender: AgentName
    """The agent that sends, on the node that signs."""
    kind: Kind
    """What sort of message it is, named like a kind of job: `progress`, `plan.handoff`."""
    key: Key
    thread: Thread = ""
    """Messages of one thread are handed out in order, one at a time."""
    priority: Annotated[int, Meta(ge=0, le=URGENT)] = 0
    """The higher, the sooner."""
    ttl_ms: Count = 0
    """How long it is of use; 0: until the store's retention ends it."""
    in_reply_to: Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?\Z")] = ""
    payload: Raw = _NULL
    """JSON."""

    @property
    def to(self) -> str:
        """The receiver's address."""
        return agent_address(self.node, self.agent)


class _PeekedBody(Struct):
    node: Did
    agent: AgentName


class _PeekedMessage(Struct):
    body: _PeekedBody


class _Peeked(Struct):
    message: _PeekedMessage


ARRIVING: Final = MessageType(
    "message", MessageBody, max_bytes=MAX_MESSAGE_BYTES, max_age_ms=MAX_AGE_MS
)
STORED: Final = MessageType("message", MessageBody, max_bytes=MAX_MESSAGE_BYTES)
"""The same messages, however old."""


def inbox_name(address: str) -> str:
    """An inbox as one subject token."""
    return name_of_key(address)


def message_id(sender: str, receiver: str, key: str) -> str:
    """The id of a message, from both addresses and the sender's key for it."""
    text = f"{sender}\0{receiver}\0{key}".encode()
    return blake3(text).hexdigest()[: 2 * _ID_BYTES]


def sign(body: MessageBody, signer: Signer, *, mesh: str, at_ms: int) -> bytes:
    """A message as it is sent; `Rejected` if it is too large."""
    return ARRIVING.sign(body, signer, mesh=mesh, subject=_subject(body.to), at_ms=at_ms)


def open_arriving(payload: bytes, receiver: str, *, mesh: str, now_ms: int) -> Message[MessageBody]:
    """A message that somebody sends to this inbox now; `Malformed` with the reason."""
    opened = ARRIVING.open(payload, mesh=mesh, subject=_subject(receiver), now_ms=now_ms)
    return _checked(opened, receiver)


def open_stored(payload: bytes, receiver: str, *, mesh: str) -> Message[MessageBody]:
    """A message that was read from this inbox; `Malformed` if it is not what was signed."""
    return _checked(STORED.open(payload, mesh=mesh, subject=_subject(receiver)), receiver)


def receiver_in(payload: bytes) -> str:
    """Whom these bytes say that they are for; nothing is checked yet. `Malformed` for none."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise Malformed(_REFUSED[Refused.TOO_LARGE], reason=Refused.TOO_LARGE.value)
    try:
        peeked = msgspec.json.decode(payload, type=_Peeked)
    except UNREADABLE:
        raise Malformed("these bytes are not a message", reason=Refused.MALFORMED.value) from None
    return agent_address(peeked.message.body.node, peeked.message.body.agent)


def sender_of(message: Message[MessageBody]) -> str:
    """The address that it came from: the key that signed it, and the agent that this key names."""
    return agent_address(message.author, message.body.sender)


def id_of(message: Message[MessageBody]) -> str:
    """Its id."""
    return message_id(sender_of(message), message.body.to, message.body.key)


def _subject(address: str) -> str:
    return _WHERE + inbox_name(address)


def _checked(opened: Message[MessageBody] | Refused, receiver: str) -> Message[MessageBody]:
    if isinstance(opened, Refused):
        told = _REFUSED.get(opened, "these bytes are not a message")
        raise Malformed(told, reason=opened.value)
    if opened.body.to != receiver:
        raise Malformed("the message is for another inbox", reason=Refused.SUBJECT.value)
    return opened


_REFUSED: Final = {
    Refused.TOO_LARGE: f"a message has at most {MAX_MESSAGE_BYTES} bytes",
    Refused.MESH: "the message is for another mesh",
    Refused.SUBJECT: "the message is for another inbox",
    Refused.SIGNATURE: "the message is not signed by the key that it names",
    Refused.STALE: f"the message was signed more than {MAX_AGE_MS // 1000} s from the gate's time;"
    " is a clock wrong?",
}
