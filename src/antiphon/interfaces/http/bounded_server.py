"""Uvicorn in the caller's event loop, with limits on everything that a client could use up.

The command that runs the node handles signals, so Uvicorn handles none. A connection on which no
request has begun `IDLE_S` after it was opened, or after the last answer, is closed, whatever bytes
arrive meanwhile: a client that sends one byte a minute would otherwise keep it for ever. The
application limits how long a request takes and how large its body is.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from antiphon.errors import Misconfigured, PortTaken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import ASGIApp

    from antiphon.settings import HttpAddress

MAX_REQUESTS: Final = 32
"""Connections with a request; on more, the answer is 503."""
MAX_CONNECTIONS: Final = 64
"""Connections at the same time; more are closed without an answer."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Bytes of a request's first line and headers; more is 400."""
IDLE_S: Final = 5
BACKLOG: Final = 64
STOP_S: Final = 2
"""How long requests that are being answered may take when the node ends."""


class BoundedProtocol(H11Protocol):
    """One connection; at most `MAX_CONNECTIONS`, and none that stays idle."""

    _idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one too many; begin to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._wait_for_request()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self._idle = self.loop.call_later(IDLE_S, self._close_if_idle)

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_if_idle(self) -> None:
        # A request that has begun is limited by the application, and waits again at its end.
        cycle: RequestResponseCycle | None = self.cycle  # None before the first one
        if cycle is None or cycle.response_complete:
            self.transport.abort()


class _Server(uvicorn.Server):
    """Runs until `stop`; leaves signals to the command."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.servers = []
        self._stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Wait for the end; Uvicorn would look ten times a second."""
        await self.on_tick(0)
        await self._stopping.wait()

    async def run_on(self, listener: socket.socket) -> None:
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
async def serving(app: ASGIApp, address: HttpAddress) -> AsyncIterator[int]:
    """Serve an application while the block runs; the port it listens on.

    The port is closed when the block ends, at the latest after `STOP_S`.
    """
    listener = _listen(address)
    server = _Server(
        uvicorn.Config(
            app,
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
            limit_concurrency=MAX_REQUESTS + 1,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=STOP_S,
            backlog=BACKLOG,
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
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        if problem.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"another program already listens on {address}",
                hint="give another port: antiphon node --http 127.0.0.1:7465",
            ) from problem
        raise Misconfigured(
            f"cannot listen on {address}: {problem.strerror}",
            hint="give an address of this machine: antiphon node --http 127.0.0.1:7464",
        ) from problem
    listener.setblocking(False)
    return listener
