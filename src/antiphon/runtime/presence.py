"""Who is there: a roll call on the bus (spec §10).

Nothing about presence is stored. Whoever asks publishes a call; every node that hears it answers
once, with a signed card, after a short random pause so that thousands of answers do not arrive
in one burst. The asker collects for a moment and verifies each card. A card repeats what the call
said, so an old one answers nothing, whatever anybody's clock shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.core import signing
from antiphon.errors import AntiphonError, Unavailable

if TYPE_CHECKING:
    from antiphon.ports import Keyring
    from antiphon.runtime.peer import Peer

CALL: Final = "roll"
CARD_TYPE: Final = "application/vnd.antiphon.card+json"
ANSWER_WITHIN_S: Final = 0.1
MAX_CARDS: Final = 10_000
MAX_QUESTION: Final = 64


class Card(Struct, frozen=True, kw_only=True):
    """What a node says about itself. Signed over the bytes as sent; not an op."""

    mesh: str
    node: str
    alias: str
    role: Literal["worker", "node", "dev"]
    version: str
    at_ms: int
    """What the node's own clock showed."""
    asked: str = ""
    """What the call said."""
    kinds: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    weight: int = 1
    slots: int = 0
    busy: int = 0
    done: int = 0
    applied: int = 0


class _Signed(Struct, frozen=True):
    card: str
    sig: str


_decode_signed = msgspec.json.Decoder(_Signed).decode
_decode_card = msgspec.json.Decoder(Card).decode


class Presence:
    """Answers roll calls for one node until cancelled."""

    def __init__(self, peer: Peer, keyring: Keyring, describe: Callable[[], Card]) -> None:
        """`describe` makes the card at the moment of asking."""
        self._peer = peer
        self._keyring = keyring
        self._describe = describe

    async def run(self) -> None:
        """Listen for calls."""
        bus = self._peer.engine.bus
        async with bus.subscribe(CALL, max_pending=16) as calls:
            async for call in calls:
                await asyncio.sleep(self._peer.entropy.random() * ANSWER_WITHIN_S)
                if not call.reply or len(call.payload) > MAX_QUESTION:
                    continue
                asked = call.payload.decode("ascii", "replace")
                card = msgspec.structs.replace(self._describe(), asked=asked)
                text = msgspec.json.encode(card)
                sig = self._keyring.sign(CARD_TYPE, text).hex()
                signed = msgspec.json.encode(_Signed(text.decode(), sig))
                try:
                    await bus.publish(call.reply, signed)
                except Unavailable:
                    continue


async def roll_call(peer: Peer, *, wait_s: float = 0.4) -> list[Card]:
    """Ask who is there; the verified cards that arrived in time, one per node."""
    bus = peer.engine.bus
    inbox, question = bus.new_inbox(), peer.entropy.token(16).hex()
    cards: dict[str, Card] = {}
    async with bus.subscribe(inbox, max_pending=MAX_CARDS) as answers:
        await bus.publish(CALL, question.encode(), reply=inbox)
        try:
            async with asyncio.timeout(wait_s):
                async for answer in answers:
                    card = _verified(peer, question, answer.payload)
                    if card is not None and len(cards) < MAX_CARDS:
                        cards[card.node] = card
        except TimeoutError:
            pass
    return sorted(cards.values(), key=lambda card: (card.role, card.alias, card.node))


def _verified(peer: Peer, question: str, payload: bytes) -> Card | None:
    try:
        signed = _decode_signed(payload)
        text = signed.card.encode()
        card = _decode_card(text)
        is_signed = signing.is_signed(card.node, CARD_TYPE, text, bytes.fromhex(signed.sig))
    except (msgspec.MsgspecError, ValueError, AntiphonError):
        return None
    is_answer = card.asked == question and card.mesh == peer.mesh
    return card if is_signed and is_answer else None
