"""Listening to somebody only as fast as one cares to: a flood becomes one that nobody hears.

The server limits nobody's rate, and whoever listens has to take in what comes, if only to drop it.
So a listener that gets more than its bound stops listening: the server then drops the flood
itself. It listens again after a pause, which doubles while the flood goes on. What was sent
meanwhile is lost; where an answer is awaited the server says at once that nobody is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon.engines.nats import wire
from antiphon.engines.nats.connection import Connection, Listener
from antiphon.errors import EngineDenied

INTERVAL_S: Final = 0.25
PAUSE_FIRST_S: Final = 0.25
PAUSE_MAX_S: Final = 4.0


class MeteredListener:
    """`Connection.listen` with a bound on messages per `INTERVAL_S`."""

    def __init__(
        self,
        connection: Connection,
        subject: str,
        handler: wire.Handler,
        *,
        bound: int,
        queue: str = "",
        denied: Callable[[EngineDenied], None] | None = None,
    ) -> None:
        """Listens at once."""
        self._connection = connection
        self._subject, self._handler = subject, handler
        self._queue, self._denied = queue, denied
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()
        self._count = 0
        self._pause_s = PAUSE_FIRST_S
        self._reopening: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None
        self._listen()

    @property
    def is_listening(self) -> bool:
        """Whether anything is heard now."""
        return self._listener is not None

    def close(self) -> None:
        """Stop for good; safe twice."""
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
        self._unlisten()

    def _listen(self) -> None:
        self._reopening = None
        self._since_s, self._count = self._loop.time(), 0
        self._listener = self._connection.listen(
            self._subject, self._on_message, denied=self._denied, queue=self._queue
        )

    def _unlisten(self) -> None:
        if self._listener is not None:
            self._connection.unlisten(self._listener)
            self._connection.write_out()  # now: what is on its way grows meanwhile
            self._listener = None

    def _on_message(self, subject: bytes, reply: bytes, payload: bytes, header: bytes) -> None:
        now_s = self._loop.time()
        if now_s - self._since_s > INTERVAL_S:
            # A whole interval within the bound: whatever was, is over.
            self._since_s, self._count, self._pause_s = now_s, 0, PAUSE_FIRST_S
        self._count += 1
        if self._count > self._bound:
            self._unlisten()
            self._reopening = self._loop.call_later(self._pause_s, self._listen)
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
            return
        self._handler(subject, reply, payload, header)
