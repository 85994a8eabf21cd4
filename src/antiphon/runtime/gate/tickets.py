"""Tickets: how a machine that nobody knows yet gets in, once.

A ticket is a text that one person hands to another. It holds a secret, how to reach and recognise
the mesh, and an engine login that can do nothing but ask to join. The gate keeps the other half:
what the ticket grants, and the secret's digest. Redeeming moves that half aside in one step that
only one of two rivals can make, so a ticket works once, and is worthless afterwards.
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
"""How long a used or expired ticket is remembered, so that it can be told from an unknown one."""


class Ticket(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What travels from person to person. Whoever holds it may join in its place, once."""

    mesh: str
    name: str
    engine: str
    ca: str
    owner: str
    """The owner's id: with it the joining machine knows which mesh it agreed to."""
    id: str
    secret: str
    user_seed: str
    jwt: str
    expires_s: int

    def __repr__(self) -> str:
        return f"Ticket({self.id}, mesh={self.mesh})"


class Invitation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the gate remembers of a ticket."""

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
    """The ticket in a text, which may have been wrapped on its way; `Malformed` if it is none."""
    word = "".join(text.split())
    if not word.startswith(PREFIX) or len(word) > MAX_TICKET_CHARS:
        raise _no_ticket("it does not begin as one does")
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
        hint="paste the whole of what 'antiphon invite' printed",
    )


class TicketRegistry:
    """The gate's half of all tickets, one small file each."""

    def __init__(self, directory: Path) -> None:
        self._open = directory / "open"
        self._used = directory / "used"

    def add(self, invitation: Invitation) -> None:
        """Remember a ticket that is about to be handed out."""
        replace_file(self._open / invitation.id, msgspec.json.encode(invitation))

    def find(self, ticket: str, secret: str, *, now_s: int) -> Invitation:
        """What a ticket grants; `Rejected` if it is not good (any more)."""
        self._prune(now_s)
        if not _is_id(ticket):
            raise _refused("there is no such ticket")
        known = _read(self._open / ticket)
        if known is None:
            used = _read(self._used / ticket)
            if used is not None:
                raise _refused("this ticket was used already")
            raise _refused("there is no such ticket")
        if not hmac.compare_digest(known.secret_digest, digest(secret.encode())):
            raise _refused("there is no such ticket")
        if known.expires_s < now_s:
            raise _refused("this ticket has expired")
        return known

    def redeem(self, ticket: str, secret: str, *, now_s: int) -> Invitation:
        """Use a ticket up and say what it grants; `Rejected` if it is not good (any more)."""
        known = self.find(ticket, secret, now_s=now_s)
        self._used.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        try:
            (self._open / ticket).rename(self._used / ticket)
        except FileNotFoundError:
            raise _refused("this ticket was used already") from None
        return known

    def _prune(self, now_s: int) -> None:
        for folder in (self._open, self._used):
            if not folder.is_dir():
                continue
            for path in folder.iterdir():
                with suppress(FileNotFoundError):  # another caller's ticket, just used up
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
    return Rejected(why, reason="ticket", hint="ask whoever invited you for a new one")
