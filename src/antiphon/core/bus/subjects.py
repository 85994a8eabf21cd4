"""The subjects of the bus: what is said where, by whom, and who hears it (spec §3, §6).

A mesh's bus lives under `apb.<mesh>`, beside its log; subjects here are relative to that. Every
one of them stands in `BUS`, and what members may publish and hear follows from it. Who has all
rights in the engine says and hears everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from antiphon.core.authority import job_rights

ROOT: Final = "apb"


class Party(Enum):
    """Who may publish on a subject, or listen there."""

    MEMBERS = auto()
    READERS = auto()
    """Members, for the kinds that they read."""
    WORKERS = auto()
    """Members, for the kinds that they work on; where no kind is named, for any."""
    USER = auto()
    """The engine user that the subject names: a member, ticket, door or the gate itself."""
    TICKET = auto()
    """That user, where it came with a ticket."""
    DOOR = auto()
    """That user, where it is a member's key for asking for logins."""
    GATE = auto()


HELD_FOR: Final[Mapping[Party, tuple[str, ...]]] = MappingProxyType(
    {Party.READERS: job_rights.READ_BY, Party.WORKERS: job_rights.WORKED_BY}
)
"""The commands of which one makes a member such a party, for the kinds that it holds it for."""


class BusSubject(Struct, frozen=True):
    """One subject, with `{…}` for what differs; parts that nobody is held to come last."""

    pattern: str
    publishers: tuple[Party, ...]
    listeners: tuple[Party, ...]
    via_gate: bool = False
    """Whether members ask the gate to publish for them, at a rate that all can bear."""

    def at(self, **parts: object) -> str:
        """The subject with these parts, relative to the mesh."""
        return self.pattern.format(**parts)


ROLL: Final = BusSubject("roll", (Party.MEMBERS,), (Party.MEMBERS,), via_gate=True)
"""Asks who is there."""
CARE: Final = BusSubject("care", (Party.WORKERS,), (Party.WORKERS,))
"""Where the full nodes talk that look after a mesh."""
WORK: Final = BusSubject("work.{kind}", (Party.WORKERS,), (Party.WORKERS,))
"""Where the workers of a kind talk."""
LIVE: Final = BusSubject("live.{kind}.{job}", (Party.WORKERS,), (Party.READERS,))
"""What a job says while it runs."""
INBOX: Final = BusSubject("inbox.{user}.{place}", (Party.MEMBERS, Party.GATE), (Party.USER,))
"""Where a user awaits answers."""
JOIN: Final = BusSubject("gate.{user}.join", (Party.TICKET,), (Party.GATE,))
LOGIN: Final = BusSubject("gate.{user}.login", (Party.DOOR,), (Party.GATE,))

BUS: Final = (ROLL, CARE, WORK, LIVE, INBOX, JOIN, LOGIN)
