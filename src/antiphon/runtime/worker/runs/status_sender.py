"""Sends what a worker says about its jobs: one claim per job on every beat and every change.

Claims are on the bus, signed, and stored nowhere. They never hold a job up: one task sends what is
newest of each job, and what cannot be sent is dropped. A job that ends within its first beat sends
none.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from antiphon.core.bus.subjects import STATUS
from antiphon.errors import AntiphonError
from antiphon.runtime.tempo.tempo_messages import STATUS_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from antiphon.core.tempo.messages import StatusClaim
    from antiphon.runtime.log.session import Session

MOST_WAITING: Final = 1_024
"""Jobs whose newest claim waits to be sent; more are dropped."""
SEND_S: Final = 5.0


class StatusSender:
    """What one worker says of its jobs."""

    def __init__(
        self,
        session: Session,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """Nothing is sent yet."""
        self.sent = 0
        self.cpu: Callable[[], float | None] = lambda: None
        """How much of this machine's processors is in use, for whoever wants claims to say it."""
        self._session = session
        self._spawn = spawn
        self._waiting: dict[tuple[str, str], StatusClaim] = {}
        """By kind and task, the newest."""
        self._sending: asyncio.Task[None] | None = None

    def say(self, kind: str, claim: StatusClaim) -> None:
        """Send it soon, unless a newer one of the same job comes first."""
        key = (kind, claim.task_id)
        if len(self._waiting) >= MOST_WAITING and key not in self._waiting:
            return
        self._waiting[key] = replace(claim, cpu=self.cpu())
        if self._sending is None:
            self._sending = self._spawn(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                key = next(iter(self._waiting))
                with suppress(AntiphonError, TimeoutError):
                    async with asyncio.timeout(SEND_S):
                        await self._send(key[0], self._waiting.pop(key))
        finally:
            self._sending = None

    async def _send(self, kind: str, claim: StatusClaim) -> None:
        session, where = self._session, STATUS.at(kind=kind)
        signer = (session.author.did, session.author.vouch)
        payload = STATUS_CLAIMS.sign(
            claim, signer, mesh=session.mesh, subject=where, at_ms=session.wall.now_ms()
        )
        await session.engine.bus.publish(where, payload)
        self.sent += 1
