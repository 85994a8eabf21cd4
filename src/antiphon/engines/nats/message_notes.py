"""The headers of a stream's messages without their bodies, page by page.

A direct get sends whole messages. Only a consumer can leave the bodies out, so one is made for each
page, in memory, and deleted afterwards. The server forgets one whose reader ended meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Final

import msgspec

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.stamps import parse_ack_subject
from antiphon.engines.nats.log.streams import Streams
from antiphon.errors import Unavailable

AT_ONCE: Final = 2
"""A stream of registers allows 16 consumers, for all nodes that read it."""
WITHIN_S: Final = 10.0
_FORGOTTEN_AFTER_NS: Final = 10 * 1_000_000_000

Headers = list[tuple[str, int, bytes]]
"""Subject, sequence and raw header block."""


class HeaderPages:
    """Reads one stream's headers."""

    def __init__(self, connection: Connection, streams: Streams, stream: str) -> None:
        self._connection = connection
        self._streams = streams
        self._stream = stream
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def page(self, subject: str, first: int, limit: int) -> tuple[Headers, bool]:
        """Up to `limit` messages from sequence `first` on, and whether there are more."""
        name = f"page{secrets.token_hex(8)}"
        async with self._turns:
            try:
                pending = await self._make(name, subject, first)
                found = await self._pull(name, min(limit, pending))
            finally:
                with suppress(Unavailable):
                    await self._streams.call(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}")
        return found, bool(found) and pending > len(found)

    async def _make(self, name: str, subject: str, first: int) -> int:
        """Make the consumer; returns how many messages it has to deliver."""
        config = {
            "name": name,
            "filter_subject": subject,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": first,
            "ack_policy": "none",
            "replay_policy": "instant",
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _FORGOTTEN_AFTER_NS,
        }
        answer = await self._streams.call(
            f"$JS.API.CONSUMER.CREATE.{self._stream}.{name}.{subject}",
            {"stream_name": self._stream, "config": config, "action": "create"},
        )
        return int(msgspec.json.decode(answer).get("num_pending", 0))

    async def _pull(self, name: str, count: int) -> Headers:
        """So many deliveries, or as many as there are."""
        found: Headers = []
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_message(subject: bytes, reply: bytes, _payload: bytes, header: bytes) -> None:
            is_delivery = not wire.status_of(header)
            if is_delivery:
                seq = parse_ack_subject(reply).seq
                found.append((wire.read_subject(subject), seq, header))
            if (not is_delivery or len(found) >= count) and not ended.done():
                ended.set_result(None)

        if not count:
            return found
        inbox = f"{self._connection.inbox}.{name}"
        listener = self._connection.listen(inbox, on_message)
        try:
            self._connection.require_up()
            ask = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}".encode()
            request = msgspec.json.encode({"batch": count, "no_wait": True})
            self._connection.send(wire.pub(ask, request, inbox.encode()))
            async with asyncio.timeout(WITHIN_S):
                await ended
        except TimeoutError:
            raise Unavailable("the NATS server did not send a page of headers in time") from None
        finally:
            self._connection.unlisten(listener)
        return found
