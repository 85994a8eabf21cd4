"""Messages that come over HTTP, from nodes without an engine connection (docs/reference/http.md).

They are signed like all messages, and go through the same gate: the signature and the
sender's delegations decide, not a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.messages import envelope as envelopes
from antiphon.errors import Unavailable
from antiphon.runtime.messages.message_gate import MessageGate

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.messages.message_gate import PutAnswer


class Deliveries:
    """Stores what is delivered to one node's HTTP interface."""

    def __init__(self, session: Session) -> None:
        """Only a node that reaches the store can take messages."""
        self._session = session
        store = session.engine.messages
        self._gate = MessageGate(session, store) if store is not None else None

    async def deliver(self, payload: bytes) -> PutAnswer:
        """Store a message; again changes nothing."""
        if self._gate is None:
            raise Unavailable(
                "this node cannot store messages: its login reads some kinds only",
                hint="deliver to a node on the machine where 'antiphon init' ran",
            )
        receiver = envelopes.receiver_in(payload)
        # Limits are counted by the sender's party, so the signature is checked first: nobody can
        # use up another's.
        now_ms = self._session.wall.now_ms()
        message = envelopes.open_arriving(payload, receiver, mesh=self._session.mesh, now_ms=now_ms)
        party = await self._gate.party_of(message.author)
        return await self._gate.put(receiver, payload, by=party)

    async def close(self) -> None:
        """Forget what was kept in memory."""
        if self._gate is not None:
            await self._gate.close()
