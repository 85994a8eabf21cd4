"""Tickets: how a new machine joins, once.

A ticket is a word that one person gives to another: where the mesh's server is, how to recognise
it, and a secret. With the secret its holder makes the key of an engine login that can only ask to
join. Everything else is checked by what is in the ticket: the server by the digest of its
certificate authority (`pin`), the mesh's first record by the mesh's id.

The gate keeps the other half: what the ticket grants, and the secret's digest. Whoever redeems it
first has their keys written beside it, in a file that only one of two concurrent attempts can
create. So a ticket lets one machine in. The same keys may ask again with it, for the case that the
gate or the network failed in between; what they get is the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.ids import digest
from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt, Malformed, Rejected
from antiphon.files import create_file, replace_file
from antiphon.read_back import read_back

if TYPE_CHECKING:
    from pathlib import Path

PREFIX: Final = "antiphon-ticket-"
USUAL_CHARS: Final = 300
"""A ticket has at most so many, if `host:port` has at most 49."""
MAX_TICKET_CHARS: Final = 1024
SECRET_BYTES: Final = 16
"""128 random bits, which can only be tried out at the gate."""
_FIXED: Final = struct.Struct(">10s16s32s32s64sII")
"""Mesh, secret, pin, account, signature, and when the login was issued and ends."""
_CHECK_BYTES: Final = 2
_ID_CHARS: Final = 16
_SCHEME: Final = "nats://"
KEPT_MS: Final = 30 * 86_400_000
"""How long a used or expired ticket is remembered, so that the error can say which it is."""
PRUNE_EVERY_S: Final = 3600

Keys = tuple[str, str, str]
"""Of a machine that joins: its id, its engine user and its refresh key."""


class Ticket(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one person sends to another. Its holder may join, once."""

    mesh: str
    """The mesh's id: the digest of its first record."""
    engine: str
    pin: str
    """SHA-256 of the certificate of the mesh's own authority, in hexadecimal."""
    secret: str
    account: str
    """The public key, in hexadecimal, of the engine's account that signed the ticket's login."""
    signature: str
    """The account's, in hexadecimal: the rest of that login follows from the ticket."""
    issued_s: int
    expires_s: int

    @property
    def id(self) -> str:
        """The name of the gate's half. The secret cannot be found from it."""
        return _derived("id", self.secret).hex()[:_ID_CHARS]

    @property
    def login_key(self) -> bytes:
        """The private key of the ticket's engine user."""
        return _derived("login", self.secret)

    def __repr__(self) -> str:
        return f"Ticket({self.id}, mesh={self.mesh})"


def _derived(what: str, secret: str) -> bytes:
    return hmac.digest(bytes.fromhex(secret), f"antiphon ticket {what}".encode(), "sha256")


def pin_of(certificate: bytes) -> str:
    """How a ticket names an authority's certificate, given as DER."""
    return hashlib.sha256(certificate).hexdigest()


class Invitation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gate's half of a ticket."""

    id: str
    secret_digest: str
    user: str
    terms: Terms
    expires_s: int
    used_by: Keys | None = None
    """The keys of the machine that redeemed it; then `terms` has the alias that it was given."""

    def nonce(self, size: int) -> bytes:
        """The nonce of its delegations: the same each time, and another ticket's is another."""
        return hashlib.sha256(f"{self.id} {self.secret_digest}".encode()).digest()[:size]


def write_ticket(ticket: Ticket) -> str:
    """The ticket as one word that can be pasted; `Unreadable` if nobody could join with it."""
    packed = _FIXED.pack(
        base64.b32decode(ticket.mesh.upper()),
        *map(bytes.fromhex, (ticket.secret, ticket.pin, ticket.account, ticket.signature)),
        ticket.issued_s,
        ticket.expires_s,
    )
    data = packed + ticket.engine.removeprefix(_SCHEME).encode()
    text = PREFIX + _quoted(data + _check(data))
    read_back("the ticket", ticket, read_ticket, text)
    return text


