"""The gate's roll call service: forwards members' roll calls, at a limited rate.

Every node receives a roll call, and the server does not limit publishers: a member that could
start roll calls by itself could keep all other nodes busy. So it asks the gate, on
`apg.<mesh>.<user>.roll`, and awaits the answers in its own inbox like every other node.
"""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.core.bus.subjects import INBOX, ROLL
from antiphon.core.record.subjects import matches
from antiphon.engines.nats.connection.bus import NatsBus, reply_in
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.gate.member_requests import MemberRequests, Service
from antiphon.engines.nats.gate.read_service import QUEUE
from antiphon.errors import Unavailable

CALLS_HEARD: Final = 16
"""Of one member in a quarter of a second."""
MAX_CALL_BYTES: Final = 64


class RollCallService:
    """Serves one mesh's members, over a connection with all permissions."""

    def __init__(self, connection: Connection, mesh: str, hearing: MemberRequests) -> None:
        self._bus = NatsBus(connection, mesh)
        self._hearing = hearing
        self._calls: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue(maxsize=CALLS_HEARD)

    async def run(self) -> None:
        """Serve until cancelled."""
        stop = self._hearing.serve(Service(ROLL.at(), self._on_call, CALLS_HEARD, queue=QUEUE))
        try:
            while True:
                payload, reply = await self._calls.get()
                try:
                    await self._bus.publish(ROLL.at(), payload, reply=reply)
                except Unavailable:
                    continue  # the asker gets no answer, and asks again
        finally:
            stop()

    def _on_call(self, subject: bytes, _reply: bytes, payload: bytes, header: bytes) -> None:
        user = subject.decode().split(".")[2]
        reply = reply_in(header) if header else ""
        is_own = matches(INBOX.at(user=user, place=">"), reply)
        if is_own and len(payload) <= MAX_CALL_BYTES and not self._calls.full():
            self._calls.put_nowait((payload, reply))
