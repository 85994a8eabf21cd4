"""What each delegation is worth at a moment: what the best chain is worth that ends in it.

A right that hangs from a revoked one is revoked, whatever it says of itself. Chains are not listed
(there can be more of them than anyone can count) but followed from the owner, level by level, and
of several ways to one holder only those are kept apart that differ in what they lead to.

A delegation that no chain from the owner reaches (a widened one, one of an earlier owner, one by
somebody who holds nothing) is *void*.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.grant_terms import alias_of
from antiphon.core.authority.scope import EVERY_KIND, admits, kinds_of
from antiphon.core.ucan import MAX_LINKS, TOP, covers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.authority.control import Control
    from antiphon.core.ucan import Payload

MAX_WAYS: Final = 8
"""Ways to one holder that are told apart; the best ones, where there are more."""
MAX_KINDS: Final = 16
"""Kinds that are told of one grant."""
MAX_POLICY_BYTES: Final = 2_048
"""Of a longer delegation the kinds are not worked out."""
_NO_END: Final = 2**63


class State(StrEnum):
    """What a grant is worth at a moment."""

    LIVE = "live"
    NOT_YET = "not_yet"
    EXPIRED = "expired"
    REVOKED = "revoked"
    VOID = "void"


# Along one chain the worst link decides; of several chains the best one counts. What has ended is
# worse than what is still to come: a chain with both in it never comes.
_WORSE: Final = {State.LIVE: 0, State.NOT_YET: 1, State.EXPIRED: 2, State.REVOKED: 3}


class Grant(Struct, frozen=True, kw_only=True, gc=False):
    """One delegation, and what it is worth."""

    cid: str
    seq: int
    issuer: str
    audience: str
    command: str
    kinds: tuple[str, ...]
    """As people write them (`render.*`), narrowed by the chains above; none if nothing is left."""
    is_powerline: bool
    """Passes on whatever its issuer holds, or comes to hold."""
    from_s: int | None
    until_s: int | None
    """When it ends by its own words."""
    ends_s: int | None
    """When it really ends: no later than what it hangs from."""
    state: State
    alias: str
    """What the issuer calls the audience; empty if it gave no name."""


def appraise(control: Control, now_s: int) -> list[Grant]:
    """Every delegation on the log, and what it is worth at `now_s`; oldest first."""
    links = _links(control, now_s)
    given_by: dict[str, list[_Link]] = {}
    for link in links:
        given_by.setdefault(link.claims.iss, []).append(link)
    _follow(control.owner, given_by)
    return [link.grant() for link in links]


class _Way(Struct, frozen=True, gc=False):
    """What a chain from the owner leaves to the one at its end."""

    command: str
    state: State
    revokers: frozenset[str]
    """Those above who revoked something further down: it counts on this way, not on others."""

    def is_worth(self, other: _Way) -> bool:
        """Whether whatever hangs from the other may as well hang from this one."""
        return (
            covers(self.command, other.command)
            and _WORSE[self.state] <= _WORSE[other.state]
            and self.revokers <= other.revokers
        )


class _Reach(Struct, frozen=True, gc=False):
    """For which kinds a way is good, and until when."""

    kinds: tuple[str, ...] = ()
    end_s: int = -_NO_END

    def __or__(self, other: _Reach) -> _Reach:
        return _Reach(_united(self.kinds, other.kinds), max(self.end_s, other.end_s))

    def holds(self, other: _Reach) -> bool:
        """Whether it is good for all that the other is."""
        return other.end_s <= self.end_s and _all_in(other.kinds, self.kinds)

    def until(self, end_s: int | None) -> _Reach:
        """The same, ending no later than that."""
        return self if end_s is None or end_s >= self.end_s else _Reach(self.kinds, end_s)


_NOWHERE: Final = _Reach()
_Ways = dict[_Way, _Reach]


class _Link(Struct):
    """A delegation on the way to being judged."""

    seq: int
    cid: str
    claims: Payload
    alias: str
    kinds: tuple[str, ...]
    state: State
    """What it says of itself, and what its issuer and the owner say of it."""
    by_others: frozenset[str]
    """Who else revoked it."""
    found: dict[State, _Reach]
    """What it is worth at the end of some chain, for which kinds and how long."""

    @property
    def sort(self) -> object:
        """What delegations by one issuer have in common if they lead on alike."""
        claims = self.claims
        return claims.cmd, claims.subject, self.state, self.by_others, self.kinds

    def beyond(self, ways: _Ways, marked: set[str], owner: str, *, is_first: bool) -> _Ways:
        """What is left of the ways to its issuer if they go on through this delegation."""
        subject, wanted = self.claims.subject, self.claims.cmd
        left: _Ways = {}
        if subject != owner and (subject is not None or is_first):
            return left
        for way, reach in ways.items():
            if covers(way.command, wanted):
                command = wanted
            elif subject is None and covers(wanted, way.command):
                command = way.command
            else:
                continue
            state = max(way.state, self.state, key=_WORSE.__getitem__)
            if not self.by_others.isdisjoint(way.revokers):
                state = State.REVOKED
            onward = _Way(command, state, way.revokers | ({self.claims.iss} & marked))
            narrowed = _Reach(_shared(reach.kinds, self.kinds), reach.end_s)
            left[onward] = left.get(onward, _NOWHERE) | narrowed
        return left

    def grant(self) -> Grant:
        """The finding."""
        state = min(self.found, key=_WORSE.__getitem__, default=State.VOID)
        reach = self.found.get(state, _Reach(self.kinds, _NO_END).until(self.claims.exp))
        return Grant(
            cid=self.cid,
            seq=self.seq,
            issuer=self.claims.iss,
            audience=self.claims.aud,
            command=self.claims.cmd,
            kinds=tuple(
                sorted(one[:-1] + "*" if one.endswith(">") else one for one in reach.kinds)
            ),
            is_powerline=self.claims.subject is None,
            from_s=self.claims.not_before,
            until_s=self.claims.exp,
            ends_s=None if reach.end_s == _NO_END else reach.end_s,
            state=state,
            alias=self.alias,
        )


def _links(control: Control, now_s: int) -> list[_Link]:
    grants, owner = control.grants, control.owner
    links: list[_Link] = []
    worked_out: dict[str, tuple[str, ...]] = {}
    for given in grants.everything():
        seq, cid, delegation = given.seq, given.cid, given.delegation
        claims = delegation.payload
        policy = repr(claims.pol.source) if len(given.raw) <= MAX_POLICY_BYTES else ""
        if policy not in worked_out:
            worked_out[policy] = kinds_of(claims.pol.source)[:MAX_KINDS] if policy else ()
        revokers = frozenset(grants.revoked((cid,), before=_NO_END).get(cid, ()))
        by_others = revokers - {owner, claims.iss}
        state = _standing(claims, now_s) if by_others == revokers else State.REVOKED
        alias = alias_of(delegation)
        links.append(_Link(seq, cid, claims, alias, worked_out[policy], state, by_others, {}))
    return links


def _standing(claims: Payload, now_s: int) -> State:
    if claims.exp is not None and now_s > claims.exp:
        return State.EXPIRED
    is_early = claims.not_before is not None and now_s < claims.not_before
    return State.NOT_YET if is_early else State.LIVE


def _follow(owner: str, given_by: dict[str, list[_Link]]) -> None:
    """Walk from the owner down, a link at a time, and note in each link what leads to it."""
    marked = {by for links in given_by.values() for link in links for by in link.by_others}
    known: dict[str, _Ways] = {}
    root = _Way(TOP, State.LIVE, frozenset())
    level: dict[str, _Ways] = {owner: {root: _Reach((EVERY_KIND,), _NO_END)}}
    for depth in range(MAX_LINKS):
        arrived: dict[str, _Ways] = {}
        for holder, ways in level.items():
            alike: dict[object, _Ways] = {}
            for link in given_by.get(holder, ()):
                sort = link.sort
                if sort not in alike:
                    alike[sort] = link.beyond(ways, marked, owner, is_first=depth == 0)
                there = arrived.setdefault(link.claims.aud, {})
                for way, so_far in alike[sort].items():
                    reach = so_far.until(link.claims.exp)
                    link.found[way.state] = link.found.get(way.state, _NOWHERE) | reach
                    there[way] = there.get(way, _NOWHERE) | reach
        level = {}
        for holder, ways in arrived.items():
            if fresh := _take_in(known.setdefault(holder, {}), ways):
                level[holder] = fresh


def _take_in(known: _Ways, ways: _Ways) -> _Ways:
    """Add what is new to the known ways of one holder; what is new."""
    fresh: _Ways = {}
    for way, reach in sorted(ways.items(), key=_promise):
        is_full = len(known) >= MAX_WAYS and way not in known
        if is_full or any(one.is_worth(way) and known[one].holds(reach) for one in known):
            continue
        fresh[way] = reach
        known[way] = known.get(way, _NOWHERE) | reach
    return fresh


def _promise(item: tuple[_Way, _Reach]) -> tuple[int, int, int]:
    way = item[0]
    return _WORSE[way.state], way.command.count("/") if way.command != TOP else 0, len(way.revokers)


# --- kinds ------------------------------------------------------------------------------------


def _all_in(inner: Iterable[str], outer: tuple[str, ...]) -> bool:
    """Whether kind filters lie within others: a filter admits a narrower one as it does a kind."""
    return all(any(admits(wide, one) for wide in outer) for one in inner)


def _shared(ones: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    if ones == (EVERY_KIND,):
        return others
    if others == (EVERY_KIND,):
        return ones
    found: tuple[str, ...] = ()
    for one in ones:
        for other in others:
            if admits(other, one):
                found = _united(found, (one,))
            elif admits(one, other):
                found = _united(found, (other,))
    return found


def _united(ones: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    if not ones or ones == others:
        return others
    found = list(ones)
    for other in others:
        if not _all_in((other,), tuple(found)):
            found = [one for one in found if not admits(other, one)]
            found.append(other)
    return tuple(found[:MAX_KINDS])
