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

    async def sender(self, payload: bytes) -> str:
        """The party of whoever signed a message: limits are counted by it."""
        receiver, now_ms = envelopes.receiver_in(payload), self._session.wall.now_ms()
        message = envelopes.open_arriving(payload, receiver, mesh=self._session.mesh, now_ms=now_ms)
        return await self._open_gate().party_of(message.author)

    async def deliver(self, payload: bytes, *, by: str = "") -> PutAnswer:
        """Store a message; again changes nothing. `by` is the sender's party, if that is known."""
        by = by or await self.sender(payload)
        return await self._open_gate().put(envelopes.receiver_in(payload), payload, by=by)

    def _open_gate(self) -> MessageGate:
        if self._gate is None:
            raise Unavailable(
                "this node cannot store messages: its login reads some kinds only",
                hint="deliver to a node on the machine where 'antiphon init' ran",
            )
        return self._gate

    async def close(self) -> None:
        """Forget what was kept in memory."""
        if self._gate is not None:
            await self._gate.close()
