"""Reads a stream's messages with their headers, in pages, up to a given sequence."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from antiphon.engines.nats.connection.requester import Requester
from antiphon.engines.nats.log.direct_get import DirectGet
from antiphon.engines.nats.log.streams import Streams
from antiphon.errors import Unavailable
from antiphon.ports import StoredMessage

PAGE_MESSAGES: Final = 512
LOOKS: Final = 20
LOOK_S: Final = 0.25
"""How often a copy that lags behind its leader is asked again, and the pause in between."""
_ADDED: Final = b"\r\nNats-Stream: "
"""The first of the lines that the server appends when it sends a stored message."""
_NO_HEADER: Final = b"NATS/1.0"


class StreamCopy:
    """`ports.StoredStream` on JetStream."""

    def __init__(self, requester: Requester, stream: str) -> None:
        """The stream may be missing: then it has no messages."""
        self._streams = Streams(requester)
        self._records = DirectGet(requester, stream)
        self.stream = stream

    async def last(self) -> int:
        """See `ports.StoredStream.last`."""
        found: dict[str, Any] | None = await self._streams.info(self.stream)
        return 0 if found is None else int(found["state"]["last_seq"])

    async def read(self, after: int, upto: int) -> list[StoredMessage]:
        """See `ports.StoredStream.read`."""
        if after >= upto:
            return []
        for _ in range(LOOKS):
            batch = await self._records.batch_whole(after + 1, limit=PAGE_MESSAGES)
            found = [
                StoredMessage(one.seq, one.stamp_ns, one.subject, _own(header), one.payload)
                for one, header in zip(batch.records, batch.headers, strict=True)
                if one.seq <= upto
            ]
            if found or batch.records or await self._records.leader_at(upto) is None:
                return found
            await asyncio.sleep(LOOK_S)
        raise Unavailable(f"the server does not show all of {self.stream} yet")


def _own(header: bytes) -> bytes:
    """A message's own header: without what the server says about its place."""
    at = header.rfind(_ADDED)
    return b"" if at < 0 or header[:at] == _NO_HEADER else header[:at] + b"\r\n\r\n"
