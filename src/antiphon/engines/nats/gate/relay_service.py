"""The gate's relay service: appends records that members send it to the log (`relay_protocol`).

A record comes on `apg.<mesh>.<user>.post`, a subject on which only that user may publish. The
runtime decides whether to store it; what is not accepted never reaches the log.

Bounds: records of one user under way, and records in all; beyond that the sender is told to try
again, and beyond `MAX_IN_ALL` it gets no answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.gate.member_requests import MemberRequests, Service
from antiphon.engines.nats.gate.read_service import QUEUE, inbox_of
from antiphon.engines.nats.log.log import NatsLog
from antiphon.engines.nats.member import relay_protocol
from antiphon.engines.nats.member.scoped_log import ScopedLog
from antiphon.errors import AntiphonError, Misconfigured, Unavailable
from antiphon.ports import Engine

LETTERS_HEARD = 64
"""Of one user in a quarter of a second."""
PER_USER = 4
MAX_IN_ALL = 256

Accepts: TypeAlias = Callable[[str, bytes], Awaitable[tuple[str, str, int]]]
"""Given user and record: its subject, message id and predecessor, or an error with the reason."""

_log = logging.getLogger(__name__)


class RelayService:
    """Serves one mesh's members. `engine` must have all permissions."""

    def __init__(
        self,
        engine: Engine,
        accepts: Accepts,
        *,
        hearing: MemberRequests | None = None,
    ) -> None:
        log = engine.log
        if not isinstance(log, NatsLog) or isinstance(log, ScopedLog):
            raise Misconfigured("the gate needs its own connection to NATS, with all permissions")
        self._store = log
        self._connection = log.connection
        self._hearing = hearing or MemberRequests(log.connection, log.mesh)
        self._accepts = accepts
        self._in_hand: Counter[str] = Counter()

    async def run(self) -> None:
        """Serve until cancelled, over reconnects."""
        async with asyncio.TaskGroup() as group:

            def on_letter(subject: bytes, reply: bytes, payload: bytes, _header: bytes) -> None:
                user = subject.decode().split(".")[2]
                if not reply.startswith(inbox_of(user).encode() + b"."):
                    return
                if self._in_hand.total() >= MAX_IN_ALL:
                    return
                if self._in_hand[user] >= PER_USER:
                    self._refuse(subject, reply, payload, _header)
                    return
                self._in_hand[user] += 1
                group.create_task(self._handle(user, reply, payload))

            stop = self._hearing.serve(
                Service(relay_protocol.VERB, on_letter, LETTERS_HEARD, self._refuse, QUEUE)
            )
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                stop()

    def _refuse(self, subject: bytes, reply: bytes, _payload: bytes, _header: bytes) -> None:
        if reply.startswith(inbox_of(subject.decode().split(".")[2]).encode() + b"."):
            self._send(reply, relay_protocol.told(Unavailable("too many records at once")))

    async def _handle(self, user: str, reply: bytes, payload: bytes) -> None:
        try:
            subject, message_id, expected_last = await self._accepts(user, payload)
            seq = await self._store.append(
                subject, payload, message_id=message_id, expected_last=expected_last
            )
            self._send(reply, relay_protocol.stored(seq))
        except AntiphonError as error:
            self._send(reply, relay_protocol.told(error))
        except Exception as error:  # noqa: BLE001 - one record must not end the service
            _log.exception("a member's write failed")
            self._send(reply, relay_protocol.told(error))
        finally:
            self._in_hand[user] -= 1
            if not self._in_hand[user]:
                del self._in_hand[user]

    def _send(self, to: bytes, answer: bytes) -> None:
        if self._connection.up:
            self._connection.send(wire.pub(to, answer))
