"""What a node says about itself: in a heartbeat every few seconds, and when a roll call asks.

A heartbeat is a signed card on the node's own subject. A full node that knows all heartbeats
answers for the others with the heartbeats themselves: it can leave some out, and invent none.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Raw, Struct

from antiphon.core.bus.signed_message import MAX_NAME, MessageType
from antiphon.core.record.ids import DEFAULT_AGENT
from antiphon.core.record.op import AgentName, Count

MAX_CARD_BYTES: Final = 256 * 1024
MAX_HEARTBEAT_BYTES: Final = 16 * 1024
HEARTBEAT_AGE_MS: Final = 10_000
"""How far a heartbeat's time may be from the listener's clock."""
MAX_PAGE_BYTES: Final = 256 * 1024
MAX_ON_PAGE: Final = 512
MAX_PAGES: Final = 256
MAX_HASH: Final = 80
SHORTEST_BEAT_MS: Final = 6_000
"""From one heartbeat to the next while a node has something new to tell."""
LONGEST_BEAT_MS: Final = 60_000
"""The same where nothing has changed for minutes."""

HEARTBEATS_WANTED: Final = b"heartbeats"
"""What a full node that begins to listen asks in a roll call: everybody sends one soon."""

BeatPause = Annotated[int, Meta(ge=SHORTEST_BEAT_MS, le=LONGEST_BEAT_MS)]

Role = Literal["worker", "node", "agent"]


class PulseCard(Struct, frozen=True, kw_only=True):
    """What a node that may send beats counts by."""

    bpm: Count
    policy: Annotated[str, Meta(max_length=MAX_HASH)]
    """The hash of its tempo policy."""
    leads: bool
    """Whether it sends the beats now; otherwise it would, if nobody else did."""


class Card(Struct, frozen=True, kw_only=True):
    """A node's description of itself."""

    node: str
    alias: str
    role: Role
    version: str
    at_ms: int
    """The node's own clock."""
    agent: AgentName = DEFAULT_AGENT
    kinds: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    weight: int = 1
    slots: int = 0
    busy: int = 0
    done: int = 0
    applied: int = 0
    pulse: PulseCard | None = None
    knows_others: bool = False
    """Whether it has heard every heartbeat for long enough to answer for all."""
    is_away: bool = False
    """Whether this is its last word."""
    next_ms: BeatPause = SHORTEST_BEAT_MS
    """From this heartbeat to the next, at most."""


class KnownHeartbeat(Struct, frozen=True, array_like=True):
    """A heartbeat as it was received, and how long ago."""

    ago_ms: Count
    user: Annotated[str, Meta(max_length=MAX_NAME)]
    """The engine user on whose subject it was."""
    heartbeat: Raw


class RollPage(Struct, frozen=True, kw_only=True):
    """A part of the answer of one node for all."""

    page: Annotated[int, Meta(ge=1, le=MAX_PAGES)]
    pages: Annotated[int, Meta(ge=1, le=MAX_PAGES)]
    known: Annotated[tuple[KnownHeartbeat, ...], Meta(max_length=MAX_ON_PAGE)] = ()


CARDS: Final = MessageType("card", Card, max_bytes=MAX_CARD_BYTES)
HEARTBEATS: Final = MessageType(
    "heartbeat", Card, max_bytes=MAX_HEARTBEAT_BYTES, max_age_ms=HEARTBEAT_AGE_MS
)
OLD_HEARTBEATS: Final = MessageType("heartbeat", Card, max_bytes=MAX_HEARTBEAT_BYTES)
"""The same, read from somebody's answer: how old it is says whoever heard it."""
ROLL_PAGES: Final = MessageType("roll", RollPage, max_bytes=MAX_PAGE_BYTES)
