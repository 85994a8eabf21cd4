"""Asking who is online, or died lately: one full node answers for all with their heartbeats.

Each heartbeat is signed by its node, so whoever answers can leave nodes out and invent none. A
second answer is waited for briefly, and both count: one that leaves nodes out hides nobody while
an honest node answers too. Where nobody answers for all, everybody answers for itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.bus.signed_message import Refused
from antiphon.core.bus.subjects import HEARTBEAT, ROLL
from antiphon.core.presence.cards import HEARTBEAT_AGE_MS, OLD_HEARTBEATS, ROLL_PAGES, Card
from antiphon.core.presence.presence_table import (
    DEAD_KEPT_MS,
    MAX_NODES,
    STALE_MS,
    Level,
    level_of,
    misses,
    overdue_ms,
)
from antiphon.errors import Rejected
from antiphon.runtime.presence.roll_call import FOR_ALL, FOR_ALL_AND_DEAD, roll_call

if TYPE_CHECKING:
    from antiphon.core.presence.cards import KnownHeartbeat
    from antiphon.runtime.log.session import Session

ANSWERED_WITHIN_S: Final = 0.4
"""How long one node may take to answer for all, before everybody is asked."""
SETTLE_S: Final = 0.05
FRESH_S: Final = 3.0
"""How long an answer counts for whoever asks again and again."""
ANSWERS: Final = frozenset({Level.ALIVE, Level.WARN})
"""Levels of nodes that run what they say."""
MAX_PENDING: Final = 512


class LiveNode(Struct, frozen=True, kw_only=True):
    """A node that was heard within the threshold, or within the last day."""

    card: Card
    silent_ms: int
    """Since its last heartbeat."""
    misses: int
    level: str

    @property
    def overdue_ms(self) -> int:
        """For how long it is silent beyond what it said."""
        return overdue_ms(self.silent_ms, self.card.next_ms)


class _Answers:
    """The pages that arrived, of every node that answers."""

    def __init__(self, session: Session, inbox: str, *, with_dead: bool) -> None:
        self._with_dead = with_dead
        self.found: dict[str, LiveNode] = {}
        self.is_whole = False
        self._session = session
        self._inbox = inbox
        self._pages: dict[str, set[int]] = {}

    def take(self, payload: bytes) -> None:
        page = ROLL_PAGES.open(payload, mesh=self._session.mesh, subject=self._inbox)
        if isinstance(page, Refused):
            return
        for known in page.body.known:
            self._note(known)
        seen = self._pages.setdefault(page.author, set())
        seen.add(page.body.page)
        self.is_whole = self.is_whole or len(seen) == page.body.pages

    def _note(self, known: KnownHeartbeat) -> None:
        now_ms, raw = self._session.wall.now_ms(), bytes(known.heartbeat)
        where = HEARTBEAT.at(user=known.user)
        message = OLD_HEARTBEATS.open(raw, mesh=self._session.mesh, subject=where)
        if isinstance(message, Refused):
            return
        card = message.body
        if card.is_away or card.node != message.author or len(self.found) >= MAX_NODES:
            return
        # Whoever passes on an old one as new is not believed beyond what clocks may differ by.
        silent_ms = max(known.ago_ms, now_ms - message.at_ms - HEARTBEAT_AGE_MS)
        # Of one that died, the full node may have kept an older heartbeat than it heard last.
        is_dead = level_of(misses(known.ago_ms, card.next_ms)) is Level.DEAD
        if self._with_dead and is_dead:
            silent_ms = known.ago_ms
        other = self.found.get(card.node)
        if other is None or silent_ms < other.silent_ms:
            self.found[card.node] = _live(card, silent_ms)


async def live_nodes(
    session: Session,
    *,
    stale_ms: int = STALE_MS,
    wait_s: float,
    answered_within_s: float = ANSWERED_WITHIN_S,
) -> list[LiveNode]:
    """The nodes that were heard within a threshold; `wait_s` where everybody must be asked."""
    answers = await _ask_one(session, FOR_ALL, answered_within_s)
    if answers is None:
        found = [_live(card, 0) for card in await roll_call(session, wait_s=wait_s)]
    else:
        found = [one for one in answers.values() if one.overdue_ms <= stale_ms]
    return sorted(found, key=_by_name)


async def live_and_dead_nodes(
    session: Session, *, stale_ms: int = STALE_MS, wait_s: float
) -> tuple[list[LiveNode], list[LiveNode]]:
    """Those, and the nodes that died within the last day, the newest of these first.

    Only a full node remembers those that died; where none answers, there are none.
    """
    answers = await _ask_one(session, FOR_ALL_AND_DEAD, ANSWERED_WITHIN_S)
    if answers is None:
        return await live_nodes(session, stale_ms=stale_ms, wait_s=wait_s), []
    live = [one for one in answers.values() if one.overdue_ms <= stale_ms]
    dead = [
        one
        for one in answers.values()
        if one.overdue_ms > stale_ms and one.level == Level.DEAD and one.silent_ms <= DEAD_KEPT_MS
    ]
    return sorted(live, key=_by_name), sorted(dead, key=lambda one: one.silent_ms)


def _by_name(one: LiveNode) -> tuple[str, str, str]:
    return one.card.role, one.card.alias, one.card.node


async def cards_of_live(
    session: Session, *, wait_s: float, answered_within_s: float = ANSWERED_WITHIN_S
) -> list[Card]:
    """What the nodes that missed no heartbeat say about themselves."""
    found = await live_nodes(session, wait_s=wait_s, answered_within_s=answered_within_s)
    return [one.card for one in found if not one.misses]


class RecentCards:
    """The cards of nodes that have not missed several heartbeats, asked for now and then."""

    def __init__(self, session: Session) -> None:
        """Nobody is asked before `get`."""
        self._session = session
        self._asked_s = -FRESH_S
        self._cards: list[Card] = []

    async def get(self, *, wait_s: float) -> list[Card]:
        """Who was online in the last seconds: pages are drawn again with every record."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._asked_s >= FRESH_S:
            found = await live_nodes(self._session, wait_s=wait_s)
            self._cards = [one.card for one in found if one.level in ANSWERS]
            self._asked_s = loop.time()
        return self._cards


async def _ask_one(
    session: Session, question: bytes, within_s: float
) -> dict[str, LiveNode] | None:
    bus = session.engine.bus
    inbox = f"{bus.new_inbox()}.{session.entropy.token(16).hex()}"
    answers = _Answers(session, inbox, with_dead=question == FOR_ALL_AND_DEAD)
    async with bus.subscribe(inbox, max_pending=MAX_PENDING) as pages:
        try:
            await bus.publish(ROLL.at(), question, reply=inbox)
        except Rejected:
            return None
        try:
            async with asyncio.timeout(within_s) as limit:
                async for page in pages:
                    was_whole = answers.is_whole
                    answers.take(page.payload)
                    if answers.is_whole and not was_whole:
                        limit.reschedule(asyncio.get_running_loop().time() + SETTLE_S)
        except TimeoutError:
            pass
    return answers.found if answers.is_whole else None


def _live(card: Card, silent_ms: int) -> LiveNode:
    missed = misses(silent_ms, card.next_ms)
    return LiveNode(card=card, silent_ms=silent_ms, misses=missed, level=str(level_of(missed)))
