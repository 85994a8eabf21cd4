"""Who may do what, for a page: the tree of grants, which key acts here, and what an act ended.

A machine acts with the strongest key that it has: the owner's, or its own. That key signs here for
moments only, as it does for `antiphon revoke` and `antiphon invite`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.grant_reach import Grant, State
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.ids import short_node
from antiphon.errors import Rejected
from antiphon.sdk.authority.delegation import in_words, right_words
from antiphon.sdk.hosting.hosted_mesh import invite, write_ticket
from antiphon.sdk.hosting.strongest_key import MACHINE_KEY, OWNER_KEY, with_authority

if TYPE_CHECKING:
    from antiphon.sdk.authority.delegation import Holder, Holdings, Revoked
    from antiphon.sdk.mesh import Mesh, StateDirectory

LEAVES: Final = 300
"""Of the tree, on one page."""
_DAY_S: Final = 86_400
SOON_S: Final = _DAY_S
TARGETS: Final = 64
"""Grants that one act revokes at most."""
TERMS_S: Final = {
    "1d": _DAY_S,
    "7d": 7 * _DAY_S,
    "30d": 30 * _DAY_S,
    "90d": 90 * _DAY_S,
    "never": 0,
}
"""How long a machine that is invited may stay."""
WITHIN_S: Final = 15 * 60


class Leaf(Struct, kw_only=True):
    """A holder at one place in the tree."""

    name: str
    id: str
    rights: str
    ends_s: int | None
    """When the first of its grants ends; None: never, or it has ended."""
    is_soon: bool
    """Whether that is within a day."""
    ended: str
    """Why it has nothing any more: `revoked`, `expired`; empty: it has."""
    notes: list[str]
    revocable: list[str]
    """Grants that the key which acts here can revoke."""
    below: list[Leaf]


class Acting(Struct, frozen=True):
    """The key that acts on this machine."""

    name: str
    """`owner` or `machine`; empty: neither is here."""
    did: str = ""


class AuthorityView(Struct, frozen=True, kw_only=True):
    """The page."""

    held: Holdings
    tree: list[Leaf]
    holders: int
    """With a grant in force."""
    ended: int
    """Grants that are not in force."""
    is_cut: bool
    acting: Acting
    can_invite: bool
    words: list[str]
    """What a grant may permit."""


class Ended(Struct, frozen=True, kw_only=True):
    """What a revocation ended, in words."""

    revoked: list[str]
    below: list[str]
    jobs: list[tuple[str, str]]
    """Jobs that were held under it: kind and id."""


class Invited(Struct, frozen=True, kw_only=True):
    """A ticket, and what it grants."""

    ticket: str
    alias: str
    rights: str
    until_s: int | None


def acting_key(home: StateDirectory) -> Acting:
    """The strongest key of this machine."""
    for name in (OWNER_KEY, MACHINE_KEY):
        if home.has_key(name):
            return Acting(name, home.signer(name).did)
    return Acting("")


def can_invite(home: StateDirectory) -> bool:
    """Whether tickets can be made here: at the gate, with the owner's key."""
    return home.has_key(OWNER_KEY) and (home.server / "accounts.json").is_file()


async def authority_view(mesh: Mesh, *, show_all: bool) -> AuthorityView:
    """The tree as it is on the log now."""
    held, acting = await mesh.authority.who(), acting_key(mesh.home)
    free = mesh.authority.revocable(held, by=acting.did) if acting.name else frozenset()
    left = [LEAVES]
    tree = _leaves(held.tree.holders, held, free, left, show_all=show_all)
    grants = list(held.tree.grants())
    live = [one for one in grants if one.state is State.LIVE]
    return AuthorityView(
        held=held,
        tree=tree,
        holders=len({one.audience for one in live}),
        ended=len(grants) - len(live),
        is_cut=left[0] <= 0,
        acting=acting,
        can_invite=can_invite(mesh.home),
        words=right_words(),
    )


def _leaves(
    holders: Sequence[Holder],
    held: Holdings,
    free: frozenset[str],
    left: list[int],
    *,
    show_all: bool,
) -> list[Leaf]:
    found = []
    for holder in holders:
        live = [one for one in holder.grants if one.state is State.LIVE]
        if (live or show_all) and left[0] > 0:
            left[0] -= 1
            leaf = _leaf(holder, live, held, free)
            leaf.below = _leaves(holder.children, held, free, left, show_all=show_all)
            found.append(leaf)
    return found


def _leaf(holder: Holder, live: list[Grant], held: Holdings, free: frozenset[str]) -> Leaf:
    ends = [one.ends_s for one in live if one.ends_s is not None]
    notes = ["this process"] * (holder.did == held.me)
    notes += ["the coordinator"] * (holder.did == held.coordinator)
    notes += ["what it delegated is shown elsewhere"] * holder.is_elsewhere
    notes += ["quarantined: everything from it is rejected"] * holder.is_quarantined
    return Leaf(
        name=holder.alias or short_node(holder.did),
        id=short_node(holder.did),
        rights=in_words(live or holder.grants),
        ends_s=min(ends, default=None),
        is_soon=bool(ends) and min(ends) - held.now_s < SOON_S,
        ended="" if live else _ended(holder.grants),
        notes=notes,
        revocable=[one.cid for one in islice(live, TARGETS) if one.cid in free],
        below=[],
    )


def _ended(grants: Iterable[Grant]) -> str:
    states = {one.state for one in grants}
    if State.NOT_YET in states:
        return "not yet"
    return "revoked" if State.REVOKED in states else "expired"


async def revoke(home: StateDirectory, cids: Sequence[str]) -> Ended:
    """Revoke these grants, by their whole ids."""
    if not 0 < len(cids) <= TARGETS or not all(one.startswith("bafy") for one in cids):
        raise Rejected("these are no grants", reason="no_grant", hint="antiphon who lists them")
    async with with_authority(home.path) as mesh:
        ended = await mesh.authority.revoke(*cids)
        held = await mesh.authority.who()
    return _told(ended, held)


def _told(ended: Revoked, held: Holdings) -> Ended:
    def named(grants: Iterable[Grant]) -> list[str]:
        by_node: dict[str, list[Grant]] = {}
        for one in grants:
            by_node.setdefault(one.audience, []).append(one)
        return [f"{held.called(node)}: {in_words(its)}" for node, its in by_node.items()]

    return Ended(
        revoked=named(ended.grants),
        below=named(ended.below),
        jobs=[(job.kind, job.id) for job in ended.jobs],
    )


def make_ticket(
    home: StateDirectory, *, can: Sequence[str], kinds: str, alias: str, until: str
) -> Invited:
    """A ticket with which one machine can join."""
    if until not in TERMS_S:
        raise Rejected(f"{until!r} is none of {', '.join(TERMS_S)}", reason="until")
    until_s = int(time.time()) + TERMS_S[until] if TERMS_S[until] else None
    globs = tuple(kinds.replace(",", " ").split()) or ("*",)
    terms = Terms(can=tuple(can), kinds=globs, until_s=until_s, alias=alias.strip())
    ticket = invite(home, terms, within_s=WITHIN_S)
    return Invited(
        ticket=write_ticket(ticket),
        alias=terms.alias or "one machine",
        rights=f"{', '.join(terms.can)} {', '.join(terms.kinds)}",
        until_s=until_s,
    )
