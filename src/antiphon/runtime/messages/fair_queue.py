"""A queue in which users take turns: nobody's requests delay another's by more than one each.

Bounds: requests in service, in all and of one user, and those of one user that wait. Beyond the
last the user is told (`RateLimited`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from antiphon.errors import RateLimited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

AT_ONCE: Final = 64
AT_ONCE_OF_USER: Final = 8
WAITING_OF_USER: Final = 256
BUSY_S: Final = 0.25


class FairQueue:
    """Turns, by user."""

    def __init__(
        self,
        *,
        at_once: int = AT_ONCE,
        of_user: int = AT_ONCE_OF_USER,
        waiting: int = WAITING_OF_USER,
    ) -> None:
        """Nobody is in service."""
        self._free = at_once
        self._of_user = of_user
        self._most_waiting = waiting
        self._serving: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait for this user's turn, and hold it for the block."""
        await self._enter(user)
        try:
            yield
        finally:
            self._leave(user)

    async def _enter(self, user: str) -> None:
        if self._free and user not in self._waiting and self._serving[user] < self._of_user:
            self._admit(user)
            return
        line = self._waiting.setdefault(user, deque())
        if len(line) >= self._most_waiting:
            raise RateLimited(
                f"{len(line)} requests of this machine are waiting already", retry_s=BUSY_S
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(user)  # it was admitted in the same moment
            elif turn in line:
                line.remove(turn)
                if not line:
                    self._waiting.pop(user, None)
            raise

    def _admit(self, user: str) -> None:
        self._free -= 1
        self._serving[user] += 1

    def _leave(self, user: str) -> None:
        self._free += 1
        self._serving[user] -= 1
        if not self._serving[user]:
            del self._serving[user]
        self._call_next()

    def _call_next(self) -> None:
        """Admit the first of each user in turn, while there is room."""
        for user in list(self._waiting):
            if not self._free:
                return
            if self._serving[user] >= self._of_user:
                continue
            line = self._waiting.pop(user)
            while line:
                turn = line.popleft()
                if not turn.done():
                    self._admit(user)
                    turn.set_result(None)
                    break
            if line:
                self._waiting[user] = line  # at the end: the others are first
