"""The state of each delegation at a moment: live, expired, revoked, … by the best chain to it.

A permission below a revoked one is revoked, whatever it says itself. Chains are not enumerated
(there can be exponentially many) but followed from the owner, level by level. Of several ways to
one holder only those are kept that lead to different permissions.

A delegation that no chain from the owner reaches is *void*: it widens what it has, comes from an
earlier owner, or its issuer has no permission.
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
"""How many ways to one holder are kept; the best ones, if there are more."""
MAX_KINDS: Final = 16
"""How many kinds of one grant are listed."""
MAX_POLICY_BYTES: Final = 2_048
"""The kinds of a longer delegation are not computed."""
_NO_END: Final = 2**63


class State(StrEnum):
    """The state of a grant at a moment."""

    LIVE = "live"
    NOT_YET = "not_yet"
    EXPIRED = "expired"
    REVOKED = "revoked"
    VOID = "void"


# Along one chain the worst link decides; of several chains the best one counts. An ended link is
# worse than one that is not valid yet: a chain with both in it never becomes valid.
_WORSE: Final = {State.LIVE: 0, State.NOT_YET: 1, State.EXPIRED: 2, State.REVOKED: 3}


class Grant(Struct, frozen=True, kw_only=True, gc=False):
    """One delegation and its state."""

    cid: str
    seq: int
    issuer: str
    audience: str
    command: str
    kinds: tuple[str, ...]
    """As people write them (`render.*`), narrowed by the chains above; empty if none is left."""
    is_powerline: bool
    """A powerline: delegates whatever its issuer has, now or later."""
    from_s: int | None
    until_s: int | None
    """When it expires by itself."""
    ends_s: int | None
    """When it really ends: no later than the delegations above it."""
    state: State
    alias: str
    """The issuer's alias for the audience; empty if there is none."""


def appraise(control: Control, now_s: int) -> list[Grant]:
    """Every delegation on the log with its state at `now_s`; oldest first."""
    links = _links(control, now_s)
    given_by: dict[str, list[_Link]] = {}
    for link in links:
        given_by.setdefault(link.claims.iss, []).append(link)
    _follow(control.owner, given_by)
    return [link.grant() for link in links]


class _Way(Struct, frozen=True, gc=False):
    """What a chain from the owner leaves for the holder at its end."""

    command: str
    state: State
    revokers: frozenset[str]
    """Issuers above that revoked something further down: it counts on this way, not on others."""

    def is_worth(self, other: _Way) -> bool:
        """Whether this way can replace the other for everything below it."""
        return (
            covers(self.command, other.command)
            and _WORSE[self.state] <= _WORSE[other.state]
            and self.revokers <= other.revokers
        )


class _Reach(Struct, frozen=True, gc=False):
    """The kinds a way is valid for, and until when."""

    kinds: tuple[str, ...] = ()
    end_s: int = -_NO_END

    def __or__(self, other: _Reach) -> _Reach:
        return _Reach(_united(self.kinds, other.kinds), max(self.end_s, other.end_s))

    def holds(self, other: _Reach) -> bool:
        """Whether it covers everything that the other covers."""
        return other.end_s <= self.end_s and _all_in(other.kinds, self.kinds)

    def until(self, end_s: int | None) -> _Reach:
        """The same, but ending no later than `end_s`."""
        return self if end_s is None or end_s >= self.end_s else _Reach(self.kinds, end_s)


_NOWHERE: Final = _Reach()
_Ways = dict[_Way, _Reach]


class _Link(Struct):
    """A delegation while its state is computed."""

    seq: int
    cid: str
    claims: Payload
    alias: str
    kinds: tuple[str, ...]
    state: State
    """Its state by its own times and by its issuer's and the owner's revocations."""
    by_others: frozenset[str]
    """Other keys that revoked it."""
    found: dict[State, _Reach]
    """Its state at the end of each chain, for which kinds and how long."""

    @property
    def sort(self) -> object:
        """A key that is equal for delegations of one issuer with the same effect."""
        claims = self.claims
        return claims.cmd, claims.subject, self.state, self.by_others, self.kinds

    def beyond(self, ways: _Ways, marked: set[str], owner: str, *, is_first: bool) -> _Ways:
        """The ways to its issuer, continued through this delegation."""
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
        """The result."""
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
    """Walk down from the owner, one link at a time, and store in each link what leads to it."""
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
    """Add new ways to the known ones of a holder; return the new ones."""
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
    """Whether kind filters are within others: a filter covers a narrower one as it does a kind."""
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
