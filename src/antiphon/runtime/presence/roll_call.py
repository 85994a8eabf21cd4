"""Roll calls: who is online, asked on the bus (spec §10).

Nothing about presence is stored. A node that asks publishes a roll call. Every node that receives
it answers once, with a signed card, after a short random pause so that thousands of answers do not
arrive at once. The asking node collects and verifies the cards for a moment. A card is signed for
the inbox of one roll call, so an old card is worthless, whatever any clock shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from antiphon.core.bus.signed_message import MessageType, Refused
from antiphon.core.bus.subjects import ROLL
from antiphon.errors import Rejected, Unavailable

if TYPE_CHECKING:
    from antiphon.ports import Keyring
    from antiphon.runtime.log.session import Session

ANSWER_WITHIN_S: Final = 0.1
MAX_CARDS: Final = 10_000
MAX_CARD_BYTES: Final = 256 * 1024


class Card(Struct, frozen=True, kw_only=True):
    """A node's description of itself."""

    node: str
    alias: str
    role: Literal["worker", "node", "dev"]
    version: str
    at_ms: int
    """The node's own clock."""
    kinds: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    weight: int = 1
    slots: int = 0
    busy: int = 0
    done: int = 0
    applied: int = 0


CARDS: Final = MessageType("card", Card, max_bytes=MAX_CARD_BYTES)


class Presence:
    """Answers roll calls for one node until cancelled."""

    def __init__(self, session: Session, keyring: Keyring, describe: Callable[[], Card]) -> None:
        """`describe` makes the card when a roll call arrives."""
        self._session = session
        self._keyring = keyring
        self._describe = describe

    async def run(self) -> None:
        """Listen for roll calls."""
        bus, me = self._session.engine.bus, (self._keyring.did, self._keyring.sign)
        async with bus.subscribe(ROLL.at(), max_pending=16) as calls:
            async for call in calls:
                await asyncio.sleep(self._session.entropy.random() * ANSWER_WITHIN_S)
                if not call.reply:
                    continue
                try:
                    mesh, where = self._session.mesh, call.reply
                    await bus.publish(
                        where, CARDS.sign(self._describe(), me, mesh=mesh, subject=where)
                    )
                except (Unavailable, Rejected):
                    continue  # the engine does not answer, or the inbox is not valid


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
