"""Tickets: how a new machine joins, once.

A ticket is a text that one person gives to another. It contains a secret, how to reach and
recognise the mesh, and an engine login that can only ask to join. The gate keeps the other half:
what the ticket grants, and the secret's digest. Redeeming renames that half, which only one of two
concurrent attempts can do, so a ticket works once and is worthless afterwards.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import ssl
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.ids import digest
from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt, Malformed, Rejected
from antiphon.files import PRIVATE_DIRECTORY, replace_file
from antiphon.read_back import read_back

if TYPE_CHECKING:
    from pathlib import Path

PREFIX: Final = "antiphon-ticket-"
MAX_TICKET_CHARS: Final = 16 * 1024
MAX_TICKET_BYTES: Final = 64 * 1024
SECRET_BYTES: Final = 32
ID_BYTES: Final = 8
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL
)
_USUAL: Final = (
    b'{"alg":"ed25519-nkey","typ":"JWT"}antiphon certificate authority'
    b'{"exp":17,"iat":17,"iss":"A","jti":"","name":"ticket","nats":{"allowed_connection_types":'
    b'["STANDARD"],"data":-1,"payload":-1,"pub":{"allow":["apb..gate.U.join"]},"sub":{"allow":'
    b'["_I.U.>","apb..inbox.U.>"]},"subs":16384,"type":"user","version":2},"sub":"U"}'
    b"nats://127.0.0.1:did:key:z6Mk"
)
"""What most tickets contain, so that it need not be in them: a dictionary of the compression."""
KEPT_MS: Final = 30 * 86_400_000
"""How long a used or expired ticket is remembered, so that the error can say which it is."""


class Ticket(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text that one person sends to another. Its holder may join, once."""

    mesh: str
    name: str
    engine: str
    ca: str
    owner: str
    """The owner's id, by which the joining machine recognises the mesh."""
    id: str
    secret: str
    user_seed: str
    jwt: str
    expires_s: int

    def __repr__(self) -> str:
        return f"Ticket({self.id}, mesh={self.mesh})"


class Invitation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gate's half of a ticket."""

    id: str
    secret_digest: str
    user: str
    terms: Terms
    expires_s: int


class _Packed(Struct, frozen=True, array_like=True):
    """A ticket without the text around its bytes: half as long to paste."""

    mesh: str
    name: str
    engine: str
    ca: list[bytes]
    owner: str
    id: bytes
    secret: bytes
    user_seed: str
    jwt: list[bytes]
    expires_s: int


def write_ticket(ticket: Ticket) -> str:
    """The ticket as one word that can be pasted; `Unreadable` if nobody could join with it."""
    packed = _Packed(
        mesh=ticket.mesh,
        name=ticket.name,
        engine=ticket.engine,
        ca=[ssl.PEM_cert_to_DER_cert(one) for one in _CERTIFICATE.findall(ticket.ca)],
        owner=ticket.owner,
        id=bytes.fromhex(ticket.id),
        secret=bytes.fromhex(ticket.secret),
        user_seed=ticket.user_seed,
        jwt=[_unquoted(part) for part in ticket.jwt.split(".")],
        expires_s=ticket.expires_s,
    )
    packer = zlib.compressobj(9, zdict=_USUAL)
    text = PREFIX + _quoted(packer.compress(msgspec.msgpack.encode(packed)) + packer.flush())
    read_back("the ticket", ticket, read_ticket, text)
    return text


def read_ticket(text: str) -> Ticket:
    """The ticket in a text, which may contain line breaks; `Malformed` if it is not a ticket."""
    word = "".join(text.split())
    if not word.startswith(PREFIX) or len(word) > MAX_TICKET_CHARS:
        raise _no_ticket("it does not begin with 'antiphon-ticket-'")
    try:
        unpacker = zlib.decompressobj(zdict=_USUAL)
        data = unpacker.decompress(_unquoted(word[len(PREFIX) :]), MAX_TICKET_BYTES)
        if not unpacker.eof:
            raise _no_ticket("a part is missing")
        packed = msgspec.msgpack.decode(data, type=_Packed)
    except (*UNREADABLE, binascii.Error, ValueError, zlib.error) as problem:
        raise _no_ticket("a part is missing or was changed") from problem
    return Ticket(
        mesh=packed.mesh,
        name=packed.name,
        engine=packed.engine,
        ca="".join(ssl.DER_cert_to_PEM_cert(one) for one in packed.ca),
        owner=packed.owner,
        id=packed.id.hex(),
        secret=packed.secret.hex(),
        user_seed=packed.user_seed,
        jwt=".".join(_quoted(part) for part in packed.jwt),
        expires_s=packed.expires_s,
    )


def _quoted(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _unquoted(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _no_ticket(why: str) -> Malformed:
    return Malformed(
        f"this is not a ticket: {why}",
        reason="ticket",
        hint="paste everything that 'antiphon invite' printed",
    )


class TicketRegistry:
    """The gate's half of all tickets, one small file each."""

    def __init__(self, directory: Path) -> None:
        self._open = directory / "open"
        self._used = directory / "used"

    def add(self, invitation: Invitation) -> None:
        """Store a ticket that is about to be issued."""
        replace_file(self._open / invitation.id, msgspec.json.encode(invitation))

    def find(self, ticket: str, secret: str, *, now_s: int) -> Invitation:
        """What a ticket grants; `Rejected` if it is not, or no longer, valid."""
        self._prune(now_s)
        if not _is_id(ticket):
            raise _refused("there is no such ticket")
        known = _read(self._open / ticket)
        if known is None:
            used = _read(self._used / ticket)
            if used is not None:
                raise _refused("this ticket was already used")
            raise _refused("there is no such ticket")
        if not hmac.compare_digest(known.secret_digest, digest(secret.encode())):
            raise _refused("there is no such ticket")
        if known.expires_s < now_s:
            raise _refused("this ticket has expired")
        return known

    def redeem(self, ticket: str, secret: str, *, now_s: int) -> Invitation:
        """Use up a ticket, return what it grants; `Rejected` if it is not, or no longer, valid."""
        known = self.find(ticket, secret, now_s=now_s)
        self._used.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        try:
            (self._open / ticket).rename(self._used / ticket)
        except FileNotFoundError:
            raise _refused("this ticket was already used") from None
        return known

    def _prune(self, now_s: int) -> None:
        for folder in (self._open, self._used):
            if not folder.is_dir():
                continue
            for path in folder.iterdir():
                with suppress(FileNotFoundError):  # just used up by another request
                    if path.stat().st_mtime * 1000 < now_s * 1000 - KEPT_MS:
                        path.unlink()


def _is_id(text: str) -> bool:
    return len(text) == 2 * ID_BYTES and all(letter in "0123456789abcdef" for letter in text)


def _read(path: Path) -> Invitation | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Invitation)
    except FileNotFoundError:
        return None
    except UNREADABLE as problem:
        raise Corrupt(f"{path} cannot be read: {problem}") from problem


def _refused(why: str) -> Rejected:
    return Rejected(why, reason="ticket", hint="ask for a new invitation")
