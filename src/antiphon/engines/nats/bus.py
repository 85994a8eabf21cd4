"""Messages nobody stores: core NATS pub/sub under `apb.<mesh>.`.

Subjects are relative to the mesh on the way in and out. Queues are bounded and drop their
oldest: whoever listens to heartbeats wants the newest ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

from antiphon.engines.nats import wire
from antiphon.engines.nats.connection import Connection, Listener
from antiphon.errors import AntiphonError, Rejected, Unavailable
from antiphon.ports import BusMessage


class NatsBus:
    """`ports.Bus` over one connection."""

    def __init__(self, connection: Connection, mesh: str) -> None:
        self._connection = connection
        self._prefix = f"apb.{mesh}."
        self._node = connection.inbox.rsplit(".", 1)[1]
        self._inboxes = 0

    async def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        """See `ports.Bus.publish`."""
        connection = self._connection
        if len(payload) > connection.max_payload_bytes:
            raise Rejected(f"a message of {len(payload)} bytes is too large", reason="too_large")
        target = wire.check_subject(self._prefix + subject)
        answer = wire.check_subject(self._prefix + reply) if reply else b""
        connection.require_up()
        connection.send(wire.pub(target, payload, answer))
        # At once: whoever subscribes elsewhere after this returned should not hear it.
        connection.write_out()
        await connection.have_room()

    def subscribe(self, subject: str, *, max_pending: int = 4096) -> BusSubscription:
        """See `ports.Bus.subscribe`."""
        wire.check_filter(subject)
        return BusSubscription(
            self._connection, self._prefix, subject, max_pending=max(1, max_pending)
        )

    def new_inbox(self) -> str:
        """See `ports.Bus.new_inbox`."""
        self._inboxes += 1
        return f"inbox.{self._node}.{self._inboxes}"


class BusSubscription:
    """The context and the iterator of `Bus.subscribe`."""

    def __init__(
        self, connection: Connection, prefix: str, subject: str, *, max_pending: int
    ) -> None:
        self._connection = connection
        self._subject = prefix + subject
        self._strip = len(prefix)
        self._pending: deque[BusMessage] = deque(maxlen=max_pending)
        self._wake = asyncio.Event()
        self._failure: AntiphonError | None = None
        self._listener: Listener | None = None
        self._left = False

    async def __aenter__(self) -> Self:
        self._unwatch = self._connection.watch_state(lambda _: self._wake.set())
        self._listener = self._connection.listen(self._subject, self._on_message, denied=self._fail)
        if self._connection.up:
            try:
                # Whoever publishes after this was entered must be heard.
                await self._connection.round_trip()
            except BaseException:
                await self.__aexit__()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left = True
        self._unwatch()
        if self._listener is not None:
            self._connection.unlisten(self._listener)
        self._pending.clear()
        self._wake.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusMessage:
        while True:
            if self._pending:
                return self._pending.popleft()
            if self._left:
                raise StopAsyncIteration
            if self._failure is not None:
                raise self._failure
            if self._connection.closed:
                raise Unavailable("the connection is closed")
            self._wake.clear()
            await self._wake.wait()

    def _on_message(self, subject: bytes, reply: bytes, payload: bytes, _header: bytes) -> None:
        strip = self._strip
        self._pending.append(BusMessage(subject[strip:].decode(), payload, reply[strip:].decode()))
        self._wake.set()

    def _fail(self, error: AntiphonError) -> None:
        self._failure = error
        self._wake.set()
