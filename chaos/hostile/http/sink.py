"""A process that reads what it is sent and does nothing: what a flood of a node is compared with.

It answers probes, so that it shows how long those take on this machine beside the same load.
"""

from __future__ import annotations

import asyncio
import json
import sys

PROBED = b"GET /healthz"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"


class Sink(asyncio.Protocol):
    """One connection."""

    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Forget what is no probe."""
        if data.startswith(PROBED):
            self._transport.write(ANSWER)
            self._transport.close()


async def main() -> None:
    """Listen until nobody has this process's standard input open."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Sink, "127.0.0.1", 0, backlog=512)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"event": "ready", "port": port}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
