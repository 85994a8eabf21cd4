"""A message that was handed to its reader: what it says, and how to settle it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.core.messages import envelope as envelopes
from antiphon.core.record.ids import agent_address
from antiphon.runtime.retries import retrying
from antiphon.sdk.durations import seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from antiphon.core.bus.signed_message import Message
    from antiphon.core.messages.envelope import MessageBody
    from antiphon.runtime.messages.message_client import MessageClient
    from antiphon.runtime.messages.message_gate import HandedMessage
    from antiphon.sdk.messages.open_messages import OpenMessages


class ReceivedMessage:
    """One message, leased to this process until it is settled or the lease ends."""

    id: str
    attempt: int
    """How often it was handed out, this time included."""
    sender: str
    """The address that it came from: the key that signed it, and its agent."""
    to: str
    kind: str
    thread: str
    priority: int
    in_reply_to: str
    key: str
    sent_ms: int

    def __init__(
        self,
        messages: OpenMessages,
        client: MessageClient,
        handed: HandedMessage,
        opened: Message[MessageBody],
        settled: Callable[[str], None],
    ) -> None:
        """Made by `Messages.inbox`; the signature has been checked."""
        self._messages = messages
        self._client = client
        self._revision = handed.revision
        self._settled = settled
        body = opened.body
        self.id = handed.id
        self.attempt = handed.attempt
        self.sender = envelopes.sender_of(opened)
        self.to = body.to
        self.kind = body.kind
        self.thread = body.thread
        self.priority = body.priority
        self.in_reply_to = body.in_reply_to
        self.key = body.key
        self.sent_ms = opened.at_ms
        self._payload = body.payload
        self._agent = body.agent

    @property
    def payload(self) -> Any:
        """What was sent: plain JSON."""
        return msgspec.json.decode(self._payload)

    def payload_as(self, type_: Any) -> Any:
        """The same as a type; `msgspec.ValidationError` if it is not one."""
        return msgspec.json.decode(self._payload, type=type_)

    async def ack(self) -> None:
        """It was handled: it will not be handed out again.

        `Held` if the lease ended and somebody else has it now.
        """
        await self._retry(lambda: self._client.ack(self.id, self._revision))
        self._settled(self.id)

    async def nack(self, delay: float | timedelta | str | None = None, *, error: str = "") -> None:
        """It was not handled: hand it out again, after `delay` or a pause that doubles.

        Later messages of its thread wait behind it. `error` is shown with the dead letter that it
        becomes if nobody handles it.
        """
        delay_ms = None if delay is None else round(seconds(delay) * 1000)
        await self._retry(
            lambda: self._client.nack(self.id, self._revision, delay_ms=delay_ms, error=error)
        )
        self._settled(self.id)

    async def extend(self, lease: float | timedelta | str = 120.0) -> None:
        """Keep it for longer, from now on."""
        lease_ms = round(seconds(lease) * 1000)
        held = await self._client.extend(self.id, self._revision, lease_ms=lease_ms)
        self._revision = held.revision

    async def reply(self, payload: object = None, *, kind: str = "reply") -> str:
        """Answer its sender; the answer's id. The same message is answered once."""
        return await self._messages.send(
            self.sender,
            payload,
            kind=kind,
            thread=self.id,
            key=f"reply-{self.id}",
            in_reply_to=self.id,
            agent=self._agent,
        )

    async def _retry(self, call: Callable[[], Any]) -> None:
        """Settle; what got no answer may be done twice."""
        await retrying(call, self._messages.connection.session.entropy)

    def __repr__(self) -> str:
        sender = agent_address("…" + self.sender[-16:], "")[:-1]
        return f"ReceivedMessage({self.kind} from {sender}, {self.id[:8]}, attempt {self.attempt})"


def resolve(waiting: asyncio.Future[ReceivedMessage] | None, message: ReceivedMessage) -> bool:
    """Whether a question that waits for this message got its answer."""
    if waiting is None or waiting.done():
        return False
    waiting.set_result(message)
    return True
