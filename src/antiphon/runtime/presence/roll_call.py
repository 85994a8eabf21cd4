"""Heartbeats and roll calls: how a node says that it is online, and how it asks who else is.

Every node publishes a heartbeat about every six seconds (spec §10); one about which nothing changes
does so more and more rarely, up to once a minute, and each heartbeat says when the next one comes.
Full nodes hear them all, and one of them answers a roll call for all (`live_nodes`). A full node
that begins to listen asks everybody for one. Where none can, every node answers for
itself, once, with a signed card, after a short random pause so that thousands of answers do not
arrive at once. A card is signed for the inbox of one roll call, so an old card is worthless,
whatever any clock shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.bus.signed_message import Refused
from antiphon.core.bus.subjects import HEARTBEAT, ROLL
from antiphon.core.clock import hlc
from antiphon.core.presence.cards import (
    CARDS,
    HEARTBEAT_AGE_MS,
    HEARTBEATS,
    HEARTBEATS_WANTED,
    LONGEST_BEAT_MS,
    SHORTEST_BEAT_MS,
    Card,
)
from antiphon.errors import Rejected, Unavailable
from antiphon.runtime.services import beside

if TYPE_CHECKING:
    from antiphon.ports import Keyring
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.presence.heartbeat_watch import HeartbeatWatch

ANSWER_WITHIN_S: Final = 0.1
MAX_CARDS: Final = 10_000
FOR_ALL: Final = b"for all"
"""The question that one node answers for all; the empty one everybody answers."""
FOR_ALL_AND_DEAD: Final = b"for all and those that died"
"""The same; the answer also has nodes that died within a day."""
WANTED_WITHIN_S: Final = 3.0
GOODBYE_S: Final = 1.0
SOONEST_S: Final = 0.1
"""The shortest time between two heartbeats of a node."""
_SPREAD: Final = 0.1
"""Heartbeats come sooner by up to this part, so that those of a fleet do not stay together."""


class OwnPresence:
    """Says that one node is online, and answers roll calls for it, until cancelled."""

    def __init__(
        self,
        session: Session,
        keyring: Keyring,
        describe: Callable[[], Card],
        watch: HeartbeatWatch | None = None,
    ) -> None:
        """`describe` makes the card when it is sent; a node with a `watch` may answer for all."""
        self._session = session
        self._keyring = keyring
        self._describe = describe
        self._watch = watch
        self._said_ms = 0
        self.said = asyncio.Event()
        """Set once the first heartbeat was sent."""
        self._wanted = asyncio.Event() if watch is None else watch.newcomer
        """Set when somebody has to hear of this node soon."""
        self._saying_at_s = 0.0
        """When a heartbeat is sent because somebody asked for it."""

    async def run(self) -> None:
        """Send heartbeats and listen for roll calls; say goodbye at the end."""
        async with beside(self._send_heartbeats()):
            await self._answer()

    # --- heartbeats ---------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        if self._watch is not None:
            await self._watch.ready.wait()
        next_ms, said = SHORTEST_BEAT_MS, None
        try:
            while True:
                card = self._describe()
                is_news = said is None or not _says_the_same(card, said)
                # Other full nodes take turns with this one: they have to notice its silence soon.
                if is_news or self._watch is not None:
                    next_ms = SHORTEST_BEAT_MS
                else:
                    next_ms = min(2 * next_ms, LONGEST_BEAT_MS)
                said = card
                await self.say(card, next_ms=next_ms)
                self.said.set()
                await asyncio.sleep(SOONEST_S)
                early = self._session.entropy.random() * _SPREAD
                await self._news(card, next_ms / 1000 * (1 - early) - SOONEST_S)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self.say(self._describe(), is_away=True)

    async def _news(self, said: Card, most_s: float) -> None:
        """Wait for something to say, but no longer."""
        by_s = asyncio.get_running_loop().time() + most_s
        while (left_s := by_s - asyncio.get_running_loop().time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, SHORTEST_BEAT_MS / 1000)):
                    await self._wanted.wait()
            if self._wanted.is_set() or not _says_the_same(self._describe(), said):
                break
        self._wanted.clear()

    async def say(
        self, card: Card, *, next_ms: int = SHORTEST_BEAT_MS, is_away: bool = False
    ) -> None:
        """Publish one heartbeat; a lost one is only missed."""
        bus, session = self._session.engine.bus, self._session
        self._said_ms = hlc.rising(
            self._said_ms, session.wall.now_ms(), bearable_ms=HEARTBEAT_AGE_MS
        )
        knows = self._watch is not None and self._watch.knows_others
        card = replace(card, is_away=is_away, knows_others=knows, next_ms=next_ms)
        where = HEARTBEAT.at(user=bus.user)
        with suppress(Unavailable, Rejected):
            await bus.publish(where, self._signed(card, where))

    def _signed(self, card: Card, where: str) -> bytes:
        """With as many of its kinds as a heartbeat has room for."""
        me, mesh = (self._keyring.did, self._keyring.sign), self._session.mesh
        while True:
            try:
                return HEARTBEATS.sign(card, me, mesh=mesh, subject=where, at_ms=self._said_ms)
            except Rejected:
                if not card.kinds:
                    raise
                card = replace(card, kinds=card.kinds[: len(card.kinds) // 2])

    # --- roll calls ---------------------------------------------------------------------------

    async def _answer(self) -> None:
        bus = self._session.engine.bus
        async with bus.subscribe(ROLL.at(), max_pending=16) as calls:
            async for call in calls:
                if call.payload == HEARTBEATS_WANTED:
                    self._say_soon()
                    continue
                if not call.reply:
                    continue
                # The engine may not answer, and the inbox may not be valid.
                with suppress(Unavailable, Rejected):
                    if call.payload in (FOR_ALL, FOR_ALL_AND_DEAD):
                        with_dead = call.payload == FOR_ALL_AND_DEAD
                        await self._answer_for_all(call.reply, with_dead=with_dead)
                        continue
                    await asyncio.sleep(self._session.entropy.random() * ANSWER_WITHIN_S)
                    me, mesh = (self._keyring.did, self._keyring.sign), self._session.mesh
                    card = CARDS.sign(self._describe(), me, mesh=mesh, subject=call.reply)
                    await bus.publish(call.reply, card)

    def _say_soon(self) -> None:
        """One heartbeat for everybody who asked until then, however many ask."""
        loop = asyncio.get_running_loop()
        if self._saying_at_s <= loop.time():
            early = self._session.entropy.random() / 2
            self._saying_at_s = loop.time() + WANTED_WITHIN_S * (1 - early)
            loop.call_at(self._saying_at_s, self._wanted.set)

    async def _answer_for_all(self, where: str, *, with_dead: bool) -> None:
        if self._watch is None or not self._watch.answers(where):
            return
        for page in self._watch.pages(where, with_dead=with_dead):
            await self._session.engine.bus.publish(where, page)


def _says_the_same(one: Card, other: Card) -> bool:
    """Whether a second heartbeat would tell nothing new but the time."""
    return replace(one, at_ms=other.at_ms) == other


async def roll_call(session: Session, *, wait_s: float = 0.4) -> list[Card]:
    """Ask who is online; the verified cards that arrived in time, one per node."""
    bus = session.engine.bus
    inbox = f"{bus.new_inbox()}.{session.entropy.token(16).hex()}"
    cards: dict[str, Card] = {}
    async with bus.subscribe(inbox, max_pending=MAX_CARDS) as answers:
        await bus.publish(ROLL.at(), b"", reply=inbox)
        try:
            async with asyncio.timeout(wait_s):
                async for answer in answers:
                    message = CARDS.open(answer.payload, mesh=session.mesh, subject=inbox)
                    if isinstance(message, Refused) or message.body.node != message.author:
                        continue
                    if len(cards) < MAX_CARDS:
                        cards[message.author] = message.body
        except TimeoutError:
            pass
    return sorted(cards.values(), key=lambda card: (card.role, card.alias, card.node))
