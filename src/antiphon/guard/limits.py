"""What a route or a service declares about itself, and who asks it."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """How much of one room askers may have. Routes that name the same room share it."""

    room: str
    of_party: int
    """Requests in hand, of one party."""
    in_all: int
    """Requests in hand, of everybody."""
    request_bytes: int
    seconds: float
    """How long one answer may take; of a stream, until it begins."""
    work_s: float = 1.0
    """How much processor time one answer may take; of a stream, one event."""


class Who(Struct, frozen=True, kw_only=True):
    """For whom a request counts."""

    party: str
    """The member that a key acts for; the address of somebody without a right."""
    is_stranger: bool = False
    """Whether nothing shows a right of theirs. All strangers together have a small part."""
    acts: object = None
    """For whom this process may write while it answers (`runtime.log.acting`); None: for nobody."""
