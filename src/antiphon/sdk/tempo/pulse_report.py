"""Who sends the beats, by what nodes say in a roll call: nobody has to wait for a beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from antiphon.core.authority.scope import may_keep_time
from antiphon.sdk.defaults import ROLL_CALL_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.presence.cards import Card
    from antiphon.runtime.log.session import Session


class HasNodes(Protocol):
    """A mesh, as far as its nodes are concerned."""

    @property
    def session(self) -> Session:
        """What the log says."""

    async def nodes(self, *, wait_s: float = ...) -> list[Card]:
        """The nodes that answer a roll call."""


def timekeepers(mesh: HasNodes, cards: Iterable[Card]) -> list[Card]:
    """The nodes that may send beats, and say what they count by; who leads comes first."""
    session = mesh.session
    now_s = session.wall.now_ms() // 1000
    able = [
        card
        for card in cards
        if card.pulse is not None and may_keep_time(session.control, card.node, now_s)
    ]
    return sorted(able, key=lambda card: (not (card.pulse and card.pulse.leads), card.node))


async def beat_s(mesh: HasNodes) -> float:
    """How long a beat takes now, in seconds; if nobody answers, by the policy."""
    policy = (await mesh.session.sync_control()).tempo
    if policy.adaptation.enable:
        leading = next(iter(timekeepers(mesh, await mesh.nodes(wait_s=ROLL_CALL_S))), None)
        if leading is not None and leading.pulse is not None and leading.pulse.leads:
            return 60 / leading.pulse.bpm
    return policy.meter.beat_ms / 1000


__all__ = ["beat_s", "timekeepers"]
