"""Which delegations an author should name: the chains that lead from the owner to it.

An op is judged by the one chain that it names, so somebody has to choose. The choice is made from
the book of delegations alone, and only ever a proposal: a wrong one gives an op that is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority import chain_check
from antiphon.core.ucan import MAX_LINKS, ChainVerdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.authority.delegations import Grants, Link
    from antiphon.core.record.op import Op
    from antiphon.core.ucan import Chain

MAX_CHAINS: Final = 64
"""How many ways from the owner to one author are looked at."""
PER_GIVER: Final = 8
"""Of one giver's delegations to one holder, the newest so many count."""
CHOICES_KEPT: Final = 1024
_NO_END: Final = 2**63


def chains_to(grants: Grants, owner: str, did: str, *, before: int) -> list[Chain]:
    """The chains from the owner to `did` whose links fit together: shortest first.

    Anybody may delegate to anybody: what a stranger gives must not push out what counts.
    """
    found: list[tuple[str, ...]] = []
    level: list[tuple[str, tuple[str, ...], frozenset[str]]] = [(did, (), frozenset({did}))]
    for _ in range(MAX_LINKS):
        above: list[tuple[str, tuple[str, ...], frozenset[str]]] = []
        for holder, cids, seen in level:
            given = grants.given_to(holder, before=before)
            counts = [
                one for one in given if grants.is_held_by(one.issuer, root=owner, before=before)
            ]
            for link in _newest_of_each_giver(counts):
                giver, longer = link.issuer, (link.cid, *cids)
                if giver == owner:
                    found.append(longer)
                elif giver not in seen:
                    above.append((giver, longer, seen | {giver}))
        level = above[:MAX_CHAINS]
        if not level or len(found) >= MAX_CHAINS:
            break
    chains = (grants.chain(owner, cids, before=before) for cids in found[:MAX_CHAINS])
    return [chain for chain in chains if chain is not None and chain.fault is None]


def _newest_of_each_giver(links: list[Link]) -> list[Link]:
    """A few of each, givers in the order they came."""
    by_giver: dict[str, list[Link]] = {}
    for link in links:
        by_giver.setdefault(link.issuer, []).append(link)
    return [link for given in by_giver.values() for link in reversed(given[-PER_GIVER:])]


def acts_for(grants: Grants, did: str, *, before: int) -> frozenset[str]:
    """A key, and the machines that pass everything on to it."""
    found, frontier = {did}, {did}
    for _ in range(MAX_LINKS):
        frontier = {
            link.issuer
            for holder in frontier
            for link in grants.given_to(holder, before=before)
            if link.is_powerline
        } - found
        if not frontier:
            break
        found |= frontier
    return frozenset(found)


class _Choice(Struct, frozen=True):
    revision: int
    owner: str
    until_s: int
    cids: tuple[str, ...]


class ChainChoice:
    """One author's chains, and which of them served which command and kind last."""

    def __init__(self, did: str) -> None:
        self._did = did
        self._choices: dict[tuple[str, str], _Choice] = {}

    def choose(
        self, control: Control, op_type: type[Op], body: Struct, now_ms: int
    ) -> tuple[str, ...]:
        """The chain that an op should name; empty if it needs none, or none is to be had."""
        if control.rules.authority == "open" or self._did == control.owner:
            return ()
        command = op_type.COMMAND
        if not command:
            return ()
        key = (command, getattr(body, "kind", ""))
        now_s = now_ms // 1000
        known = self._choices.get(key)
        if (
            known is not None
            and known.revision == control.grants.revision
            and known.owner == control.owner
            and now_s < known.until_s
        ):
            return known.cids
        choice = self._look(control, command, body, now_s)
        if len(self._choices) >= CHOICES_KEPT:
            self._choices.clear()
        self._choices[key] = choice
        return choice.cids

    def _look(self, control: Control, command: str, body: Struct, now_s: int) -> _Choice:
        """The first chain that admits the op now; failing that, the one that comes closest.

        An author without authority still names what it has, so that the verdict can say what is
        wrong with it: expired, revoked, another command, another kind.
        """
        grants = control.grants
        arguments = chain_check.arguments_of(body)
        nearest: tuple[int, tuple[str, ...]] = (len(_NEARNESS), ())
        for chain in chains_to(grants, control.owner, self._did, before=_NO_END):
            cids = tuple(link.cid for link in chain.links)
            revoked = grants.revoked(cids, before=_NO_END)
            outcome = chain.judge(self._did, command, arguments, (now_s,), revoked)
            if outcome.ok:
                until_s = _NO_END if chain.expires is None else chain.expires
                return _Choice(grants.revision, control.owner, until_s, cids)
            nearest = min(nearest, (_NEARNESS.get(outcome.verdict, len(_NEARNESS)), cids))
        # Worth another look in a second: a grant may begin then.
        return _Choice(grants.revision, control.owner, now_s + 1, nearest[1])


_NEARNESS: Final = {
    ChainVerdict.EXPIRED: 0,
    ChainVerdict.NOT_YET: 1,
    ChainVerdict.REVOKED: 2,
    ChainVerdict.POLICY: 3,
    ChainVerdict.COMMAND: 4,
}
