"""For whom a node acts: its *party* (spec §9).

A party is the owner, or the key that the owner delegated to directly. Whatever that key delegates
further counts as its own: it can make as many keys as it likes. So votes and bounds are counted by
party, never by key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control


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
