"""What control says now, for many requests with few reads of the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.core.messages.send_right import NodeRights, rights_of

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
        self._rights: dict[str, NodeRights] = {}
        self._state: tuple[int, int] = (-1, -1)

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
        control = self._session.control
        state = (control.since, control.grants.revision)
        if state != self._state or len(self._rights) >= MAX_RIGHTS:
            self._state = state
            self._rights.clear()
        found = self._rights.get(node)
        if found is None:
            found = self._rights[node] = rights_of(control, node)
        return found
