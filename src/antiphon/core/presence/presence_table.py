"""The nodes of a mesh by their heartbeats: who was heard when, and who has missed how many.

Levels follow from the heartbeats that a node missed: 1 warn, 3 alert, 5 critical, 10 dead. A node
that says goodbye has left. One whose authority ended (revoked, expired, quarantined) is over at
once, whatever it goes on saying. Only changes of a level are worth keeping.

A node that died is known for a day, so that somebody notices; one that left is not missed. Whoever
begins to listen may know nodes from before (`remember`): they count as dead until they are heard.

Bounded in the nodes it knows: those that are gone make room first, and a node beyond the bound is
not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

from antiphon.core.policy.selection import turn
from antiphon.core.presence.cards import SHORTEST_BEAT_MS, Card

GRACE_MS: Final = 1_000
"""A heartbeat that is late by less is not missed."""
STALE_MS: Final = 60_000
"""Nodes that are overdue for longer are not live, unless another threshold is asked for."""
MAX_NODES: Final = 10_000
GONE_KEPT_MS: Final = 600_000
DEAD_KEPT_MS: Final = 24 * 3_600_000
"""How long a node is listed that died: it may be missed."""


class Level(StrEnum):
    """What a node's silence means."""

    ALIVE = "alive"
    WARN = "warn"
    ALERT = "alert"
    CRITICAL = "critical"
    DEAD = "dead"
    LEFT = "left"
    """It said goodbye."""
    ENDED = "ended"
    """Its authority ended."""


GONE: Final = frozenset({Level.DEAD, Level.LEFT, Level.ENDED})
_BY_MISSES: Final = (
    (10, Level.DEAD),
    (5, Level.CRITICAL),
    (3, Level.ALERT),
    (1, Level.WARN),
)


def overdue_ms(silent_ms: int, next_ms: int) -> int:
    """For how long a node is silent beyond what its last heartbeat said, as if that were short."""
    return silent_ms - (next_ms - SHORTEST_BEAT_MS)


def misses(silent_ms: int, next_ms: int = SHORTEST_BEAT_MS) -> int:
    """How many heartbeats a node has missed that was silent for so long.

    Once the next one is late by its own word, each further `SHORTEST_BEAT_MS` counts as one.
    """
    late_ms = overdue_ms(silent_ms, next_ms)
    return 0 if late_ms < SHORTEST_BEAT_MS + GRACE_MS else late_ms // SHORTEST_BEAT_MS


def level_of(missed: int) -> Level:
    """What so many missed heartbeats mean."""
    return next((level for most, level in _BY_MISSES if missed >= most), Level.ALIVE)


class Heard(Struct, frozen=True):
    """A heartbeat as it was received."""

    user: str
    """The engine user on whose subject it was."""
    heartbeat: bytes
    at_ms: int
    """By the node's own clock; rises from heartbeat to heartbeat."""
    heard_ms: int
    """By the listener's, which no adjustment moves."""


class KnownNode(Struct):
    """A node, its last heartbeat and what its silence means."""

    card: Card
    last: Heard
    level: Level
    is_from_before: bool = False
    """Whether it was alive when whoever listens last stopped, and was not heard since."""


class PresenceChange(Struct, frozen=True, kw_only=True):
    """A node came, fell silent, came back or went."""

    node: str
    alias: str
    agent: str
    role: str
    was: str
    """Empty: it was not known."""
    level: str
    misses: int = 0


class PresenceTable:
    """The nodes as one listener knows them."""

    def __init__(self, *, most: int = MAX_NODES) -> None:
        self._most = most
        self._known: dict[str, KnownNode] = {}

    def __len__(self) -> int:
        return len(self._known)

    def hear(self, card: Card, heard: Heard) -> PresenceChange | None:
        """Take in a heartbeat; the change, if it is one."""
        known = self._known.get(card.node)
        if known is None and (card.is_away or not self._has_room()):
            return None
        if known is not None and heard.at_ms <= known.last.at_ms:
            return None  # a replay
        level = Level.LEFT if card.is_away else Level.ALIVE
        self._known[card.node] = KnownNode(card, heard, level)
        was = "" if known is None or known.is_from_before else known.level
        return _change(self._known[card.node], was) if was != level else None

    def remember(self, card: Card, last: Heard, *, is_from_before: bool) -> None:
        """A node that was known when somebody listened before: it is dead until it is heard."""
        if len(self._known) < self._most:
            self._known[card.node] = KnownNode(card, last, Level.DEAD, is_from_before)

    def last_of(self, did: str) -> Heard | None:
        """The last heartbeat of a node."""
        known = self._known.get(did)
        return None if known is None else known.last

    def dead(self) -> list[KnownNode]:
        """Those that died within the last day, the newest first."""
        found = [
            one
            for one in self._known.values()
            if one.level is Level.DEAD and not one.is_from_before
        ]
        return sorted(found, key=lambda one: -one.last.heard_ms)

    def _has_room(self) -> bool:
        if len(self._known) < self._most:
            return True
        gone = [did for did, one in self._known.items() if one.level in GONE]
        for did in gone:
            del self._known[did]
        return bool(gone)

    def sweep(self, now_ms: int, has_ended: Callable[[str], bool]) -> Iterator[PresenceChange]:
        """What changed since the last sweep; `has_ended`: whose authority is over."""
        for did, one in list(self._known.items()):
            silent_ms = now_ms - one.last.heard_ms
            is_dead = one.level is Level.DEAD
            if silent_ms > (DEAD_KEPT_MS if is_dead else GONE_KEPT_MS) and one.level in GONE:
                del self._known[did]
                continue
            if one.level in {Level.LEFT, Level.ENDED}:
                continue
            missed = misses(silent_ms, one.card.next_ms)
            level = Level.ENDED if has_ended(did) else level_of(missed)
            if one.is_from_before and level is Level.DEAD:
                one.is_from_before = False
                yield _change(one, Level.ALIVE, missed)
            elif level != one.level and (level is Level.ENDED or not is_dead):
                was, one.level = one.level, level
                yield _change(one, was, missed)

    def live(self, now_ms: int, *, stale_ms: int = STALE_MS) -> list[KnownNode]:
        """Those that were heard within a threshold, and are not over."""
        return [
            one
            for one in self._known.values()
            if one.level not in {Level.LEFT, Level.ENDED}
            and not one.is_from_before
            and overdue_ms(now_ms - one.last.heard_ms, one.card.next_ms) <= stale_ms
        ]

    def full_nodes(self) -> Iterator[str]:
        """The full nodes that have missed no heartbeat."""
        known = self._known.items()
        return (did for did, one in known if one.card.role == "node" and one.level is Level.ALIVE)

    def answers(self, question: str, did: str) -> bool:
        """Whether this node is the one that answers a question for all."""
        others = (
            one.card.node
            for one in self._known.values()
            if one.card.knows_others and one.level is Level.ALIVE
        )
        return turn(question, "", did, others) == 0


def _change(one: KnownNode, was: str, missed: int = 0) -> PresenceChange:
    card = one.card
    return PresenceChange(
        node=card.node,
        alias=card.alias,
        agent=card.agent,
        role=card.role,
        was=str(was),
        level=str(one.level),
        misses=missed,
    )
