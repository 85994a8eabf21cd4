"""The bus: messages that are not stored, by core NATS pub/sub under `apb.<mesh>.`.

Subjects are relative to the mesh on the way in and out. Queues are bounded and drop their
oldest: a subscriber to heartbeats wants the newest ones. Floods are dropped.

The reply subject is in our own header. In NATS's reply field it would be
rewritten at the border between the accounts of members and mesh (`accounts`), and could name a
subject outside the bus.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from typing import Self

from antiphon.core.bus.subjects import BUS, INBOX, ROOT
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.gate_subjects import gate_subject
from antiphon.engines.nats.connection.metered_subscription import MeteredSubscription
from antiphon.errors import AntiphonError, Rejected, Unavailable
from antiphon.ports import BusMessage

HEARD_AT_LEAST = 64
"""In a quarter of a second, and otherwise as many as may queue: more is a flood."""
TOLD_EVERY_S = 60.0
"""How often it is logged that the gate passes nothing on."""
MAX_TOLD = 500
_REPLY = b"\r\nAntiphon-Reply: "
_log = logging.getLogger(__name__)


class NatsBus:
    """`ports.Bus` over one connection."""

    def __init__(self, connection: Connection, mesh: str) -> None:
        self._connection = connection
        self._prefix = f"{ROOT}.{mesh}."
        # Not the connection's own inbox: every node that is asked something learns this one, and
        # a node that knew the other could make the server answer there in another's place.
        node = secrets.token_hex(8)
        user = connection.identity.user
        self._node = f"{user}.{node}" if user else node
        via_gate = [one.at() for one in BUS if one.via_gate and connection.identity.is_restricted]
        self._elsewhere = {one: gate_subject(mesh, user, one) for one in via_gate}
        self._inboxes = 0
        self._refusals = b""
        """Where the gate says why it does not pass a call on; empty before the first."""
        self._told_s = -TOLD_EVERY_S

    async def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        """See `ports.Bus.publish`."""
        connection = self._connection
        target = wire.check_subject(self._elsewhere.get(subject) or self._prefix + subject)
        header = b"NATS/1.0%b%b\r\n\r\n" % (_REPLY, wire.check_subject(reply)) if reply else b""
        size = len(header) + len(payload)
        if size > connection.max_payload_bytes:
            raise Rejected(f"a message of {size} bytes is too large", reason="too_large")
        connection.require_up()
        told = self._hear_refusals() if subject in self._elsewhere else b""
        if header:
            where = target + b" " + told if told else target
            connection.send(
                b"HPUB %b %d %d\r\n%b%b\r\n" % (where, len(header), size, header, payload)
            )
        else:
            connection.send(wire.pub(target, payload, told))
        # At once: who subscribes elsewhere after this returned should not receive it.
        connection.write_out()
        await connection.have_room()

    def _hear_refusals(self) -> bytes:
        if not self._refusals:
            where = f"_I.{self.user}.{secrets.token_hex(8)}"
            MeteredSubscription(self._connection, where, self._tell_refusal, bound=HEARD_AT_LEAST)
            self._refusals = where.encode()
        return self._refusals

    def _tell_refusal(self, _subject: bytes, _reply: bytes, payload: bytes, _head: bytes) -> None:
        """Log why the gate did not pass a call on; not each time."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= TOLD_EVERY_S:
            self._told_s = now_s
            why = payload[:MAX_TOLD].decode(errors="replace")
            _log.warning("the gate does not ask other nodes for this one: %r", why)

    def subscribe(self, subject: str, *, max_pending: int = 4096) -> BusSubscription:
        """See `ports.Bus.subscribe`."""
        wire.check_filter(subject)
        return BusSubscription(
            self._connection, self._prefix, subject, max_pending=max(1, max_pending)
        )

    @property
    def user(self) -> str:
        """See `ports.Bus.user`."""
        return self._node.partition(".")[0]

    def new_inbox(self) -> str:
        """See `ports.Bus.new_inbox`."""
        self._inboxes += 1
        return INBOX.at(user=self._node, place=self._inboxes)


class BusSubscription:
    """The context and the iterator of `Bus.subscribe`."""

    def __init__(
        self, connection: Connection, prefix: str, subject: str, *, max_pending: int
    ) -> None:
        self._connection = connection
        self._subject = prefix + subject
        self._strip = len(prefix)
        self._bound = max(max_pending, HEARD_AT_LEAST)
        self._pending: deque[BusMessage] = deque(maxlen=max_pending)
        self._wake = asyncio.Event()
        self._failure: AntiphonError | None = None
        self._listener: MeteredSubscription | None = None
        self._left = False

    async def __aenter__(self) -> Self:
        self._unwatch = self._connection.watch_state(lambda _: self._wake.set())
        self._listener = MeteredSubscription(
            self._connection,
            self._subject,
            self._on_message,
            bound=self._bound,
            denied=self._fail,
        )
        if self._connection.up:
            try:
                # What is published after this was entered must be received.
                await self._connection.round_trip()
            except BaseException:
                await self.__aexit__()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left = True
        self._unwatch()
        if self._listener is not None:
            self._listener.close()
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
            self._connection.require_login()
            self._wake.clear()
            await self._wake.wait()

    def _on_message(self, subject: bytes, _reply: bytes, payload: bytes, header: bytes) -> None:
        reply = reply_in(header) if header else ""
        self._pending.append(BusMessage(wire.read_subject(subject[self._strip :]), payload, reply))
        self._wake.set()

    def _fail(self, error: AntiphonError) -> None:
        self._failure = error
        self._wake.set()


def reply_in(header: bytes) -> str:
    """The sender's reply subject; empty if there is no usable one."""
    at = header.find(_REPLY)
    if at < 0:
        return ""
    start = at + len(_REPLY)
    reply = header[start : header.find(b"\r\n", start)].decode("ascii", "replace")
    try:
        wire.check_subject(reply)
    except Rejected:
        return ""
    return reply
