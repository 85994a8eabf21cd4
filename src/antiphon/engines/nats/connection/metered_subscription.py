"""A subscription with a rate limit: the server itself drops a flood.

The server does not limit publishers, and a subscriber has to receive every message, if only to
drop it. So a subscription here has a message limit at the server, and another one replaces it
while messages come at an acceptable rate. After too many in an interval none does: the server
forgets the subscription and drops the flood itself. It is made again after a pause, which doubles
while the flood continues. What was sent meanwhile is lost; where an answer is awaited the server
reports at once that there are no responders.

The limit applies where the listener is in the sender's own account. Across the border between
members and mesh (`accounts`) the server has a copy of the subscription without a limit: there a
flood continues until the listener itself gets to unsubscribe.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from antiphon.core.record.subjects import matches
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.subscription import Subscription
from antiphon.errors import EngineDenied

INTERVAL_S: Final = 0.25
UNIT_BYTES: Final = 1024
"""A message counts as one, and one more for each of these."""
PAUSE_FIRST_S: Final = 0.25
PAUSE_MAX_S: Final = 4.0
LINGER_S: Final = 2.0
"""How long what was on its way to a subscription is still taken in after its end."""


class MeteredSubscription:
    """`Connection.listen` with a bound on messages, and their KiB, per `INTERVAL_S`."""

    def __init__(  # noqa: PLR0913 - one argument per thing that a service can ask for
        self,
        connection: Connection,
        subject: str,
        handler: wire.Handler,
        *,
        bound: int,
        refuse: wire.Handler | None = None,
        queue: str = "",
        denied: Callable[[EngineDenied], None] | None = None,
    ) -> None:
        """Listens at once; `refuse` gets what was too much and had been sent already."""
        self._connection = connection
        self._subject, self._handler, self._denied = subject, handler, denied
        self._refuse = refuse or _drop
        # Of two subscriptions that replace each other, one must receive each message.
        self._queue = queue or secrets.token_hex(8)
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._since_s, self._units = self._loop.time(), 0
        self._pause_s = PAUSE_FIRST_S
        self._reopening: asyncio.TimerHandle | None = None
        self._listener: Subscription | None = None
        self._listen()

    def close(self) -> None:
        """Stop for good; safe twice."""
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
        self._refuse = _drop
        self._unlisten()

    def _listen(self) -> None:
        self._heard = 0
        self._listener = self._connection.listen(
            self._subject,
            self._on_message,
            denied=self._denied,
            queue=self._queue,
            limit=self._bound,
        )

    def _unlisten(self) -> None:
        if self._listener is not None:
            self._connection.unlisten(self._listener, linger_s=LINGER_S)
            self._connection.write_out()  # now: what is on its way grows meanwhile
            self._listener = None

    def _on_message(self, subject: bytes, reply: bytes, payload: bytes, header: bytes) -> None:
        if not matches(self._subject, wire.read_subject(subject)):
            return  # a delivery, which the server sends to any place and under its own subject
        if self._listener is None:
            self._refuse(subject, reply, payload, header)
            return
        now_s = self._loop.time()
        if now_s - self._since_s > INTERVAL_S:
            # A whole interval within the bound: the flood is over.
            self._since_s, self._units, self._pause_s = now_s, 0, PAUSE_FIRST_S
        self._units += 1 + len(payload) // UNIT_BYTES
        if self._units > self._bound:
            self._unlisten()
            self._reopening = self._loop.call_later(self._pause_s, self._reopen)
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
            self._refuse(subject, reply, payload, header)
            return
        self._heard += 1
        if self._heard >= self._bound // 2:
            before = self._listener
            self._listen()
            self._connection.unlisten(before, linger_s=LINGER_S)
        self._handler(subject, reply, payload, header)

    def _reopen(self) -> None:
        self._reopening = None
        self._since_s, self._units = self._loop.time(), 0
        self._listen()


def _drop(_subject: bytes, _reply: bytes, _payload: bytes, _header: bytes) -> None:
    """No answer is awaited, or none should be sent."""
