"""Messages without `await`: what `BlockingMesh` offers beside its tasks (docs/messages.md).

for message in mesh.inbox():
    handle(message.payload)
    message.ack()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.sdk.blocking.loop_thread import run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from antiphon.core.messages.inbox import ThreadSummary
    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.messages.inbox_reader import InboxReader
    from antiphon.sdk.messages.message_methods import DeadMessage, Sent
    from antiphon.sdk.messages.received_message import ReceivedMessage


class BlockingMessage:
    """One message, leased to this process until it is settled or the lease ends."""

    def __init__(self, message: ReceivedMessage) -> None:
        """Made by `BlockingMesh.inbox` and `BlockingMesh.ask`."""
        self._message = message
        self.id = message.id
        self.attempt = message.attempt
        """How often it was handed out, this time included."""
        self.sender = message.sender
        self.to = message.to
        self.kind = message.kind
        self.thread = message.thread
        self.priority = message.priority
        self.in_reply_to = message.in_reply_to
        self.key = message.key
        self.sent_ms = message.sent_ms

    @property
    def payload(self) -> Any:
        """What was sent: plain JSON."""
        return self._message.payload

    def payload_as(self, type_: Any) -> Any:
        """The same as a type; `msgspec.ValidationError` if it is not one."""
        return self._message.payload_as(type_)

    def ack(self) -> None:
        """It was handled: it will not be handed out again. As `ReceivedMessage.ack`."""
        run(self._message.ack())

    def nack(self, delay: Duration | None = None, *, error: str = "") -> None:
        """It was not handled: hand it out again. As `ReceivedMessage.nack`."""
        run(self._message.nack(delay, error=error))

    def extend(self, lease: Duration = 120.0) -> None:
        """Keep it for longer, from now on."""
        run(self._message.extend(lease))

    def reply(self, payload: object = None, *, kind: str = "reply") -> str:
        """Answer its sender; the answer's id. The same message is answered once."""
        return run(self._message.reply(payload, kind=kind))

    def __repr__(self) -> str:
        return repr(self._message).replace("ReceivedMessage", "BlockingMessage", 1)


class BlockingInbox:
    """`for message in mesh.inbox():`. Use it with `with`, or close it, to give back the rest."""

    def __init__(self, reader: InboxReader) -> None:
        """Made by `BlockingMesh.inbox`."""
        self._reader = reader

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BlockingMessage:
        """The next message; waits for it."""
        message = run(self._next())
        if message is None:
            raise StopIteration
        return BlockingMessage(message)

    async def _next(self) -> ReceivedMessage | None:
        return await anext(self._reader, None)

    def close(self) -> None:
        """Give back what was read and not taken; safe twice."""
        run(self._reader.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _raised: type[BaseException] | None,
        _problem: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


class BlockingMessageMethods:
    """A part of `BlockingMesh`."""

    @property
    def _here(self) -> Mesh:
        raise NotImplementedError

    @property
    def agent(self) -> str:
        """The name of this process's agent on its node."""
        return self._here.agent

    @property
    def address(self) -> str:
        """Where others reach this agent: its node and its name."""
        return self._here.address

    def send(self, to: str, payload: object = None, **how: Any) -> str:
        """Send a message; its id, once it is stored. As `Mesh.send`."""
        return run(self._here.send(to, payload, **how))

    def broadcast(
        self, to: Iterable[str] | None = None, payload: object = None, **how: Any
    ) -> list[Sent]:
        """Send the same to several agents; what became of each. As `Mesh.broadcast`."""
        return run(self._here.broadcast(to, payload, **how))

    def ask(self, to: str, payload: object = None, **how: Any) -> BlockingMessage:
        """Send a message and wait for its reply. As `Mesh.ask`."""
        return BlockingMessage(run(self._here.ask(to, payload, **how)))

    def inbox(self, **how: Any) -> BlockingInbox:
        """The messages of this agent, as they come. As `Mesh.inbox`; `wait=` ends the loop."""
        mesh = self._here

        async def made() -> InboxReader:
            return mesh.inbox(**how)

        return BlockingInbox(run(made()))

    def address_of(self, to: str) -> str:
        """The address that an alias means. As `Mesh.address_of`."""
        return run(self._here.address_of(to))

    def ack_message(self, id_: str, *, agent: str | None = None) -> None:
        """Remove a message from this agent's inbox by its id. As `Mesh.ack_message`."""
        run(self._here.ack_message(id_, agent=agent))

    def message_threads(self, *, agent: str | None = None) -> list[ThreadSummary]:
        """The threads of this agent's inbox, the oldest first."""
        return run(self._here.message_threads(agent=agent))

    def dead_messages(self, *, agent: str | None = None, limit: int = 64) -> list[DeadMessage]:
        """Messages to this agent that nobody handled, the newest last."""
        return run(self._here.dead_messages(agent=agent, limit=limit))
