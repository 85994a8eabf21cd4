"""How nodes are named on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from antiphon.interfaces.cli.screen.options import short_node

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh

NodeName = Callable[[str], str]
ASKED_S: Final = 0.25
"""Where names are only nice to have: how long nodes have to say theirs."""


async def aliases(mesh: Mesh, nodes: Iterable[str]) -> dict[str, str]:
    """The names of these nodes, as far as they have any."""
    from antiphon.sdk.dashboard.node_names import aliases as known

    return await known(mesh, nodes)


async def node_names(mesh: Mesh, nodes: Iterable[str]) -> NodeName:
    """How to call each of these nodes."""
    names = await aliases(mesh, nodes)
    return lambda did: names.get(did) or short_node(did)
