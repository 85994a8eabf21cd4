"""Uvicorn in the caller's event loop, with limits on everything that a client could use up.

The command that runs the node handles signals, so Uvicorn handles none. A connection on which no
request has begun `IDLE_S` after it was opened, or after the last answer, is closed, whatever bytes
arrive meanwhile: a client that sends one byte a minute would otherwise keep it for ever. The
application limits how many requests are answered at once, how long one takes and how large its
body is.

There is always room for one more connection, so that nobody can keep a probe from being answered.
Beyond `MAX_CONNECTIONS`, the address with the most connections loses the one that has waited
longest for its client. The new one is closed only while all others are being answered.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from antiphon.errors import Misconfigured, PortTaken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import ASGIApp

    from antiphon.settings import HttpAddress

MAX_CONNECTIONS: Final = 128
"""Connections at the same time; for one more, another is closed."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Bytes of a request's first line and headers; more is 400."""
IDLE_S: Final = 5
BACKLOG: Final = 64
"""Connections that the system accepts meanwhile. Fewer than `MAX_CONNECTIONS`: they come in one
turn of the loop, and must not push one another out before a request was read."""
STOP_S: Final = 2
"""How long requests that are being answered may take when the node ends."""


_turns: Final = count()


class BoundedProtocol(H11Protocol):
    """One connection; at most `MAX_CONNECTIONS`, and none that stays idle."""

    _idle: asyncio.TimerHandle | None = None
    network = ""
    waits_since = 0
    is_ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room if there is none; begin to wait for a request."""
        super().connection_made(transport)
        self.network = network_of(self.client[0] if self.client else "")
        self._wait_for_request()
        others = cast("set[BoundedProtocol]", self.connections)
        there = [one for one in others if not one.is_ended]
        if len(there) > MAX_CONNECTIONS:
            _choose(there, otherwise=self).end()

    @property
    def is_waiting(self) -> bool:
        """Whether it is the client's turn: to ask, to send the body, or to take the answer."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete or cycle.more_body

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self.waits_since = next(_turns)
        self._stop_waiting()
        if not self.transport.is_closing():
            self._idle = self.loop.call_later(IDLE_S, self._close_if_idle)

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_if_idle(self) -> None:
        # A request that has begun is limited by the application, and waits again at its end.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self.end()

    def end(self) -> None:
        """Close it at once."""
        self.is_ended = True
        self.transport.abort()


def _choose(there: list[BoundedProtocol], *, otherwise: BoundedProtocol) -> BoundedProtocol:
    """Whose connection is closed: the longest waiting one of the network with the most."""
    number = Counter(one.network for one in there)
    waiting = [one for one in there if one.is_waiting and one is not otherwise]
    most = max((number[one.network] for one in waiting), default=0)
    most_used = [one for one in waiting if number[one.network] == most]
    return min(most_used, key=lambda one: one.waits_since, default=otherwise)


def network_of(host: str) -> str:
    """What connections are counted by: an IPv4 address, or the /64 that an IPv6 host has."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


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
                hint=f"type the same with another port: --http {address.host}:{address.port + 1};"
                f" 'ss -ltnp' shows what listens at {address.port}",
            ) from problem
        raise Misconfigured(
            f"cannot listen on {address}: {problem.strerror}",
            hint="type the same with an address of this machine: --http 127.0.0.1:7464",
        ) from problem
    listener.setblocking(False)
    return listener
