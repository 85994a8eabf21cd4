"""For whom a node acts: its *party* (spec §9).

A party is the owner, or the key that the owner delegated to directly. Whatever that key delegates
further counts as its own: it can make as many keys as it likes. So votes and bounds are counted by
party, never by key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.scope import admits, has_ended, kinds_of_chain
from antiphon.core.ucan import TOP, covers

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.ucan import Payload

_NO_END: Final = 2**63


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
