"""Signed messages between nodes, outside the log: one envelope for every purpose (spec §4).

    {"message":{"mesh":…,"subject":…,"signers":[…],"at_ms":…,"body":{…}},"sigs":["<128 hex>",…]}

Each signer signs the bytes of `message` as they are sent, under the payload type of its purpose.
So a message is valid for one purpose, on one subject of one mesh, and nowhere else. Bodies may have
floats, since checking encodes nothing again. A message is not an op, and no verdict depends on it.

Whatever bytes arrive, `MessageType.open` returns a message or the reason why not; it never raises.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from antiphon.core.record import signing
from antiphon.core.record.op import Count
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed, Rejected
from antiphon.read_back import read_back

MAX_SIGNERS: Final = 3
MAX_NAME: Final = 64
"""Characters of a signer's name; a did:key and an engine key have 56."""

B = TypeVar("B")
_Name = Annotated[str, Meta(max_length=MAX_NAME)]
_Signature = Annotated[str, Meta(pattern=r"^[0-9a-f]{128}\Z")]
Signer = tuple[str, Callable[[str, bytes], bytes]]
"""A key's name, and its function to sign a payload type and a payload."""
Upgrade = Callable[[dict[str, Any]], tuple[dict[str, Any], str]]
"""The fields of a body in the form of today, and a warning; no warning: nothing was to change."""
IsSigned = Callable[[str, str, bytes, bytes], bool]
"""Whether the key of this name signed this payload type and payload."""


class Refused(StrEnum):
    """Why a message is refused."""

    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    MESH = "mesh"
    SUBJECT = "subject"
    STALE = "stale"
    SIGNATURE = "signature"


class Message(
    Struct, Generic[B], frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The signed part."""

    mesh: str
    subject: str
    """Where it is published, relative to the mesh."""
    signers: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=MAX_SIGNERS)]
    at_ms: Count = 0
    """The author's clock time; 0 if nobody checks it."""
    body: B

    @property
    def author(self) -> str:
        """The first signer; usually the only one."""
        return self.signers[0]


class OlderMessage(Message[B], Generic[B], frozen=True, kw_only=True):
    """A message that was sent in a deprecated form; its body is in the form of today."""

    warning: str
    """What is deprecated, and what to send instead."""


class _Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    message: Raw
    sigs: Annotated[tuple[_Signature, ...], Meta(min_length=1, max_length=MAX_SIGNERS)]


_encode = msgspec.json.Encoder().encode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_message = msgspec.json.Decoder(Message[Raw]).decode


class MessageType(Generic[B]):
    """The messages of one purpose: their body type, size limit and age limit."""

    def __init__(
        self,
        purpose: str,
        body: type[B],
        *,
        max_bytes: int,
        max_age_ms: int | None = None,
        upgrade: Upgrade | None = None,
    ) -> None:
        """Without `max_age_ms` the time is not checked: something else must detect old messages.

        `upgrade` maps the fields of a body that has an older form.
        """
        self.payload_type = f"application/vnd.antiphon.{purpose}+json"
        self.max_bytes = max_bytes
        self.max_age_ms = max_age_ms
        self._decode_body = msgspec.json.Decoder(body).decode
        self._body = body
        self._upgrade = upgrade

    def sign(self, body: B, *signers: Signer, mesh: str, subject: str, at_ms: int = 0) -> bytes:
        """A message as it is sent.

        `Rejected` if it is larger than receivers accept, `Unreadable` if they would refuse it.
        """
        names = tuple(name for name, _ in signers)
        text = _encode(Message(mesh=mesh, subject=subject, signers=names, at_ms=at_ms, body=body))
        read_back(f"this message about {subject}", text, self._again, text)
        sigs = tuple(sign(self.payload_type, text).hex() for _, sign in signers)
        payload = _encode(_Envelope(Raw(text), sigs))
        if len(payload) > self.max_bytes:
            raise Rejected(
                f"a message of {len(payload)} bytes is too large; the limit is {self.max_bytes}",
                reason=Refused.TOO_LARGE,
            )
        return payload

    def open(
        self,
        payload: bytes,
        *,
        mesh: str,
        subject: str,
        now_ms: int = 0,
        checks: tuple[IsSigned, ...] = (signing.is_signed,),
    ) -> Message[B] | Refused:
        """The message in these bytes; `checks` has one function per required signer."""
        if len(payload) > self.max_bytes:
            return Refused.TOO_LARGE
        try:
            envelope = _decode_envelope(payload)
            message = _decode_message(envelope.message)
            if message.mesh != mesh:
                return Refused.MESH
            if message.subject != subject:
                return Refused.SUBJECT
            if self.max_age_ms is not None and abs(now_ms - message.at_ms) > self.max_age_ms:
                return Refused.STALE
            if not self._is_signed(envelope, message.signers, checks):
                return Refused.SIGNATURE
            return self._with_body(message)
        except (*UNREADABLE, Malformed):
            return Refused.MALFORMED

    def _again(self, text: bytes) -> bytes:
        """The bytes of what a receiver finds in these: the same, if it finds what was meant."""
        found = _decode_message(text)
        return _encode(msgspec.structs.replace(found, body=self._decode_body(found.body)))

    def _with_body(self, message: Message[Raw]) -> Message[B]:
        warning = ""
        try:
            body = self._decode_body(message.body)
        except msgspec.ValidationError:
            fields = msgspec.json.decode(message.body)
            if self._upgrade is None or not isinstance(fields, dict):
                raise
            fields, warning = self._upgrade(fields)
            if not warning:
                raise
            body = msgspec.convert(fields, self._body)
        opened = Message(
            mesh=message.mesh,
            subject=message.subject,
            signers=message.signers,
            at_ms=message.at_ms,
            body=body,
        )
        return (
            OlderMessage(**msgspec.structs.asdict(opened), warning=warning) if warning else opened
        )

    def _is_signed(
        self, envelope: _Envelope, signers: tuple[str, ...], checks: tuple[IsSigned, ...]
    ) -> bool:
        if not len(signers) == len(envelope.sigs) == len(checks):
            return False
        text = bytes(envelope.message)
        try:
            return all(
                check(signer, self.payload_type, text, bytes.fromhex(sig))
                for check, signer, sig in zip(checks, signers, envelope.sigs, strict=True)
            )
        except Malformed:  # a signer that is not a key
            return False
