"""How an agent reaches its inbox: through a gate of its own, or through the mesh's.

A node with all permissions needs nobody in between: it runs a `MessageGate` itself. A member asks
the mesh's gate. Both give the same answers and raise the same errors.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from antiphon.core.bus.subjects import MESSAGE_GATE
from antiphon.core.messages.register import LEASE_MS, MAX_ERROR
from antiphon.core.record.ids import agent_address
from antiphon.errors import AntiphonError, Misconfigured, OutcomeUnknown
from antiphon.runtime.log.acting import party_acted_for
from antiphon.runtime.messages import message_requests
from antiphon.runtime.messages.message_gate import MessageGate, PutAnswer, Reading
from antiphon.runtime.messages.message_requests import MESSAGES, PUT, MessageRequest, Named

if TYPE_CHECKING:
    from antiphon.core.messages.inbox import ThreadSummary
    from antiphon.ports import GateLine, Keyring, MessageStore
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.messages.dead_letter_store import DeadLetter
    from antiphon.runtime.messages.message_gate import HandedMessage
    from antiphon.runtime.messages.message_requests import MessageAnswer

ANSWER_WITHIN_S: Final = 10.0


class MessageClient(Protocol):
    """One agent's inbox, and the way to those of others."""

    async def put(self, receiver: str, envelope: bytes) -> PutAnswer:
        """Store a signed message; see `MessageGate.put`."""

    async def read(self, asked: Reading) -> list[HandedMessage]:
        """The next messages of its own inbox; see `Reading`."""

    async def ack(self, id_: str, revision: int = 0) -> None:
        """See `MessageGate.ack`."""

    async def nack(
        self, id_: str, revision: int, *, delay_ms: int | None = None, error: str = ""
    ) -> None:
        """See `MessageGate.nack`."""

    async def extend(self, id_: str, revision: int, *, lease_ms: int) -> HandedMessage:
        """See `MessageGate.extend`."""

    async def threads(self) -> list[ThreadSummary]:
        """See `MessageGate.threads`."""

    async def dead(self, *, limit: int = 64) -> list[DeadLetter]:
        """See `MessageGate.dead`."""

    async def close(self) -> None:
        """Stop; safe twice."""


def client_of(session: Session, keyring: Keyring, agent: str) -> MessageClient:
    """The inbox of one of a node's agents."""
    engine = session.engine
    if engine.messages is not None:
        return OwnMessages(session, engine.messages, agent)
    if engine.gate is None:
        raise Misconfigured("this engine carries no messages")
    return MemberMessages(session, engine.gate, keyring, agent)


class OwnMessages:
    """`MessageClient` of a node with all permissions."""

    def __init__(self, session: Session, store: MessageStore, agent: str) -> None:
        self.address = agent_address(session.author.did, agent)
        self._by = session.author.did
        self._gate = MessageGate(session, store)

    async def put(self, receiver: str, envelope: bytes) -> PutAnswer:
        """See `MessageClient.put`."""
        return await self._gate.put(receiver, envelope, by=party_acted_for() or self._by)

    async def read(self, asked: Reading) -> list[HandedMessage]:
        """See `MessageClient.read`."""
        return await self._gate.read(replace(asked, address=self.address), by=self._by)

    async def ack(self, id_: str, revision: int = 0) -> None:
        """See `MessageClient.ack`."""
        await self._gate.ack(self.address, id_, revision, by=self._by)

    async def nack(
        self, id_: str, revision: int, *, delay_ms: int | None = None, error: str = ""
    ) -> None:
        """See `MessageClient.nack`."""
        await self._gate.nack(
            self.address, id_, revision, by=self._by, delay_ms=delay_ms, error=error
        )

    async def extend(self, id_: str, revision: int, *, lease_ms: int) -> HandedMessage:
        """See `MessageClient.extend`."""
        return await self._gate.extend(self.address, id_, revision, by=self._by, lease_ms=lease_ms)

    async def threads(self) -> list[ThreadSummary]:
        """See `MessageClient.threads`."""
        return await self._gate.threads(self.address, by=self._by)

    async def dead(self, *, limit: int = 64) -> list[DeadLetter]:
        """See `MessageClient.dead`."""
        return await self._gate.dead(self.address, by=self._by, limit=limit)

    async def close(self) -> None:
        """See `MessageClient.close`."""
        await self._gate.close()


