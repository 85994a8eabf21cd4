"""The register of one message: where it stands, and each step of its life (spec §10).

    put ──▶ waiting ──lease──▶ handed out ──ack──▶ done
               ▲                   │
               └── nack, lease end ┘        too many attempts, or its time is over: dead

A register is changed by compare-and-set only, so of two steps from one version one is taken. Its
note says where it stands; the message itself does not change. A message that is done stays for
`DONE_MS`, without its content, so that a repeated put is recognised.

A lease ends at its time, and when the reader's key is opened again: only one process holds a key,
so the session that took the lease is over then. Sessions are ordered by when they were opened.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.messages.envelope import MAX_AGE_MS
from antiphon.core.policy.backoff import backoff_ms
from antiphon.decoding import UNREADABLE

DONE_MS: Final = 5 * 60_000
"""Longer than twice what `MAX_AGE_MS` admits: nobody can have an ended message stored again."""
RETENTION_MS: Final = 30 * 24 * 3600_000
"""The end of a message that has none of its own, and of every dead letter's predecessor."""
DEAD_MS: Final = 7 * 24 * 3600_000
"""How long dead letters can be looked at."""
LEASE_MS: Final = 120_000
MAX_LEASE_MS: Final = 3600_000
MAX_ATTEMPTS: Final = 16
"""How often a message is handed out before it is dead."""
MAX_DELAY_MS: Final = 24 * 3600_000
MAX_ERROR: Final = 200
_DIGITS: Final = 16
"""Of a session's time; what is longer is no session."""

EXPIRED: Final = "expired"
ATTEMPTS: Final = "attempts"

if DONE_MS <= 2 * MAX_AGE_MS:
    raise ValueError("a message that is done must be remembered longer than it can be sent again")


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message stands."""

    sender: str
    party: str
    """For whom the sender acts: shares of an inbox are counted by it."""
    thread: str = ""
    priority: int = 0
    size: int = 0
    put_ms: int = 0
    expires_ms: int = 0
    first: int = 0
    """The revision at which it was put; 0 in that very version."""
    attempts: int = 0
    """How often it was handed out."""
    lease_ms: int = 0
    """When its lease ends; 0 if it has none."""
    session: str = ""
    """The session that holds the lease."""
    not_before_ms: int = 0
    error: str = ""
    """What the reader said when it gave the message back."""
    done: bool = False
    dead: str = ""
    """Why it is a dead letter."""
    dead_ms: int = 0
    """Since when it is one."""


REMOVED: Final = Note(sender="", party="", done=True)
"""The note of a dead letter that made room for another."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode


def write_note(note: Note) -> bytes:
    """A note as bytes of one line."""
    return _encode(note)


def read_note(data: bytes) -> Note | None:
    """The note in these bytes; None if there is none."""
    try:
        return _decode(data)
    except UNREADABLE:
        return None


def session_name(opened_ms: int, token: str) -> str:
    """A reader's session. Names sort by when they were opened."""
    return f"{opened_ms:013d}.{token}"


def free_ms(note: Note, session: str) -> int:
    """From when on a message can be handed to this session."""
    is_over = is_newer(session, note.session)
    return max(0 if is_over else note.lease_ms, note.not_before_ms)


def death_of(note: Note, now_ms: int) -> str:
    """Why a message is dead now; empty if it is not.

    One that is being handled is not dead before its lease ends.
    """
    if note.lease_ms > now_ms:
        return ""
    if note.expires_ms <= now_ms:
        return EXPIRED
    return ATTEMPTS if note.attempts >= MAX_ATTEMPTS else ""


def leased(note: Note, revision: int, *, session: str, now_ms: int, lease_ms: int) -> Note:
    """The message is handed out."""
    return replace(
        note,
        first=order_of(note, revision),
        attempts=note.attempts + 1,
        lease_ms=now_ms + lease_ms,
        session=session,
        not_before_ms=0,
    )


def extended(note: Note, *, now_ms: int, lease_ms: int) -> Note:
    """Its reader needs longer."""
    return replace(note, lease_ms=now_ms + lease_ms)


def given_back(
    note: Note, *, now_ms: int, delay_ms: int | None, error: str = "", chance: float = 0.0
) -> Note:
    """The reader did not handle it. Without a delay, the pauses double."""
    if delay_ms is None:
        attempt = max(note.attempts - 1, 0)
        delay_ms = backoff_ms(attempt, chance=chance)
    return replace(
        note,
        lease_ms=0,
        session="",
        not_before_ms=now_ms + min(delay_ms, MAX_DELAY_MS),
        error=error[:MAX_ERROR],
    )


def untaken(note: Note) -> Note:
    """It was leased and then not handed out: as if it had not been."""
    return replace(note, lease_ms=0, session="", attempts=max(note.attempts - 1, 0))


def finished(note: Note, revision: int) -> Note:
    """The message is done; what is left is remembered for `DONE_MS`."""
    return replace(
        note, first=order_of(note, revision), size=0, lease_ms=0, session="", error="", done=True
    )


def buried(note: Note, reason: str, now_ms: int) -> Note:
    """The same as a dead letter."""
    return replace(note, lease_ms=0, session="", dead=reason, dead_ms=now_ms)


def order_of(note: Note, revision: int) -> int:
    """Its place among the messages of its inbox: when it was put."""
    return note.first or revision


def expiry_ms(ttl_ms: int, now_ms: int) -> int:
    """When a message that is put now is over."""
    return now_ms + min(ttl_ms or RETENTION_MS, RETENTION_MS)


def is_newer(session: str, other: str) -> bool:
    """Whether a session was opened after another one."""
    return _opened(session) > _opened(other)


def _opened(session: str) -> int:
    head = session.partition(".")[0]
    return int(head) if head.isascii() and head.isdecimal() and len(head) <= _DIGITS else 0
