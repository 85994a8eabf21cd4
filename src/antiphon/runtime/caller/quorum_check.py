"""Whether there are enough independent parties for a quorum, before the job is submitted.

Replicas that one member runs count once (spec §9). Where too few members may claim a kind, a job
that asks for more would wait for its quorum without end. Members count whether they are online or
not; other keys, such as those of the owner's own workers, only while they answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.authority.grant_tree import trace
from antiphon.core.authority.parties import members_for
from antiphon.core.families.jobs.ops import JobClaim
from antiphon.core.policy.selection import claiming_party
from antiphon.core.record.ids import short_node
from antiphon.errors import Rejected
from antiphon.runtime.presence.live_nodes import cards_of_live

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.presence.cards import Card
    from antiphon.runtime.log.session import Session

ASKED_S: Final = 0.25
"""How long to wait for one node that answers for all, and then for everybody."""


async def check_quorums(session: Session, bodies: Iterable[ScheduleBody]) -> None:
    """`Rejected` if one of these asks for a quorum for which there are too few parties.

    On an open mesh everyone may come and claim, so nothing is refused there.
    """
    wanted: dict[str, int] = {}
    for body in bodies:
        # Of people nobody knows who is there, and who of them will ever answer.
        if body.quorum is not None and body.question is None:
            wanted[body.kind] = max(body.quorum, wanted.get(body.kind, 0))
    if not wanted or session.control.rules.authority == "open":
        return
    may = _members(session, wanted)
    if all(len(may[kind]) >= quorum for kind, quorum in wanted.items()):
        return
    await session.sync_control()  # some may have joined since
    may = _members(session, wanted)
    if all(len(may[kind]) >= quorum for kind, quorum in wanted.items()):
        return
    cards = await cards_of_live(session, wait_s=ASKED_S, answered_within_s=ASKED_S)
    for kind, quorum in wanted.items():
        parties = may[kind] | parties_online(session, kind, cards)
        if len(parties) < quorum:
            raise _too_few(session, kind, quorum, parties)


def _members(session: Session, kinds: Iterable[str]) -> dict[str, frozenset[str]]:
    """The members that may claim each kind, as far as control is known."""
    control, now_s = session.control, session.wall.now_ms() // 1000
    return {kind: members_for(control, JobClaim.COMMAND, kind, now_s) for kind in kinds}


def parties_online(session: Session, kind: str, cards: Sequence[Card]) -> frozenset[str]:
    """The parties of the workers with these cards that run a kind, and may."""
    now_ms, nodes = session.wall.now_ms(), [card.node for card in cards if kind in card.kinds]
    found = (
        claiming_party(session.control, ChainChoice(node), did=node, kind=kind, now_ms=now_ms)
        for node in nodes
    )
    return frozenset(one for one in found if one)


def named(session: Session, parties: Iterable[str]) -> str:
    """Parties as people know them."""
    control = session.control
    names = {**trace(control, session.wall.now_ms() // 1000).names, control.owner: "owner"}
    return ", ".join(sorted(names.get(one) or short_node(one) for one in parties))


def _too_few(session: Session, kind: str, quorum: int, parties: frozenset[str]) -> Rejected:
    who = f"only {len(parties)} can run it: {named(session, parties)}" if parties else "none can"
    return Rejected(
        f"{quorum} independent parties have to agree on a job of kind {kind}, and {who}",
        reason="quorum",
        hint=f"antiphon invite --can claim --kind {kind} for another machine (the workers of one"
        " member count once); or submit it without replicas",
    )
