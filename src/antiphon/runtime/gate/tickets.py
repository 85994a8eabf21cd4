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
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.ids import digest
from antiphon.errors import Corrupt, Malformed, Rejected
from antiphon.files import PRIVATE_DIRECTORY, replace_file

if TYPE_CHECKING:
    from pathlib import Path

PREFIX: Final = "antiphon-ticket-"
MAX_TICKET_CHARS: Final = 16 * 1024
MAX_TICKET_BYTES: Final = 64 * 1024
SECRET_BYTES: Final = 32
ID_BYTES: Final = 8
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


def write_ticket(ticket: Ticket) -> str:
    """The ticket as one word that can be pasted."""
    packed = zlib.compress(msgspec.json.encode(ticket), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_ticket(text: str) -> Ticket:
    """The ticket in a text, which may contain line breaks; `Malformed` if it is not a ticket."""
    word = "".join(text.split())
    if not word.startswith(PREFIX) or len(word) > MAX_TICKET_CHARS:
        raise _no_ticket("it does not begin with 'antiphon-ticket-'")
    body = word[len(PREFIX) :]
    try:
        packed = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, MAX_TICKET_BYTES)
        if not unpacker.eof:
            raise _no_ticket("a part is missing")
        return msgspec.json.decode(data, type=Ticket)
    except (binascii.Error, ValueError, zlib.error, msgspec.MsgspecError) as problem:
        raise _no_ticket("a part is missing or was changed") from problem


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
    except msgspec.MsgspecError as problem:
        raise Corrupt(f"{path} cannot be read: {problem}") from problem


def _refused(why: str) -> Rejected:
    return Rejected(why, reason="ticket", hint="ask for a new invitation")
