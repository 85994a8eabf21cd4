"""Where the dashboard's pages come from: one mesh, and the node beside it if there is one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from antiphon.errors import Unavailable
from antiphon.guard import Guard
from antiphon.sdk.mesh import Mesh

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import FullNode

APPLIED_S: Final = 2.0
"""How long an act waits until the node has read what it wrote."""
LOOK_S: Final = 2.0
"""How often the log is looked at where no node runs in this process."""


class Source:
    """A mesh as the pages see it.

    With a node, what is read comes from the replica that it keeps in this process: nothing is
    opened or waited for, and it has the kinds that the node may read and no others. What a person
    does is signed with the key of the mesh.
    """

    def __init__(self, mesh: Mesh, name: str, node: FullNode | None = None) -> None:
        self.mesh = mesh if node is None else Mesh(mesh.connection.beside(node.replica))
        self.name = name
        self._node = node
        self._own_guard = Guard()

    @property
    def guard(self) -> Guard:
        """Counts whom this process answers: the node's, if one runs here."""
        return self._own_guard if self._node is None else self._node.guard

    @property
    def signs_as(self) -> str:
        """The key that acts are signed with, as people call it."""
        return self.mesh.alias or self.mesh.did[-8:]

    async def read_back(self) -> None:
        """Wait until the node has read what was just written, so that the next page has it."""
        if self._node is None:
            return
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(APPLIED_S):
                newest = await self.mesh.connection.session.log.last()
                await self._node.reached(newest.seq if newest is not None else 0)

    async def news(self, applied: int) -> int:
        """Wait for a record after this one; the newest that has been verified."""
        if self._node is not None:
            await self._node.reached(applied + 1)
            return self._node.applied
        while True:
            async with self.mesh.replica() as replica:
                newest = replica.cursor.seq
            if newest > applied:
                return newest
            await asyncio.sleep(LOOK_S)
