"""What people call nodes: the owner's word first, then their own, else the end of the id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from antiphon.core.record.ids import short_node

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh

ASKED_S: Final = 0.25
"""Only to find names, where no full node answers for all: who answers later is shown by its id."""


def in_order(name: str) -> list[tuple[str, int]]:
    """Sorts names as people do: `worker-2` before `worker-10`."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d{0,9})", name)]


async def aliases(mesh: Mesh, nodes: Iterable[str]) -> dict[str, str]:
    """The names of these nodes, as far as they have any.

    Who has no grant is asked. A name that two of them have is followed by the end of the id.
    """
    held, wanted = await mesh.authority.who(), dict.fromkeys(did for did in nodes if did)
    names = {did: alias for did, alias in held.tree.names.items() if did in wanted}
    names |= {did: "owner" for did in wanted if did == held.owner}
    if mesh.did in wanted:
        names.setdefault(mesh.did, mesh.alias)
    if wanted.keys() - names.keys():
        cards = [one.card for one in await mesh.presence.live(wait_s=ASKED_S)]
        names |= {one.node: one.alias for one in cards if one.node in wanted.keys() - names.keys()}
    times = Counter(names.values())
    return {
        did: name if times[name] == 1 else f"{name} {short_node(did)}"
        for did in wanted
        if (name := names.get(did, ""))
    }
