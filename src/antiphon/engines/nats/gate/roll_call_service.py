"""The gate's roll call service: forwards what members ask of all nodes, at a limited rate.

Every node receives a roll call, and the server does not limit publishers: a member that could
start roll calls by itself could keep all other nodes busy. So it asks the gate, on
`apg.<mesh>.<user>.roll`, and awaits the answers in its own inbox like every other node. Questions
where a lane can be entered go the same way, if the member may read that lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon.core.authority.scope import Scope
from antiphon.core.bus.subjects import INBOX, ROLL, BusSubject
from antiphon.core.record.branches import Branch
from antiphon.core.record.subjects import matches
from antiphon.engines.nats.connection.bus import NatsBus, reply_in
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.gate.member_requests import MemberRequests, Service
from antiphon.engines.nats.gate.read_service import QUEUE
from antiphon.engines.nats.member.visible_subjects import sight_of
from antiphon.errors import Unavailable

CALLS_HEARD: Final = 16
"""Of one member in a quarter of a second."""
MAX_CALL_BYTES: Final = 256
"""The longest call is the subject of a lane."""

Admits = Callable[[str, bytes], bool]
"""Whether what this user asks is passed on."""


class RollCallService:
    """Serves one mesh's members, over a connection with all permissions."""

    def __init__(
        self,
        connection: Connection,
        mesh: str,
        hearing: MemberRequests,
        *,
        asks: BusSubject = ROLL,
        admits: Admits = lambda _user, _payload: True,
    ) -> None:
        self._asks = asks.at()
        self._admits = admits
        self._bus = NatsBus(connection, mesh)
        self._hearing = hearing
        self._calls: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue(maxsize=CALLS_HEARD)

    async def run(self) -> None:
        """Serve until cancelled."""
        stop = self._hearing.serve(Service(self._asks, self._on_call, CALLS_HEARD, queue=QUEUE))
        try:
            while True:
                payload, reply = await self._calls.get()
                try:
                    await self._bus.publish(self._asks, payload, reply=reply)
                except Unavailable:
                    continue  # the asker gets no answer, and asks again
        finally:
            stop()

    def _on_call(self, subject: bytes, _reply: bytes, payload: bytes, header: bytes) -> None:
        user = subject.decode().split(".")[2]
        reply = reply_in(header) if header else ""
        is_own = matches(INBOX.at(user=user, place=">"), reply)
        is_short = len(payload) <= MAX_CALL_BYTES
        if is_own and is_short and not self._calls.full() and self._admits(user, payload):
            self._calls.put_nowait((payload, reply))


def admits_readers(
    mesh: str, branches: tuple[Branch, ...], scope_of: Callable[[str], Scope]
) -> Admits:
    """Passes on a call whose payload is a subject that its user may read."""

    def admits(user: str, payload: bytes) -> bool:
        return sight_of(mesh, branches, scope_of(user)).sees(payload.decode(errors="replace"))

    return admits