class MemberMessages:
    """`MessageClient` of a member: asks the gate."""

    def __init__(self, session: Session, line: GateLine, keyring: Keyring, agent: str) -> None:
        self._session = session
        self._line = line
        self._keyring = keyring
        self._agent = agent
        self._begun: asyncio.Future[None] | None = None
        """Done when another gate has begun to serve."""
        self._hearing: asyncio.Task[None] | None = None

    async def put(self, receiver: str, envelope: bytes) -> PutAnswer:
        """See `MessageClient.put`."""
        payload = message_requests.encode_put(message_requests.Put(receiver, envelope))
        told = await self._send(PUT, payload, ANSWER_WITHIN_S)
        answer = message_requests.read_answer(told)
        return PutAnswer(answer.id, answer.is_duplicate)

    async def read(self, asked: Reading) -> list[HandedMessage]:
        """See `MessageClient.read`."""
        held = asked.holding
        answer = await self._ask(
            asked.wait_ms / 1000,
            do="read",
            session=asked.session,
            limit=asked.limit,
            lease_ms=asked.lease_ms,
            wait_ms=asked.wait_ms,
            thread=asked.thread,
            holding=None if held is None else tuple(sorted(held))[: message_requests.MAX_HOLDING],
        )
        return list(answer.handed)

    async def ack(self, id_: str, revision: int = 0) -> None:
        """See `MessageClient.ack`."""
        await self._ask(do="ack", named=(Named(id_, revision),))

    async def nack(
        self, id_: str, revision: int, *, delay_ms: int | None = None, error: str = ""
    ) -> None:
        """See `MessageClient.nack`."""
        named = (Named(id_, revision),)
        await self._ask(do="nack", named=named, delay_ms=delay_ms, error=error[:MAX_ERROR])

    async def extend(self, id_: str, revision: int, *, lease_ms: int = LEASE_MS) -> HandedMessage:
        """See `MessageClient.extend`."""
        named = (Named(id_, revision),)
        return (await self._ask(do="extend", named=named, lease_ms=lease_ms)).handed[0]

    async def threads(self) -> list[ThreadSummary]:
        """See `MessageClient.threads`."""
        return list((await self._ask(do="threads")).threads)

    async def dead(self, *, limit: int = 64) -> list[DeadLetter]:
        """See `MessageClient.dead`."""
        return list((await self._ask(do="dead", limit=limit)).dead)

    async def close(self) -> None:
        """See `MessageClient.close`."""
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)
            self._hearing = None

    async def _ask(self, wait_s: float = 0.0, **fields: Any) -> MessageAnswer:
        signer = (self._keyring.did, self._keyring.sign)
        payload = message_requests.REQUESTS.sign(
            MessageRequest(agent=self._agent, **fields),
            signer,
            mesh=self._session.mesh,
            subject=message_requests.request_subject(self._line.user),
            at_ms=self._session.wall.now_ms(),
        )
        told = await self._send(MESSAGES, payload, wait_s + ANSWER_WITHIN_S)
        return message_requests.read_answer(told)

    async def _send(self, verb: str, payload: bytes, timeout_s: float) -> bytes:
        """Ask the gate. One that begins anew knows nothing of those who wait for the last one."""
        if self._hearing is None:
            self._hearing = asyncio.ensure_future(self._hear_gates())
        if self._begun is None or self._begun.done():
            self._begun = asyncio.get_running_loop().create_future()
        begun = self._begun
        answering = asyncio.ensure_future(self._line.ask(verb, payload, timeout_s=timeout_s))
        try:
            await asyncio.wait((answering, begun), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            raise OutcomeUnknown("the gate was started again before it answered")
        finally:
            if not answering.done():
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)

    async def _hear_gates(self) -> None:
        """Tell those who wait whenever a gate says that it serves from now on."""
        while True:
            with suppress(AntiphonError):
                bus = self._session.engine.bus
                async with bus.subscribe(MESSAGE_GATE.at(), max_pending=4) as notices:
                    async for _ in notices:
                        if self._begun is not None and not self._begun.done():
                            self._begun.set_result(None)
            await asyncio.sleep(1)
