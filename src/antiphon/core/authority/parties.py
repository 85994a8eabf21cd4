"""For whom a node acts: its *party* (spec §9).

A party is the owner, or the key that the owner delegated to directly. Whatever that key delegates
further counts as its own: it can make as many keys as it likes. So votes and bounds are counted by
party, never by key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.chain_choice import chains_to
from antiphon.core.authority.scope import admits, has_ended, kinds_of_chain
from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.ucan import TOP, covers

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.ucan import Payload

REMEMBERED: Final = 4096
REMEMBERED_BYTES: Final = 1024 * 1024
"""Limits of the cache of parties by key: number, and bytes of their names."""
_NO_END: Final = 2**63

_known_parties: Final = BoundedCache[tuple[str, int, str], str](
    most=REMEMBERED, most_bytes=REMEMBERED_BYTES
)


def party_of(control: Control, node: str, auth: tuple[str, ...], *, before: int) -> str:
    """The party of a node that acted under these delegations before a sequence.

    Empty if that cannot be told. On an open mesh every key is its own party.
    """
    if control.rules.authority == "open" or node == control.owner:
        return node
    chain = control.grants.chain(control.owner, auth, before=before) if auth else None
    if chain is None or chain.fault is not None or chain.holder != node:
        return ""
    return chain.links[0].payload.aud


def whose(auth: tuple[str, ...], author: str) -> str:
    """For whom an op counts: the first delegation that it names, or its author if it names none.

    Whoever passes its permission on cannot make another: only the owner issues first delegations.
    On an open mesh nobody looks at what an op names, so it could be somebody else's key.
    """
    return auth[0] if auth and not auth[0].startswith("did:") else author


def party_behind(control: Control, counted: str) -> str:
    """The party behind what `whose` gave."""
    link = control.grants.find(counted, before=_NO_END)
    return counted if link is None else link.audience


def party_of_key(control: Control, node: str) -> str:
    """The party that a key most likely acts for, if nothing says under which delegations it did."""
    if control.rules.authority == "open" or node == control.owner:
        return node
    asked = (control.owner, control.grants.revision, node)
    known = _known_parties.get(asked)
    if known is None:
        chains = chains_to(control.grants, control.owner, node, before=_NO_END)
        known = chains[0].links[0].payload.aud if chains else node
        _known_parties.put(asked, known, len(known))
    return known


def members_for(control: Control, command: str, kind: str, now_s: int) -> frozenset[str]:
    """The members that may use a command for a kind now: each is a party, online or not.

    Without the keys that the owner's own processes sign with. Each of those is a party too, but
    whether it will ever run anything is not on the log.
    """
    grants, found = control.grants, set[str]()
    for link in grants.everything():
        if link.issuer != control.owner or link.audience in found or _is_own(link.payload):
            continue
        chain = grants.chain(control.owner, (link.cid,), before=_NO_END)
        if chain is None or chain.fault is not None or has_ended(control, chain, now_s):
            continue
        may = covers(chain.command, command) and any(
            admits(one, kind) for one in kinds_of_chain(chain)
        )
        if may and not control.is_quarantined(link.audience):
            found.add(link.audience)
    route = control.route_for(kind)
    return frozenset(found if route is None else found & {route})


def _is_own(given: Payload) -> bool:
    """Whether it is what the owner gives to a process of its own: everything, without end."""
    return given.cmd == TOP and given.exp is None and not given.pol.source
