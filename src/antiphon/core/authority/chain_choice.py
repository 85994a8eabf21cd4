"""Which chain of delegations an author should name in an op.

An op is judged by the one chain that it names, so its author has to choose. The choice uses the
delegations on the log and decides nothing: an op with a wrong chain is rejected.
"""

from __future__ import annotations

from collections import Counter
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
"""How many chains from the owner to one author are looked at."""
PER_COMMAND: Final = 8
"""How many delegations of one command by one issuer to one holder count: the newest."""
PER_GIVER: Final = 48
"""How many in all: an invitation has one for each command that it admits."""
CHOICES_KEPT: Final = 1024
KIND: Final = "kind"
"""What nearly every policy is about."""
_NO_END: Final = 2**63


def chains_to(grants: Grants, owner: str, did: str, *, before: int) -> list[Chain]:
    """The chains from the owner to `did` whose links fit together: shortest first.

    Anyone may delegate to anyone: a stranger's delegations must not crowd out those that count.
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
    """The newest few of each issuer, issuers in order of appearance."""
    by_giver: dict[str, list[Link]] = {}
    for link in links:
        by_giver.setdefault(link.issuer, []).append(link)
    return [link for given in by_giver.values() for link in _newest(given)]


def _newest(given: list[Link]) -> list[Link]:
    """The newest of one issuer, a few of each command, the newest first."""
    found: list[Link] = []
    counts: Counter[str] = Counter()
    for link in reversed(given):
        command = link.payload.cmd
        counts[command] += 1
        if counts[command] <= PER_COMMAND:
            found.append(link)
        if len(found) == PER_GIVER:
            break
    return found


def acts_for(grants: Grants, did: str, *, before: int) -> frozenset[str]:
    """A key, and the machines that delegate everything to it."""
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
    is_by_kind: bool
    """Whether it is the same for every body of this kind."""


class ChainChoice:
    """One author's chains, and which of them was last used for which command and kind.

    A policy may be about any field of a body, such as `priority`. A chain with such a policy is
    checked against each body before it is named again.
    """

    def __init__(self, did: str) -> None:
        self._did = did
        self._choices: dict[tuple[str, str], _Choice] = {}

    def choose(
        self, control: Control, op_type: type[Op], body: Struct, now_ms: int
    ) -> tuple[str, ...]:
        """The chain that an op should name; empty if it needs none, or there is none."""
        if control.rules.authority == "open" or self._did == control.owner:
            return ()
        command = op_type.command_of(body)
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
            and (known.is_by_kind or self._admits(control, known.cids, command, body, now_s))
        ):
            return known.cids
        choice = self._look(control, command, body, now_s)
        if len(self._choices) >= CHOICES_KEPT:
            self._choices.clear()
        self._choices[key] = choice
        return choice.cids

    def _admits(
        self, control: Control, cids: tuple[str, ...], command: str, body: Struct, now_s: int
    ) -> bool:
        """Whether a chain allows this very body now."""
        chain = control.grants.chain(control.owner, cids, before=_NO_END) if cids else None
        if chain is None:
            return False
        revoked = control.grants.revoked(cids, before=_NO_END)
        arguments = chain_check.arguments_of(body, chain.reads)
        return chain.judge(self._did, command, arguments, (now_s,), revoked).ok

    def _look(self, control: Control, command: str, body: Struct, now_s: int) -> _Choice:
        """The first chain that allows the op now; otherwise the one that comes closest.

        An author without permission still names a chain, so that the verdict can say what is
        wrong with it: expired, revoked, another command, another kind.
        """
        grants = control.grants
        nearest: tuple[int, tuple[str, ...]] = (len(_NEARNESS), ())
        is_by_kind = True
        for chain in chains_to(grants, control.owner, self._did, before=_NO_END):
            cids = tuple(link.cid for link in chain.links)
            revoked = grants.revoked(cids, before=_NO_END)
            arguments = chain_check.arguments_of(body, chain.reads)
            outcome = chain.judge(self._did, command, arguments, (now_s,), revoked)
            if outcome.ok:
                until_s = _NO_END if chain.expires is None else chain.expires
                return _Choice(grants.revision, control.owner, until_s, cids, _is_by_kind(chain))
            is_by_kind = is_by_kind and _is_by_kind(chain)
            nearest = min(nearest, (_NEARNESS.get(outcome.verdict, len(_NEARNESS)), cids))
        # Look again in a second: a delegation may become valid then.
        return _Choice(grants.revision, control.owner, now_s + 1, nearest[1], is_by_kind)


def _is_by_kind(chain: Chain) -> bool:
    """Whether the policies of a chain are about nothing but the kind."""
    return chain.reads is not None and chain.reads <= {KIND}


_NEARNESS: Final = {
    ChainVerdict.EXPIRED: 0,
    ChainVerdict.NOT_YET: 1,
    ChainVerdict.REVOKED: 2,
    ChainVerdict.POLICY: 3,
    ChainVerdict.COMMAND: 4,
}