def read_ticket(text: str) -> Ticket:
    """The ticket in a text, which may contain line breaks; `Malformed` if it is not a ticket."""
    word = "".join(text.split())
    if not word.startswith(PREFIX) or len(word) > MAX_TICKET_CHARS:
        raise _no_ticket("it does not begin with 'antiphon-ticket-'")
    try:
        whole = base64.b64decode(_padded(word[len(PREFIX) :]), altchars=b"-_", validate=True)
        data, check = whole[:-_CHECK_BYTES], whole[-_CHECK_BYTES:]
        if check != _check(data):
            raise _no_ticket("a part is missing or was changed")
        mesh, *keys, issued_s, expires_s = _FIXED.unpack_from(data)
        engine = data[_FIXED.size :].decode()
    except (binascii.Error, ValueError, struct.error) as problem:
        raise _no_ticket("a part is missing or was changed") from problem
    secret, pin, account, signature = (one.hex() for one in keys)
    return Ticket(
        mesh=base64.b32encode(mesh).decode().lower(),
        engine=engine if "://" in engine else _SCHEME + engine,
        pin=pin,
        secret=secret,
        account=account,
        signature=signature,
        issued_s=issued_s,
        expires_s=expires_s,
    )


def _check(data: bytes) -> bytes:
    return binascii.crc_hqx(data, 0).to_bytes(_CHECK_BYTES, "little")


def _quoted(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)


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
        self._pruned_s = 0

    def add(self, invitation: Invitation) -> None:
        """Store a ticket that is about to be issued."""
        replace_file(self._open / invitation.id, msgspec.json.encode(invitation))

    def find(self, ticket: str, secret: str, keys: Keys, *, now_s: int) -> Invitation:
        """What a ticket grants; `Rejected` if these keys cannot, or no longer, redeem it."""
        self._prune(now_s)
        if not _is_id(ticket):
            raise _refused("there is no such ticket")
        known = _read(self._used / ticket) or _read(self._open / ticket)
        if known is None or not hmac.compare_digest(known.secret_digest, digest(secret.encode())):
            raise _refused("there is no such ticket")
        if known.used_by not in (None, keys):
            raise _refused("this ticket was already used")
        if known.expires_s < now_s:
            raise _refused("this ticket has expired")
        return known

    def redeem(self, found: Invitation, keys: Keys, alias: str) -> Invitation:
        """Use up a ticket for these keys, under this alias; `Rejected` if others were faster."""
        if found.used_by is not None:
            return found
        terms = msgspec.structs.replace(found.terms, alias=alias)
        used = msgspec.structs.replace(found, used_by=keys, terms=terms)
        try:
            create_file(self._used / used.id, msgspec.json.encode(used))
        except FileExistsError:
            raise _refused("this ticket was already used") from None
        (self._open / used.id).unlink(missing_ok=True)
        return used

    def _prune(self, now_s: int) -> None:
        """Forget old tickets, now and then: there may be many."""
        if now_s < self._pruned_s + PRUNE_EVERY_S:
            return
        self._pruned_s = now_s
        for folder in (self._open, self._used):
            if not folder.is_dir():
                continue
            for path in folder.iterdir():
                with suppress(FileNotFoundError):  # just used up by another request
                    if path.stat().st_mtime * 1000 < now_s * 1000 - KEPT_MS:
                        path.unlink()


def _is_id(text: str) -> bool:
    return len(text) == _ID_CHARS and all(letter in "0123456789abcdef" for letter in text)


def _read(path: Path) -> Invitation | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Invitation)
    except FileNotFoundError:
        return None
    except UNREADABLE as problem:
        raise Corrupt(f"{path} cannot be read: {problem}") from problem


def _refused(why: str) -> Rejected:
    return Rejected(why, reason="ticket", hint="ask for a new invitation")
