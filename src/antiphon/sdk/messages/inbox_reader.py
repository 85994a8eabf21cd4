"""The messages of an inbox, one after the other, for as long as somebody wants them.

Reads a few at a time and waits at the gate for more; nothing is polled. Over lost connections and
restarts of the gate it goes on by itself: an answer that got lost is asked for again, and names the
messages that are here, so that what was in that answer is handed out again at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from antiphon.core.messages import envelope as envelopes
from antiphon.core.policy.backoff import backoff_ms
from antiphon.errors import (
    AntiphonError,
    EngineDenied,
    InboxFull,
    Malformed,
    OutcomeUnknown,
    Unavailable,
)
from antiphon.runtime.messages.message_gate import Reading
from antiphon.sdk.messages.received_message import ReceivedMessage, resolve

if TYPE_CHECKING:
    from antiphon.runtime.messages.message_gate import HandedMessage
    from antiphon.sdk.messages.open_messages import OpenMessages

WAIT_MS: Final = 50_000
"""How long one request waits for a message; the fallback where nobody wakes the reader."""
MAX_HOLDING: Final = 240
_MARGIN: Final = 0.9
"""A message that waited here for this part of its lease is not handed to the program."""


class InboxReader:
    """`async for message in reader`. Close it to give back what was not taken."""

    def __init__(
        self,
        messages: OpenMessages,
        address: tuple[str, str],
        *,
        lease_ms: int,
        prefetch: int = 1,
        thread: str = "",
        wait_ms: int | None = None,
    ) -> None:
        """`address` is a node and an agent. With `wait_ms` it ends when none came for so long."""
        self._messages = messages
        self._session = messages.connection.session
        did, agent = address
        self._address = f"{did}/{agent}"
        self._client = messages.client(agent)
        self._lease_ms = lease_ms
        self._prefetch = max(1, min(prefetch, MAX_HOLDING // 2))
        self._thread = thread
        self._wait_ms = wait_ms
        self._ready: deque[tuple[ReceivedMessage, HandedMessage, float]] = deque()
        self._holding: dict[str, None] = {}
        self._has_lost = False
        self._failures = 0
        self._is_closed = False
        messages.readers.add(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message."""
        while not self._is_closed:
            while self._ready:
                message, _, until_s = self._ready.popleft()
                if asyncio.get_running_loop().time() >= until_s:
                    self._holding.pop(message.id, None)  # it is handed out again
                    continue
                if resolve(self._messages.asked.get(message.in_reply_to), message):
                    continue
                return message
            if not await self._fetch():
                break
        raise StopAsyncIteration

    async def _fetch(self) -> bool:
        """Get more messages; False if there are none and nobody waits for more."""
        wait_ms = WAIT_MS if self._wait_ms is None else self._wait_ms
        begun_s = asyncio.get_running_loop().time()
        try:
            asked = Reading(
                session=self._messages.session,
                limit=self._prefetch,
                lease_ms=self._lease_ms,
                wait_ms=wait_ms,
                thread=self._thread,
                holding=frozenset(list(self._holding)[-MAX_HOLDING:]) if self._has_lost else None,
            )
            handed = await self._client.read(asked)
        except (EngineDenied, InboxFull):
            raise
        except Unavailable as away:
            self._has_lost |= isinstance(away, OutcomeUnknown)
            await self._rest()
            return True
        self._has_lost = False
        self._failures = 0
        until_s = begun_s + self._lease_ms / 1000 * _MARGIN
        if handed:
            until_s = max(until_s, asyncio.get_running_loop().time() + self._lease_ms / 2000)
        for one in handed:
            self._take(one, until_s)
        return bool(handed) or self._wait_ms is None

    def _take(self, handed: HandedMessage, until_s: float) -> None:
        try:
            opened = envelopes.open_stored(handed.envelope, self._address, mesh=self._session.mesh)
        except Malformed:
            return  # whatever stored it, nobody signed it: it becomes a dead letter
        self._holding[handed.id] = None
        message = ReceivedMessage(self._messages, self._client, handed, opened, self._settle)
        self._ready.append((message, handed, until_s))

    def _settle(self, id_: str) -> None:
        self._holding.pop(id_, None)

    async def _rest(self) -> None:
        chance = self._session.entropy.random()
        await asyncio.sleep(backoff_ms(self._failures, cap_ms=5_000, chance=chance) / 1000)
        self._failures += 1

    async def aclose(self) -> None:
        """Give back what was read and not taken; safe twice."""
        self._is_closed = True
        self._messages.readers.discard(self)
        while self._ready:
            message, handed, _ = self._ready.popleft()
            with suppress(AntiphonError):  # else its lease ends
                await self._client.nack(message.id, handed.revision, delay_ms=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
