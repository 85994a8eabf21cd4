"""Logs in again after the server has ended a login: asks for another one, for a bounded time.

A member's login is revoked when it may do less than before, which need not be nothing. The gate
that issued the login is asked for another; only if that is refused, or nothing answers for long,
is the connection over.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from antiphon.errors import AntiphonError, EngineDenied, RateLimited, Unavailable

log = logging.getLogger(__name__)

TRIES = 8
"""In one outage; a connection that came up starts again."""
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
ASKED_AGAIN_S = 0.2
"""How soon to look whether there is another login, while the gate has not answered."""
PAUSED_MAX_S = 60.0
"""How long to wait at most before the gate is asked again, whatever it said."""

Renew = Callable[[], Awaitable[None]]
"""Returns when there is another login; `Unavailable` if it is worth asking again."""


class Relogin:
    """Logs one connection in again."""

    def __init__(self, renew: Renew | None, done: Callable[[EngineDenied | None], None]) -> None:
        """`done` is told that there is another login, or why there is none."""
        self._renew = renew
        self._done = done
        self._tries = 0
        self.paused = ""
        """Why there is no other login for a while; empty if that is not so."""
        self._until_s = 0.0
        self._is_back = True
        """Whether the connection has come up since the last pause."""
        self._asking: asyncio.Task[None] | None = None

    def begin(self, ended: EngineDenied) -> bool:
        """Ask for another login in the background; whether there is any hope of one."""
        if self._asking is not None:
            return True
        if self._renew is None or self._tries >= TRIES:
            return False
        self._asking = asyncio.ensure_future(self._ask(self._renew, ended))
        return True

    @property
    def wait_s(self) -> float | None:
        """How long to wait before looking again for another login; None: none is to come."""
        if self._asking is None and self._is_back:
            return None
        return max(self._until_s - asyncio.get_running_loop().time(), ASKED_AGAIN_S)

    def came_up(self) -> None:
        """The present login is accepted."""
        self._tries, self._is_back = 0, True

    def cancel(self) -> None:
        """Stop trying: the connection closes."""
        self._renew = None
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, renew: Renew, ended: EngineDenied) -> None:
        try:
            answer = await self._ask_patiently(renew, ended)
        finally:
            self._asking, self.paused = None, ""
        self._is_back = self._is_back or answer is not None
        self._done(answer)

    async def _ask_patiently(self, renew: Renew, ended: EngineDenied) -> EngineDenied | None:
        while self._tries < TRIES:
            if self._tries:
                bound_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0**self._tries)
                await asyncio.sleep(bound_s * (0.5 + secrets.randbelow(1000) / 2000))
            self._tries += 1
            try:
                await renew()
            except EngineDenied:
                return ended  # not even the login for asking the gate works
            except RateLimited as paused:
                log.warning("%s", paused.message)
                self._tries, self.paused, self._is_back = 0, paused.message, False
                wait_s = min(paused.retry_s, PAUSED_MAX_S)
                self._until_s = asyncio.get_running_loop().time() + wait_s
                await asyncio.sleep(wait_s)
            except Unavailable:
                continue
            except AntiphonError as refused:
                return EngineDenied(f"{ended.message}; {refused.message}", hint=refused.hint)
            return None
        return ended
