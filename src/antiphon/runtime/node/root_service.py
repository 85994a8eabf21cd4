"""Tells the roots of this node's own tree to whoever compares histories (spec §7.5).

Beside every full node that reads the whole log. An answer is signed: a server that shows somebody
another history must not be able to answer in this node's place.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from antiphon.core.archive import told_roots
from antiphon.core.archive.told_roots import MAX_QUESTION_BYTES, TOLD_ROOTS, AskedRoots, ToldRoots
from antiphon.core.bus.subjects import ROOTS
from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt, EngineDenied, Rejected, Unavailable

if TYPE_CHECKING:
    from antiphon.ports import Keyring
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.runtime.replica.replica import Replica

MOST_WAITING: Final = 16


class RootService:
    """Answers for one full node until cancelled."""

    def __init__(self, node: FullNode, keyring: Keyring) -> None:
        """It answers from the node's replica."""
        self._node = node
        self._keyring = keyring

    async def run(self) -> None:
        """Listen for questions."""
        with suppress(EngineDenied):
            await self._answer()

    async def _answer(self) -> None:
        session = self._node.session
        me = (self._keyring.did, self._keyring.sign)
        async with session.engine.bus.subscribe(ROOTS.at(), max_pending=MOST_WAITING) as calls:
            async for call in calls:
                asked = _asked(call.payload) if call.reply else None
                if asked is None or asked.node != self._keyring.did:
                    continue
                try:
                    told = roots_of(self._node.replica, asked.sizes)
                    if told is not None:
                        signed = TOLD_ROOTS.sign(told, me, mesh=session.mesh, subject=call.reply)
                        await session.engine.bus.publish(call.reply, signed)
                except EngineDenied:
                    raise
                except (Unavailable, Rejected, Corrupt):
                    continue  # no engine, not an inbox, a damaged replica: nobody is answered


def _asked(payload: bytes) -> AskedRoots | None:
    if len(payload) > MAX_QUESTION_BYTES:
        return None
    try:
        return told_roots.decode(payload)
    except UNREADABLE:
        return None


def roots_of(replica: Replica, sizes: tuple[int, ...]) -> ToldRoots | None:
    """The roots at these sizes; None where the replica keeps no tree."""
    tree = replica.tree
    if not tree.is_kept or not replica.cursor.seq:
        return None
    size = tree.size_at(replica.cursor.seq)
    path = tree.consistency(sizes[0], size) if sizes and sizes[0] <= size else []
    return ToldRoots(
        size=size,
        root=tree.root_at(size).hex(),
        roots=tuple((one, tree.root_at(one).hex()) for one in sizes if one <= size),
        path=tuple(node.hex() for node in path),
    )
