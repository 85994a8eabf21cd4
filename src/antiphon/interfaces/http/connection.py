"""One connection of an HTTP interface, with limits on everything that a client could use up.

A connection on which no request has begun `IDLE_S` after it was opened, or after the last answer,
is closed, whatever bytes arrive meanwhile: a client that sends one byte a minute would otherwise
keep it for ever. When a client leaves, what answers it is cancelled.

There is always room for one more connection, so that nobody can keep a probe from being answered.
Beyond `MAX_CONNECTIONS`, the address with the most connections loses the one that has waited
longest for its client. The new one is closed only while all others are being answered.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MAX_CONNECTIONS: Final = 128
"""Connections at the same time; for one more, another is closed."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Bytes of a request's first line and headers; more is 400."""
IDLE_S: Final = 5
CONNECTION: Final = "antiphon.connection"
"""Where an application finds the connection in its scope."""


_turns: Final = count()


class BoundedProtocol(H11Protocol):
    """One connection; at most `MAX_CONNECTIONS`, and none that stays idle."""

    _idle: asyncio.TimerHandle | None = None
    _answering: asyncio.Task[Any] | None = None
    _work_s = 0.0
    network = ""
    waits_since = 0
    is_ended = False
    is_put_off = False
    """Whether its client has to wait for an answer: it may be closed for another."""
    is_probe = False
    """Whether that answer is a probe's: those of its network that wait for others go first."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        application = self.app

        async def carried(scope: Scope, receive: Receive, send: Send) -> None:
            scope[CONNECTION] = self
            self._answering = asyncio.current_task()
            try:
                await application(scope, receive, send)
            finally:
                self._answering = None

        self.app = carried

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
        return cycle is None or cycle.response_complete or cycle.more_body or self.is_put_off

    def data_received(self, data: bytes) -> None:
        """Measure what it takes to read a request."""
        begun_s = time.thread_time()
        super().data_received(data)
        self._work_s += time.thread_time() - begun_s

    def taken_work_s(self) -> float:
        """The processor time of what was read since it was asked for."""
        taken, self._work_s = self._work_s, 0.0
        return taken

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and answering."""
        self._stop_waiting()
        super().connection_lost(exc)
        if self._answering is not None:
            self._answering.cancel()

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
    """Whose connection is closed: of the network with the most, the one that has waited longest.

    A probe that is put off goes last: it would be asked again, and put off again.
    """
    number = Counter(one.network for one in there)
    waiting = [one for one in there if one.is_waiting and one is not otherwise]
    most = max((number[one.network] for one in waiting), default=0)
    most_used = [one for one in waiting if number[one.network] == most]
    return min(most_used, key=lambda one: (one.is_probe, one.waits_since), default=otherwise)


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
