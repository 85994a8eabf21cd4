"""`mesh.messages`: messages between agents (docs/do/messages.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from antiphon.core.authority.grant_tree import trace
from antiphon.core.messages import envelope as envelopes
from antiphon.core.record.ids import DEFAULT_AGENT, agent_address, check_agent, split_address
from antiphon.core.record.subjects import check_kind
from antiphon.errors import AntiphonError, OutcomeUnknown, Rejected, Unavailable, is_away
from antiphon.runtime.log import acting
from antiphon.runtime.log.breaker_guard import guarded
from antiphon.runtime.outbox.outbox_item import OutboxItem
from antiphon.runtime.presence.live_nodes import live_nodes
from antiphon.runtime.retries import retrying
from antiphon.sdk.defaults import ROLL_CALL_S, STALE_MS
from antiphon.sdk.durations import seconds
from antiphon.sdk.messages.message_body import checked_body, encoded_payload
from antiphon.sdk.messages.open_messages import OpenMessages
from antiphon.sdk.messages.received_message import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.authority.control import Control
    from antiphon.core.messages.inbox import ThreadSummary
    from antiphon.core.presence.cards import Card
    from antiphon.runtime.messages.message_gate import PutAnswer
    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.messages.inbox_reader import InboxReader
    from antiphon.sdk.messages.received_message import ReceivedMessage


LEASE_S: Final = 120.0
MAX_AT_ONCE: Final = 16
"""Messages of one broadcast that are under way at a time."""


class Sent(Struct, frozen=True):
    """One message of a broadcast: its id, or why it was not stored."""

    to: str
    id: str = ""
    error: AntiphonError | None = None


class DeadMessage(Struct, frozen=True):
    """A message that nobody handled."""

    id: str
    reason: str
    """`attempts`, or `expired`."""
    attempts: int
    error: str
    """What its reader said last."""
    sender: str
    kind: str
    thread: str
    put_ms: int
    payload: Any


class Messages:
    """The messages of this process's agent."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.messages`."""
        self._connection = connection
        self._open_messages: OpenMessages | None = None

    def _messages(self) -> OpenMessages:
        opened = self._connection.opened
        if self._open_messages is None or self._open_messages.connection is not opened:
            self._open_messages = OpenMessages(opened, self.send)
            self._connection.on_close(self._open_messages.close)
        return self._open_messages

    @property
    def address(self) -> str:
        """Where others reach this agent: its node and its name."""
        return agent_address(self._connection.did, self._connection.agent)

    def _agent(self, named: str | None) -> str:
        return check_agent(named or self._connection.agent)

    # --- send ---------------------------------------------------------------------------------

    async def send(  # noqa: PLR0913 - a field of the message each
        self,
        to: str,
        payload: object = None,
        *,
        kind: str = envelopes.DEFAULT_KIND,
        thread: str = "",
        priority: int = 0,
        ttl: Duration | None = None,
        key: str = "",
        in_reply_to: str = "",
        agent: str | None = None,
    ) -> str:
        """Send a message; its id, once it is stored, or waits in the outbox (docs/do/offline.md).

        `to` is an address (`did:key:…/name`) or an alias, with `/name` for an agent of that node.
        The same `key` to the same receiver again is the same message. `RateLimited` and
        `InboxFull` say that nothing was stored and that you may try later.
        """
        receiver = await self.address_of(to)
        node, name = split_address(receiver)
        by = self._agent(agent)
        body = checked_body(
            node=node,
            agent=name,
            sender=by,
            kind=check_kind(kind),
            key=key or self._connection.session.entropy.token(12).hex(),
            thread=thread,
            priority=priority,
            ttl_ms=0 if ttl is None else max(1, round(seconds(ttl) * 1000)),
            in_reply_to=in_reply_to,
            payload=Raw(encoded_payload(payload)),
        )
        return await self._put_or_keep(body)

    async def _put_or_keep(self, body: envelopes.MessageBody) -> str:
        """Put a message into its inbox, or into the outbox; its id."""
        connection, is_unknown = self._connection, False
        session = connection.session
        if acting.party_acted_for():
            control = await session.sync_control()
            acting.check_message(body, control=control, now_ms=session.wall.now_ms())

        async def put() -> PutAnswer:
            nonlocal is_unknown
            session, keyring = connection.session, connection.keyring
            signed = envelopes.sign(
                body,
                (keyring.did, keyring.sign),
                mesh=session.mesh,
                at_ms=session.wall.now_ms(),
            )
            try:
                return await self._messages().client(body.sender).put(body.to, signed)
            except OutcomeUnknown:
                is_unknown = True
                raise

        async def write() -> PutAnswer:
            with guarded(connection.session):
                return await retrying(put, connection.session.entropy)

        outbox = connection.keeping
        if outbox is None:
            return (await write()).id
        found = await outbox.write_or_keep(
            write,
            lambda sent_ms: outbox.keep_message(
                agent_address(connection.did, body.sender),
                body,
                sent_ms=sent_ms if is_unknown else 0,
            ),
            to=body.to,
        )
        return found.what.name if isinstance(found, OutboxItem) else found.id

    async def broadcast(
        self,
        to: Iterable[str] | None = None,
        payload: object = None,
        *,
        kind: str = envelopes.DEFAULT_KIND,
        key: str = "",
        ttl: Duration | None = None,
    ) -> list[Sent]:
        """Send the same to several agents; what became of each, in the same order.

        Without a list, to every other agent with a name that is online now (docs/do/presence.md).
        """
        if to is None:
            to = await self._live_agents()
        room = asyncio.Semaphore(MAX_AT_ONCE)

        async def one(receiver: str) -> Sent:
            async with room:
                try:
                    sent = await self.send(receiver, payload, kind=kind, key=key, ttl=ttl)
                except AntiphonError as error:
                    return Sent(receiver, error=error)
                return Sent(receiver, sent)

        return await asyncio.gather(*map(one, to))

    async def _live_agents(self) -> list[str]:
        cards = await self._cards()
        named = (agent_address(one.node, one.agent) for one in cards if one.agent != DEFAULT_AGENT)
        return [address for address in dict.fromkeys(named) if address != self.address]

    async def _cards(self) -> list[Card]:
        found = await live_nodes(self._connection.session, stale_ms=STALE_MS, wait_s=ROLL_CALL_S)
        return [one.card for one in found]

    async def ask(
        self,
        to: str,
        payload: object = None,
        *,
        within: Duration = 30.0,
        kind: str = "question",
        key: str = "",
        agent: str | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for its reply, which is acknowledged by then.

        `Unavailable` if none came in time; one that comes later is in the inbox.
        """
        messages, by = self._messages(), self._agent(agent)
        receiver = await self.address_of(to)
        key = key or self._connection.session.entropy.token(12).hex()
        own = agent_address(self._connection.session.author.did, by)
        id_ = envelopes.message_id(own, receiver, key)
        answer: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        messages.asked[id_] = answer
        within_s = seconds(within)
        reader = self.inbox(agent=by, thread=id_)
        try:
            async with asyncio.timeout(within_s):
                await self.send(receiver, payload, kind=kind, key=key, ttl=within, agent=by)
                reading = asyncio.ensure_future(_read_into(answer, reader))
                try:
                    message = await answer
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                await message.ack()
                return message
        except TimeoutError:
            raise Unavailable(
                f"{to} did not answer within {within_s:g} s",
                hint="its agent may be offline; the question waits in its inbox until then",
            ) from None
        finally:
            del messages.asked[id_]
            await reader.aclose()

    # --- read ---------------------------------------------------------------------------------

    def inbox(
        self,
        *,
        agent: str | None = None,
        lease: Duration = LEASE_S,
        prefetch: int = 1,
        thread: str = "",
        wait: Duration | None = None,
    ) -> InboxReader:
        """The messages of this agent, as they come; settle each with `ack` or `nack`.

        async for message in mesh.messages.inbox():
            await handle(message.payload)
            await message.ack()

        A message that is not settled within `lease` is handed out again. With `prefetch`, several
        are leased at once: more a second, but others' wait behind those here. With `wait`, the
        iterator ends when no message came for so long.
        """
        from antiphon.sdk.messages.inbox_reader import InboxReader

        by = self._agent(agent)
        return InboxReader(
            self._messages(),
            (self._connection.session.author.did, by),
            lease_ms=max(1_000, round(seconds(lease) * 1000)),
            prefetch=prefetch,
            thread=thread,
            wait_ms=None if wait is None else round(seconds(wait) * 1000),
        )

    async def ack(self, id_: str, *, agent: str | None = None) -> None:
        """Remove a message from this agent's inbox by its id, whoever has it now."""
        client = self._messages().client(self._agent(agent))
        with guarded(self._connection.session):
            await retrying(lambda: client.ack(id_), self._connection.session.entropy)

    async def threads(self, *, agent: str | None = None) -> list[ThreadSummary]:
        """The threads of this agent's inbox, the oldest first."""
        return await self._messages().client(self._agent(agent)).threads()

    async def dead(self, *, agent: str | None = None, limit: int = 64) -> list[DeadMessage]:
        """Messages to this agent that nobody handled, the newest last."""
        by = self._agent(agent)
        own = agent_address(self._connection.session.author.did, by)
        found: list[DeadMessage] = []
        for letter in await self._messages().client(by).dead(limit=limit):
            opened = envelopes.open_stored(letter.envelope, own, mesh=self._connection.session.mesh)
            found.append(
                DeadMessage(
                    letter.id,
                    letter.reason,
                    letter.attempts,
                    letter.error,
                    envelopes.sender_of(opened),
                    opened.body.kind,
                    opened.body.thread,
                    letter.put_ms,
                    msgspec.json.decode(opened.body.payload),
                )
            )
        return found

    async def _control(self) -> Control:
        """Control as it is now; while the engine cannot be reached, as it was."""
        session = self._connection.session
        try:
            with guarded(session):
                return await session.sync_control()
        except Unavailable as problem:
            known = session.confirmed and self._connection.is_offline_allowed
            if not known or not is_away(problem):
                raise
            return session.control

    async def address_of(self, to: str) -> str:
        """The address that somebody means: by its node's id, or by an alias."""
        if to.startswith("did:"):
            return agent_address(*split_address(to))
        control = await self._control()
        tree = trace(control, self._connection.session.wall.now_ms() // 1000)
        trusted = frozenset({self._connection.session.author.did})
        alias, slash, name = to.rpartition("/")
        meant = ((to, DEFAULT_AGENT), *([(alias, name)] if slash else []))
        for word, agent in meant:
            found = tree.nodes_called(word, trusted=trusted, known=(control.coordinator,))
            if word == "owner":
                found = {control.owner}
            if found:
                return _only(found, word, agent)
        if control.rules.authority == "open":
            # Nobody has a grant here, so nodes are called what they call themselves.
            cards = await self._cards()
            for word, agent in meant:
                found = {card.node for card in cards if card.alias == word}
                if found:
                    return _only(found, word, agent)
            raise Rejected(
                f"no node that is online is called {to!r}",
                reason="no_node",
                hint="'antiphon nodes' lists who is online; for one that is not, use its address"
                " (did:key:…/agent): it prints it with 'antiphon msg address'",
            )
        raise Rejected(
            f"no node with a grant is called {to!r}",
            reason="no_node",
            hint="'antiphon who --all' lists aliases; an address is did:key:…/agent",
        )


def _only(found: set[str], word: str, agent: str) -> str:
    if len(found) > 1:
        raise Rejected(
            f"{word!r} could be any of {len(found)} nodes",
            reason="ambiguous",
            hint="type the end of its id, or its whole address",
        )
    return agent_address(next(iter(found)), check_agent(agent))


async def _read_into(answer: asyncio.Future[ReceivedMessage], reader: InboxReader) -> None:
    try:
        async for message in reader:
            if resolve(answer, message):
                return
    except AntiphonError as error:
        if not answer.done():
            answer.set_exception(error)
