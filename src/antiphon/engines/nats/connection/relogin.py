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
        self._asking: asyncio.Task[None] | None = None

    def begin(self, ended: EngineDenied) -> bool:
        """Ask for another login in the background; whether there is any hope of one."""
        if self._asking is not None:
            return True
        if self._renew is None or self._tries >= TRIES:
            return False
        self._asking = asyncio.ensure_future(self._ask(self._renew, ended))
        return True

    def came_up(self) -> None:
        """The present login is accepted."""
        self._tries = 0

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
                self._tries, self.paused = 0, paused.message
                await asyncio.sleep(min(paused.retry_s, PAUSED_MAX_S))
            except Unavailable:
                continue
            except AntiphonError as refused:
                return EngineDenied(f"{ended.message}; {refused.message}", hint=refused.hint)
            return None
        return ended
