"""Signed HTTP requests: who asks is proved by a key, not by a token (docs/reference/wire.md).

    Authorization: Antiphon <base64url of the signed message>

The message is the envelope that all messages outside the log have. Its subject is the method and
the target as they are sent (`GET /v1/offers?kind=render`), its body a nonce and the digest of the
request's body. So a request is valid for one method, one target, one body and one mesh, for half a
minute, and once: a node remembers what it has answered until nobody can send it again.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct

from antiphon.core.bus.signed_message import Message, MessageType, Refused

if TYPE_CHECKING:
    from antiphon.core.bus.signed_message import Signer

SCHEME: Final = "Antiphon"
MAX_BYTES: Final = 4096
MAX_AGE_MS: Final = 30_000
"""Between the clocks of whoever asks and of the node."""
SEEN_EACH: Final = 4_096
SEEN_IN_ALL: Final = 65_536
"""Requests that are remembered, of one party and of all."""

Noted = Literal["new", "seen", "full"]


class RequestProof(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request is signed with, beside its method and target."""

    nonce: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{16,64}\Z")]
    """Chosen by chance; no two requests of one key have the same."""
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """Of the body; of no bytes, if there is none."""


REQUESTS: Final = MessageType(
    "http-request", RequestProof, max_bytes=MAX_BYTES, max_age_ms=MAX_AGE_MS
)


class Asked(NamedTuple):
    """A request as it is sent."""

    method: str
    target: str
    """Path and query, as in its first line."""
    body: bytes = b""

    @property
    def subject(self) -> str:
        """What it is signed for."""
        return f"{self.method} {self.target}"

    @property
    def sha256(self) -> str:
        """Of its body."""
        return sha256(self.body).hexdigest()


def sign_request(asked: Asked, signer: Signer, *, mesh: str, at_ms: int, nonce: str) -> str:
    """The value of the header `Authorization`."""
    proof = RequestProof(nonce=nonce, sha256=asked.sha256)
    raw = REQUESTS.sign(proof, signer, mesh=mesh, subject=asked.subject, at_ms=at_ms)
    return f"{SCHEME} {urlsafe_b64encode(raw).rstrip(b'=').decode()}"


def open_request(
    asked: Asked, header: str, *, mesh: str, now_ms: int
) -> Message[RequestProof] | Refused:
    """What whoever signed this header asks, or why it is refused; never raises."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != SCHEME.lower() or len(text) > 2 * MAX_BYTES:
        return Refused.MALFORMED
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return Refused.MALFORMED
    found = REQUESTS.open(raw, mesh=mesh, subject=asked.subject, now_ms=now_ms)
    if isinstance(found, Message) and found.body.sha256 != asked.sha256:
        return Refused.SIGNATURE
    return found


class SeenRequests:
    """The nonces of requests that could be sent again, in a bounded memory."""

    def __init__(self, *, each: int = SEEN_EACH, in_all: int = SEEN_IN_ALL) -> None:
        self._each = each
        self._in_all = in_all
        self._until: dict[tuple[str, str], tuple[int, str]] = {}
        """By key and nonce: until when, and whose. In the order in which they came."""
        self._of_party: Counter[str] = Counter()

    def note(self, party: str, key: str, nonce: str, now_ms: int) -> Noted:
        """Remember a request, until its time would be refused whatever it says."""
        self._forget(now_ms)
        if (key, nonce) in self._until:
            return "seen"
        if self._of_party[party] >= self._each or len(self._until) >= self._in_all:
            return "full"
        self._until[key, nonce] = (now_ms + 2 * MAX_AGE_MS, party)
        self._of_party[party] += 1
        return "new"

    def _forget(self, now_ms: int) -> None:
        while self._until:
            first = next(iter(self._until))
            until_ms, party = self._until[first]
            if until_ms >= now_ms:
                return
            del self._until[first]
            self._of_party[party] -= 1
            if not self._of_party[party]:
                del self._of_party[party]
