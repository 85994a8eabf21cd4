"""The subjects of the bus: what is published where, by whom, and who may listen (spec §3, §6).

A mesh's bus is under `apb.<mesh>`, separate from its log; subjects here are relative to that. `BUS`
lists all of them, and server permissions of members follow from it. A user with all permissions on
the server can publish and hear everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from antiphon.core.authority import job_rights, lock_rights

ROOT: Final = "apb"


class Party(Enum):
    """Who may publish on a subject, or listen there."""

    MEMBERS = auto()
    READERS = auto()
    """Members, for the kinds that they read."""
    WORKERS = auto()
    """Members, for the kinds that they work on; if the subject names no kind, for any."""
    TEMPO = auto()
    """Members that may set the pulse."""
    LOCKERS = auto()
    """Members, for the scopes in which they take locks."""
    USER = auto()
    """The engine user that the subject names: a member, a ticket, a refresh key or the gate."""
    SELF = auto()
    """The engine user that the subject names, if it is a member."""
    TICKET = auto()
    """That user, if it uses a ticket."""
    REFRESH_KEY = auto()
    """That user, if its login can only ask the gate for a new login."""
    GATE = auto()


HELD_FOR: Final[Mapping[Party, tuple[str, ...]]] = MappingProxyType(
    {
        Party.READERS: job_rights.READ_BY,
        Party.WORKERS: job_rights.WORKED_BY,
        Party.TEMPO: job_rights.TEMPO_BY,
        Party.LOCKERS: (lock_rights.TAKE,),
    }
)
"""A member with one of these commands for a kind is such a party for that kind."""


class BusSubject(Struct, frozen=True):
    """One subject, with `{…}` for variable parts; parts that permissions do not check come last."""

    pattern: str
    publishers: tuple[Party, ...]
    listeners: tuple[Party, ...]
    via_gate: bool = False
    """Whether members ask the gate to publish for them, at a limited rate."""

    def at(self, **parts: object) -> str:
        """The subject with these parts, relative to the mesh."""
        return self.pattern.format(**parts)


ROLL: Final = BusSubject("roll", (Party.MEMBERS,), (Party.MEMBERS,), via_gate=True)
"""Asks who is online."""
ENTRY: Final = BusSubject("entry", (Party.MEMBERS,), (), via_gate=True)
"""Asks full nodes where a lane can be entered."""
ROOTS: Final = BusSubject("roots", (Party.MEMBERS,), (Party.MEMBERS,), via_gate=True)
"""Asks a full node for roots of its tree, to compare histories. The answer is signed."""
HEARTBEAT: Final = BusSubject("heartbeat.{user}", (Party.SELF,), (Party.MEMBERS,))
"""What a node says about itself every few seconds. Nobody can crowd out another's."""
WORK: Final = BusSubject("work.{kind}", (Party.WORKERS,), (Party.WORKERS,))
"""Messages between the workers of a kind."""
LIVE: Final = BusSubject("live.{kind}.{job}", (Party.WORKERS,), (Party.READERS,))
"""Progress of a job while it runs."""
BEAT: Final = BusSubject("beat", (Party.TEMPO,), (Party.MEMBERS,))
"""The pulse."""
STATUS: Final = BusSubject("status.{kind}", (Party.WORKERS,), (Party.READERS,))
"""What workers say about their jobs of a kind, on every beat."""
MESH_STATUS: Final = BusSubject("meshstatus", (Party.TEMPO,), (Party.MEMBERS,))
"""What nodes that may lead the pulse say about the mesh itself: elections, and that they joined.
Tasks there belong to the project `MESH`."""
MESH: Final = "mesh"
PROMISE: Final = BusSubject("promise.{kind}.{thread}", (Party.WORKERS,), (Party.READERS,))
"""A thread: a request for help with a job of a kind, promises and answers."""
BAR_REPORT: Final = BusSubject("bar", (Party.TEMPO,), (Party.TEMPO,))
"""What happened in each bar."""
ATTENTION: Final = BusSubject("attention", (Party.TEMPO,), (Party.TEMPO,))
"""What the coordinator's services have set aside. Signed."""
MESSAGE_GATE: Final = BusSubject("messagegate", (Party.GATE,), (Party.MEMBERS,))
"""A gate says that it serves messages from now on: whoever waits for one asks again."""
ADDRESS: Final = BusSubject("address", (Party.GATE,), (Party.MEMBERS,))
"""The owner says, through the gate, where the mesh will be reached. Signed."""
LOCK_WAIT: Final = BusSubject("await.{kind}", (Party.LOCKERS,), (Party.LOCKERS,))
"""Who waits for locks of a scope, and since when."""
INBOX: Final = BusSubject("inbox.{user}.{place}", (Party.MEMBERS, Party.GATE), (Party.USER,))
"""Replies to a user."""
JOIN: Final = BusSubject("gate.{user}.join", (Party.TICKET,), (Party.GATE,))
LOGIN: Final = BusSubject("gate.{user}.login", (Party.REFRESH_KEY,), (Party.GATE,))

BUS: Final = (
    ROLL,
    ENTRY,
    ROOTS,
    HEARTBEAT,
    WORK,
    LIVE,
    BEAT,
    STATUS,
    MESH_STATUS,
    PROMISE,
    BAR_REPORT,
    ATTENTION,
    MESSAGE_GATE,
    ADDRESS,
    LOCK_WAIT,
    INBOX,
    JOIN,
    LOGIN,
)
