"""What control says now, for many requests with few reads of the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.core.messages.send_right import NodeRights, rights_of
from antiphon.runtime.rights_cache import RightsCache

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.runtime.log.session import Session

MAX_RIGHTS = 4096


class ControlReads:
    """Shares reads between requests that come at the same time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._running: asyncio.Task[None] | None = None
        self._queued: asyncio.Task[None] | None = None
        self._rights = RightsCache(session, self._ask, most=MAX_RIGHTS)

    async def fresh(self) -> Control:
        """Control with everything that was on the log when this was called."""
        if self._queued is None:
            self._queued = asyncio.ensure_future(self._sync_after(self._running))
        await asyncio.shield(self._queued)
        return self._session.control

    async def _sync_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait((running,))
        # Whoever asks from here on may know of a record that this read misses.
        self._running, self._queued = self._queued, None
        await self._session.sync_control()

    def rights(self, node: str) -> NodeRights:
        """A node's rights as control is now; computed once per change."""
        return self._rights.of(node)

    def _ask(self, node: str) -> NodeRights:
        return rights_of(self._session.control, node)
