"""Uvicorn in the caller's event loop, for one `Door`.

The command that runs the node handles signals, so Uvicorn handles none. What a client could use up
is limited in `connection`, and by the door.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from antiphon.errors import Misconfigured, PortTaken
from antiphon.interfaces.http.connection import IDLE_S, MAX_HEAD_BYTES, BoundedProtocol
from antiphon.interfaces.http.door import Door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from antiphon.settings import HttpAddress

ACCEPTED: Final = 64
"""Connections that are accepted in one turn of the loop. Fewer than `MAX_CONNECTIONS`: they must
not push one another out before a request was read."""
QUEUED: Final = 1024
"""Connections that wait to be accepted. Beyond them the system drops what comes, and whoever tries
again does so after a second: too late for a probe."""
STOP_S: Final = 2
"""How long requests that are being answered may take when the node ends."""


class _Server(uvicorn.Server):
    """Runs until `stop`; leaves signals to the command."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.servers = []
        self._listener: socket.socket | None = None
        self._stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Wait for the end; Uvicorn would look ten times a second."""
        if self._listener is not None:
            self._listener.listen(QUEUED)  # asyncio has one number for this and for a turn
        await self.on_tick(0)
        await self._stopping.wait()

    async def run_on(self, listener: socket.socket) -> None:
        self._listener = listener
        try:
            await self.serve(sockets=[listener])
        finally:
            for server in self.servers:
                server.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()


@asynccontextmanager
async def serving(door: Door, address: HttpAddress) -> AsyncIterator[int]:
    """Serve what is behind a door while the block runs; the port it listens on.

    The port is closed when the block ends, at the latest after `STOP_S`.
    """
    if not isinstance(door, Door):
        raise TypeError("only what is behind a Door is served: it counts who asks, and how much")
    listener = _listen(address)
    server = _Server(
        uvicorn.Config(
            door,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            # Uvicorn's own lines are about single requests. Anyone could fill a log with them.
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=STOP_S,
            backlog=ACCEPTED,
        )
    )
    port: int = listener.getsockname()[1]
    running = asyncio.ensure_future(server.run_on(listener))
    try:
        yield port
    finally:
        server.stop()
        await _ended(running)
        listener.close()


async def _ended(running: asyncio.Future[Any]) -> None:
    """Wait for the server's end; when cancelled meanwhile, end it at once."""
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise


def _listen(address: HttpAddress) -> socket.socket:
    """A socket that listens there; an error that says which setting to change."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # Named, so that asyncio switches Nagle's algorithm off: answers would wait for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(QUEUED)
    except OSError as problem:
        listener.close()
        if problem.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"another program already listens on {address}",
                hint=f"type the same with another port: --http {address.host}:{address.port + 1};"
                f" 'ss -ltnp' shows what listens at {address.port}",
            ) from problem
        raise Misconfigured(
            f"cannot listen on {address}: {problem.strerror}",
            hint="type the same with an address of this machine: --http 127.0.0.1:7464",
        ) from problem
    listener.setblocking(False)
    return listener
