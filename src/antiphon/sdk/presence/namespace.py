"""`mesh.presence`: who is online on the mesh, and who came and went (docs/do/presence.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.sdk.defaults import CHANGES_SHOWN, ROLL_CALL_S, STALE_MS
from antiphon.sdk.environment import read_environment

if TYPE_CHECKING:
    from antiphon.core.presence.cards import Card
    from antiphon.ports import EngineInfo
    from antiphon.runtime.presence.live_nodes import LiveNode as LiveNode  # noqa: PLC0414 - interfaces
    from antiphon.runtime.presence.presence_changes import KeptChange as KeptChange  # noqa: PLC0414 - interfaces
    from antiphon.sdk.connection.connection import Connection


class Presence:
    """Who is online."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.presence`."""
        self._connection = connection

    async def roll_call(self, *, wait_s: float = ROLL_CALL_S) -> list[Card]:
        """The nodes that answer a roll call right now: every one of them is asked."""
        from antiphon.runtime.presence.roll_call import roll_call

        return await roll_call(self._connection.session, wait_s=wait_s)

    async def live(
        self, stale_threshold_ms: int = STALE_MS, *, wait_s: float = ROLL_CALL_S
    ) -> list[LiveNode]:
        """The nodes whose last heartbeat is not older than this, by one node's answer for all.

        `wait_s` counts where no full node can answer, and everybody is asked.
        """
        from antiphon.runtime.presence.live_nodes import live_nodes

        return await live_nodes(
            self._connection.session, stale_ms=stale_threshold_ms, wait_s=wait_s
        )

    async def live_and_dead(
        self, stale_threshold_ms: int = STALE_MS, *, wait_s: float = ROLL_CALL_S
    ) -> tuple[list[LiveNode], list[LiveNode]]:
        """The same, and the nodes that died within the last day and were not dismissed.

        Only a full node remembers those that died, so it takes one that answers for all.
        """
        from antiphon.runtime.presence.live_nodes import live_and_dead_nodes

        session = self._connection.session
        live, dead = await live_and_dead_nodes(session, stale_ms=stale_threshold_ms, wait_s=wait_s)
        if dead:
            dismissed, now_ms = await self._connection.dismissals.read(), session.wall.now_ms()
            dead = [
                one
                for one in dead
                if not dismissed.covers_node(one.card.node, now_ms - one.silent_ms)
            ]
        return live, dead

    async def changes(self, *, last: int = CHANGES_SHOWN) -> list[KeptChange]:
        """Which nodes came, fell silent and went, as this machine's full node noticed it."""
        async with self._connection.replica() as replica:
            return replica.presence.newest(limit=last)

    async def engine(self) -> EngineInfo:
        """What the engine reports about itself."""
        connection = self._connection
        if connection.memory is not None:
            return await connection.engine.info()
        from antiphon.assembly import engine_info

        return await engine_info(connection.home, token=read_environment().token)
