"""Asking who is online: one full node answers for all with their heartbeats (spec §10).

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
    MAX_NODES,
    STALE_MS,
    level_of,
    misses,
    overdue_ms,
)
from antiphon.errors import Rejected
from antiphon.runtime.presence.roll_call import FOR_ALL, roll_call

if TYPE_CHECKING:
    from antiphon.core.presence.cards import KnownHeartbeat
    from antiphon.runtime.log.session import Session

ANSWERED_WITHIN_S: Final = 0.4
"""How long one node may take to answer for all, before everybody is asked."""
SETTLE_S: Final = 0.05
MAX_PENDING: Final = 512


class LiveNode(Struct, frozen=True, kw_only=True):
    """A node that was heard within the threshold."""

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

    def __init__(self, session: Session, inbox: str) -> None:
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
    answers = await _ask_one(session, answered_within_s)
    if answers is None:
        found = [_live(card, 0) for card in await roll_call(session, wait_s=wait_s)]
    else:
        found = [one for one in answers.values() if one.overdue_ms <= stale_ms]
    return sorted(found, key=lambda one: (one.card.role, one.card.alias, one.card.node))


async def cards_of_live(
    session: Session, *, wait_s: float, answered_within_s: float = ANSWERED_WITHIN_S
) -> list[Card]:
    """What the nodes that missed no heartbeat say about themselves."""
    found = await live_nodes(session, wait_s=wait_s, answered_within_s=answered_within_s)
    return [one.card for one in found if not one.misses]


async def _ask_one(session: Session, within_s: float) -> dict[str, LiveNode] | None:
    bus = session.engine.bus
    inbox = f"{bus.new_inbox()}.{session.entropy.token(16).hex()}"
    answers = _Answers(session, inbox)
    async with bus.subscribe(inbox, max_pending=MAX_PENDING) as pages:
        try:
            await bus.publish(ROLL.at(), FOR_ALL, reply=inbox)
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
