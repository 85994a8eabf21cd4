"""What nodes say to each other beside the log: one signed envelope for every purpose (spec §4).

    {"message":{"mesh":…,"subject":…,"signers":[…],"at_ms":…,"body":{…}},"sigs":["<128 hex>",…]}

Each signer signs the bytes of `message` as they are sent, under the payload type of its purpose,
so a message counts for one purpose, on one subject of one mesh, and nowhere else. Bodies may hold
floats: nothing is encoded again to be checked. A message is no op, and nothing on a log follows
from it.

Whatever bytes arrive, `MessageType.open` returns a message or says why not; it never raises.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from antiphon.core.record import signing
from antiphon.core.record.op import Count
from antiphon.errors import Malformed, Rejected

MAX_SIGNERS: Final = 3
MAX_NAME: Final = 64
"""Letters of a signer's name; a did:key has 56, and so has an engine key."""

B = TypeVar("B")
_Name = Annotated[str, Meta(max_length=MAX_NAME)]
Signer = tuple[str, Callable[[str, bytes], bytes]]
"""A key's name, and how it signs a payload type and a payload."""
IsSigned = Callable[[str, str, bytes, bytes], bool]
"""Whether the key of this name signed this payload type and payload."""


class Refused(StrEnum):
    """Why a message is not opened."""

    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    MESH = "mesh"
    SUBJECT = "subject"
    STALE = "stale"
    SIGNATURE = "signature"


class Message(
    Struct, Generic[B], frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What is signed."""

    mesh: str
    subject: str
    """Where it is published, relative to the mesh."""
    signers: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=MAX_SIGNERS)]
    at_ms: Count = 0
    """What the author's clock showed; 0 where nobody checks it."""
    body: B

    @property
    def author(self) -> str:
        """The first of its signers, and mostly the only one."""
        return self.signers[0]


class _Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    message: Raw
    sigs: Annotated[tuple[signing.Signature, ...], Meta(min_length=1, max_length=MAX_SIGNERS)]


_encode = msgspec.json.Encoder().encode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_message = msgspec.json.Decoder(Message[Raw]).decode


class MessageType(Generic[B]):
    """The messages of one purpose: their body, and what bounds them."""

    def __init__(
        self, purpose: str, body: type[B], *, max_bytes: int, max_age_ms: int | None = None
    ) -> None:
        """Without `max_age_ms` no clock is asked: something else must tell old messages apart."""
        self.payload_type = f"application/vnd.antiphon.{purpose}+json"
        self.max_bytes = max_bytes
        self.max_age_ms = max_age_ms
        self._decode_body = msgspec.json.Decoder(body).decode

    def sign(self, body: B, *signers: Signer, mesh: str, subject: str, at_ms: int = 0) -> bytes:
        """A message as it goes out; `Rejected` if it is larger than anybody would open."""
        names = tuple(name for name, _ in signers)
        text = _encode(Message(mesh=mesh, subject=subject, signers=names, at_ms=at_ms, body=body))
        sigs = tuple(sign(self.payload_type, text).hex() for _, sign in signers)
        payload = _encode(_Envelope(Raw(text), sigs))
        if len(payload) > self.max_bytes:
            raise Rejected(
                f"a message of {len(payload)} bytes is too large; up to {self.max_bytes}",
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
        """The message in these bytes; `checks` has one for each key that must have signed."""
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
            return Message(
                mesh=mesh,
                subject=subject,
                signers=message.signers,
                at_ms=message.at_ms,
                body=self._decode_body(message.body),
            )
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return Refused.MALFORMED

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
        except Malformed:  # a signer that is no key
            return False
