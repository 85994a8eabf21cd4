"""Who has which permissions from whom: all delegations as a tree from the owner down.

Each delegation appears once, below its issuer, with its state (`core/authority/grant_reach.py`). A
node with permissions from several issuers appears below each of them; its own delegations appear
below one. Those that no chain reaches are listed separately.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.grant_reach import Grant, State, appraise
from antiphon.core.ucan import MAX_LINKS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from antiphon.core.authority.control import Control

MIN_FRAGMENT: Final = 4
"""Fewer characters of an id identify nobody."""
_RESERVED: Final = frozenset({"owner", "coordinator"})


class Holder(Struct, frozen=True, kw_only=True):
    """A node that has been granted something, in one place of the tree."""

    did: str
    alias: str
    grants: tuple[Grant, ...]
    """Grants by the holder above, oldest first."""
    children: tuple[Holder, ...] = ()
    is_elsewhere: bool = False
    """It also appears elsewhere, and its own delegations are listed there."""
    is_quarantined: bool = False


class Name(Struct, frozen=True):
    """An alias that one node gave another."""

    issuer: str
    audience: str
    alias: str
    is_live: bool
    """Whether the grant with this alias is live."""


class GrantTree(Struct, frozen=True, kw_only=True):
    """The whole tree at one moment."""

    owner: str
    holders: tuple[Holder, ...]
    """Nodes with grants by the owner itself."""
    void: tuple[Grant, ...]
    """Delegations that no chain reaches, oldest first."""
    names: dict[str, str]
    """The name of each holder: by the owner, or else by another issuer."""
    said: tuple[Name, ...]
    """Every alias that was given."""

    def grants(self) -> Iterator[Grant]:
        """Every grant in the tree."""
        left = deque(self.holders)
        while left:
            holder = left.popleft()
            yield from holder.grants
            left.extend(holder.children)

    def live_to(self, did: str) -> list[Grant]:
        """The live grants to a node."""
        return [one for one in self.grants() if one.audience == did and one.state is State.LIVE]

    def member(self, did: str) -> str:
        """What to call the node with a grant by the owner that a node's grants come from.

        That is the machine: its processes have keys of their own, to which it passes grants on.
        """
        issuers = {one.audience: one.issuer for one in self.grants() if one.issuer != one.audience}
        for _ in range(MAX_LINKS):
            above = issuers.get(did, self.owner)
            if above == self.owner:
                break
            did = above
        return self.names.get(did, did[-8:])

    def nodes_called(self, text: str, *, trusted: frozenset[str], known: Iterable[str]) -> set[str]:
        """The nodes that a text may mean: an id, the end of one, or an alias.

        Aliases by the owner or by `trusted` come before those by others, otherwise anyone could
        impersonate a node; and live ones before ended ones.
        """
        dids = {*known, self.owner, *(one.audience for one in self.grants())}
        if text in dids:
            return {text}
        by_id = {did for did in dids if len(text) >= MIN_FRAGMENT and did.endswith(text)}
        named: dict[tuple[bool, bool], set[str]] = {}
        for name in self.said:
            if name.alias == text:
                is_near = name.issuer == self.owner or name.issuer in trusted
                named.setdefault((is_near, name.is_live), set()).add(name.audience)
        near = by_id | named.get((True, True), set())
        tiers = (
            near,
            *(named.get(tier) for tier in ((True, False), (False, True), (False, False))),
        )
        return next((found for found in tiers if found), set())


def trace(control: Control, now_s: int) -> GrantTree:
    """The tree at `now_s`, from everything on the log."""
    grants = appraise(control, now_s)
    reached = [grant for grant in grants if grant.state is not State.VOID]
    said = tuple(
        Name(grant.issuer, grant.audience, grant.alias, grant.state is State.LIVE)
        for grant in reached
        if grant.alias
    )
    names = _names(control.owner, said)
    return GrantTree(
        owner=control.owner,
        holders=_tree(control, reached, names),
        void=tuple(grant for grant in grants if grant.state is State.VOID),
        names=names,
        said=said,
    )


def is_reserved(alias: str) -> bool:
    """Whether an alias has another meaning wherever a node can be named."""
    return alias in _RESERVED or alias.startswith("did:")


def bearers(control: Control, alias: str, now_s: int, *, namers: Collection[str]) -> set[str]:
    """The nodes that already have this name: by a live grant of one of `namers`, or by id."""
    links, text = control.grants.everything(), alias.encode()
    is_fragment = len(alias) >= MIN_FRAGMENT
    by_id = {one.audience for one in links if is_fragment and one.audience.endswith(alias)}
    # Computing the state of every grant takes a while, and most names are new.
    if not any(one.issuer in namers and text in one.raw for one in links):
        return by_id
    return by_id | {
        name.audience
        for name in trace(control, now_s).said
        if name.alias == alias and name.is_live and name.issuer in namers
    }


def _names(owner: str, said: tuple[Name, ...]) -> dict[str, str]:
    """One name each: the owner's first, then those of live grants, then the newest.

    Powerlines count like other grants: a process has the name that its machine gave it.
    """
    best: dict[str, tuple[bool, bool]] = {}
    names: dict[str, str] = {}
    for name in said:
        rank = (name.issuer == owner, name.is_live)
        if rank >= best.get(name.audience, rank):
            best[name.audience], names[name.audience] = rank, name.alias
    return names


def _tree(control: Control, grants: list[Grant], names: dict[str, str]) -> tuple[Holder, ...]:
    """Each holder below every issuer of its grants; its own delegations below the first."""
    pairs: dict[str, dict[str, list[Grant]]] = {}
    for grant in grants:
        pairs.setdefault(grant.issuer, {}).setdefault(grant.audience, []).append(grant)
    place = {control.owner: ""}
    # Live grants first, so that live ones are listed below live ones.
    for only_live in (True, False):
        waiting = deque(place)
        while waiting:
            giver = waiting.popleft()
            for holder, held in pairs.get(giver, {}).items():
                is_live = any(grant.state is State.LIVE for grant in held)
                if holder not in place and (is_live or not only_live):
                    place[holder] = giver
                    waiting.append(holder)

    def below(giver: str) -> tuple[Holder, ...]:
        return tuple(
            Holder(
                did=did,
                alias=names.get(did, ""),
                grants=tuple(held),
                children=below(did) if place[did] == giver else (),
                is_elsewhere=place[did] != giver and did in pairs,
                is_quarantined=control.is_quarantined(did),
            )
            for did, held in pairs.get(giver, {}).items()
        )

    return below(control.owner)
