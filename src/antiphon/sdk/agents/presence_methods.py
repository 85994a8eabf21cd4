"""Who is online on the mesh, and who came and went (docs/presence.md)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from antiphon.sdk.defaults import CHANGES_SHOWN, ROLL_CALL_S, STALE_MS

if TYPE_CHECKING:
    from antiphon.core.presence.cards import Card
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.node.replica import Replica
    from antiphon.runtime.presence.live_nodes import LiveNode as LiveNode  # noqa: PLC0414 - interfaces
    from antiphon.runtime.presence.presence_changes import KeptChange as KeptChange  # noqa: PLC0414 - interfaces


class PresenceMethods:
    """A part of `Mesh`."""

    @property
    def session(self) -> Session:
        """The session that reads and writes the log."""
        raise NotImplementedError

    def replica(self) -> AbstractAsyncContextManager[Replica]:
        """The local replica, up to date."""
        raise NotImplementedError

    async def nodes(self, *, wait_s: float = ROLL_CALL_S) -> list[Card]:
        """The nodes that answer a roll call right now: every one of them is asked."""
        from antiphon.runtime.presence.roll_call import roll_call

        return await roll_call(self.session, wait_s=wait_s)

    async def live_nodes(
        self, stale_threshold_ms: int = STALE_MS, *, wait_s: float = ROLL_CALL_S
    ) -> list[LiveNode]:
        """The nodes whose last heartbeat is not older than this, by one node's answer for all.

        `wait_s` counts where no full node can answer, and everybody is asked.
        """
        from antiphon.runtime.presence.live_nodes import live_nodes

        return await live_nodes(self.session, stale_ms=stale_threshold_ms, wait_s=wait_s)

    async def presence_changes(self, *, last: int = CHANGES_SHOWN) -> list[KeptChange]:
        """Which nodes came, fell silent and went, as this machine's full node noticed it."""
        async with self.replica() as replica:
            return replica.presence.newest(limit=last)
