"""The one door of an HTTP interface: every request passes it, whatever path it names.

In this order: is there such a route, is the head what it should be, was the request sent to this
node, who asks and under which right, is there room for this party, has the body arrived, is it the
party's turn. Then the route answers, measured and within a time. A request that is given up, by its
client or by its time, is cancelled.

Routes are data (`route.Route`): one that does not say who may ask, and how much, cannot be made,
and the door takes nothing else. What no route answers is counted for its address, like everything
that shows no right.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from antiphon.errors import AntiphonError, RateLimited
from antiphon.guard import Guard, Limits, Visit, Who
from antiphon.guard.metered import Metered
from antiphon.interfaces.http.answers import Refused, tell_bug, tell_failed, tell_refused, too_many
from antiphon.interfaces.http.askers import Anybody
from antiphon.interfaces.http.connection import CONNECTION, MAX_HEAD_BYTES, network_of
from antiphon.interfaces.http.route import EVENTS, REQUESTS, Known, Route, Streamed
from antiphon.interfaces.http.source_check import check_source

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from antiphon.interfaces.http.connection import BoundedProtocol

ARRIVING: Final = Limits(room="http bodies", of_party=64, in_all=256, request_bytes=0, seconds=0.0)
"""Bodies on their way: they take no place of a request that is being answered."""
ARRIVING_S: Final = 10.0
"""How long a head's right and a body may take, whatever the answer may take."""
PUT_OFF_S: Final = 0.5
"""How long somebody who used up its share waits for a refusal. So who asks without a pause is
answered little, however many connections it opens."""
PROBE_OFF_S: Final = 0.25
"""The same for a probe's answer: whoever orders restarts waits for a second."""

Tell = Callable[[Request, Exception], Response]


class Found(NamedTuple):
    """A route, and what its path says."""

    route: Route
    params: Mapping[str, Any]


class Door:
    """An ASGI application."""

    def __init__(
        self,
        routes: Sequence[Route],
        guard: Guard,
        *,
        host: str = "",
        tell: Tell | None = None,
        is_for_people: bool = False,
    ) -> None:
        """`host` is where it listens. `tell` says in its own form what is wrong."""
        for one in routes:
            if not isinstance(one, Route):
                raise TypeError(f"{one!r} does not say who may ask, and how much: it is no Route")
        self.routes = tuple(routes)
        self._guard = guard
        self._host = host
        self._tell = tell or told
        self._misdirected = 400 if is_for_people else 421
        self._fixed: dict[str, list[Route]] = {}
        self._matchers: list[tuple[Callable[[str], Mapping[str, Any] | None], Route]] = []
        for route in routes:
            if "{" in route.path:
                self._matchers.append((route.matcher(), route))
            else:
                self._fixed.setdefault(route.path, []).append(route)
        self._nowhere = Route(
            path="", answer=_nothing, asker=Anybody("that there is nothing"), limits=REQUESTS
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and count all that it takes."""
        exchange = _Exchange(scope, receive, send)
        await Metered(
            self._serve(scope, exchange),
            spend=lambda seconds: exchange.count(self._guard, seconds),
            rest_s=lambda: 0.0,
            most_s=math.inf,
        )

    async def _serve(self, scope: Scope, exchange: _Exchange) -> None:
        request = Request(scope, exchange.receive)
        found = self._find(scope["path"], scope["method"])
        scope["path_params"] = dict(found.params)
        try:
            async with asyncio.timeout(min(found.route.limits.seconds, ARRIVING_S)):
                _check_head(scope)
                if not found.route.is_probe:
                    check_source(Headers(scope=scope), self._host, status=self._misdirected)
                known = await self._known(found.route, request, exchange)
            exchange.who = known.who
            await self._answer(found.route, request, exchange, known)
        except Refused as refused:
            exchange.who = refused.who or exchange.who
            await exchange.put_off(self._guard)
            await exchange.tell(self._tell, request, refused)
        except TimeoutError:
            await exchange.tell(self._tell, request, Refused(408, "timed out", "timeout"))
        except Exception as problem:  # noqa: BLE001 - one request must not end the node
            await exchange.put_off(self._guard)
            await exchange.tell(self._tell, request, problem)

    def _find(self, path: str, method: str) -> Found:
        """The route that answers a request; one that says there is none."""
        method = "GET" if method == "HEAD" else method
        there = [Found(one, {}) for one in self._fixed.get(path, ())]
        if not there:
            matched = ((one, matcher(path)) for matcher, one in self._matchers)
            there = [Found(one, params) for one, params in matched if params is not None]
        for found in there:
            if method in found.route.methods:
                return found
        return Found(self._nowhere, {"there": [one for f in there for one in f.route.methods]})

    async def _known(self, route: Route, request: Request, exchange: _Exchange) -> Known:
        """Who asks, when its body has arrived.

        Where a token says who asks it is looked at first, and the body counts for its party.
        """
        most, stranger, known = route.limits.request_bytes, exchange.who, None
        if not route.asker.needs_body:
            known = await route.asker.identify(request, stranger)
        size = exchange.announced_bytes(most)
        if size:
            who = stranger if known is None else known.who
            self._check(route.limits, who)  # before a large body is read, for nothing
            with self._admit(ARRIVING, who, size):
                await exchange.arrive(most)
                return known or await route.asker.identify(request, stranger)
        return known or await route.asker.identify(request, stranger)

    def _check(self, limits: Limits, who: Who) -> None:
        """`Refused` if a request would be refused whatever is in it."""
        try:
            self._guard.check_room(limits, who)
            self._guard.check_turn(who)
        except RateLimited as limited:
            raise self._busy(limits, who, limited) from None

    def _admit(self, limits: Limits, who: Who, size: int) -> Visit:
        try:
            return self._guard.admit(limits, who, size)
        except RateLimited as limited:
            raise self._busy(limits, who, limited) from None

    def _busy(self, limits: Limits, who: Who, limited: RateLimited) -> Refused:
        """Too much of this party's is in hand, or of everybody's."""
        refused = too_many(limited.retry_s, limited.message, limited.hint, who)
        if not self._guard.in_hand(limits, who) and not self._guard.rest_s(who):
            refused.status_code = 503
            refused.headers = {**(refused.headers or {}), "Connection": "close"}
        return refused

    async def _answer(
        self, route: Route, request: Request, exchange: _Exchange, known: Known
    ) -> None:
        limits, who = route.limits, known.who
        if route.is_probe:
            await exchange.put_off(self._guard, is_probe=True)
            await exchange.send(await route.answer(request, known))
            return
        with self._admit(limits, who, len(exchange.body)) as visit:
            exchange.visit = visit
            try:
                async with asyncio.timeout(limits.seconds):
                    answer = await visit.work(route.answer(request, known))
                    if not isinstance(answer, Streamed):
                        visit.hold(len(answer.body))
                        await exchange.send(answer)
                        return
                    await self._stream(answer, exchange, visit)
            except RateLimited as limited:
                raise too_many(limited.retry_s, limited.message, limited.hint, who) from None

    async def _stream(self, answer: Streamed, exchange: _Exchange, visit: Visit) -> None:
        """Send piece by piece; what goes wrong before the first is told."""
        piece = await visit.work(_next(answer.pieces))
        await exchange.begin(answer)
        try:
            while piece is not None:
                await exchange.more(piece)
                piece = await visit.work(_next(answer.pieces), most_wait_s=math.inf)
        except AntiphonError:
            if answer.media_type != EVENTS:
                return  # breaks off, so that nobody takes a part for the whole
        await exchange.finish()  # of events: the client connects again, and is told then


class _Exchange:
    """One request's body, which is read first, and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.body = b""
        self._receive = receive
        self._send = send
        self._is_read = False
        self._is_begun = False
        self._headers = Headers(scope=scope)
        self._connection: BoundedProtocol | None = scope.get(CONNECTION)
        client = scope.get("client")
        address = network_of(client[0] if client else "")
        self.who = Who(party=f"address {address}", is_stranger=True)
        """For whom it counts: an address, until something shows a right."""
        self.visit: Visit | None = None

    def announced_bytes(self, most: int) -> int:
        """How large the body will be; 0: there is none. `Refused` if that is too much."""
        length = self._headers.get("content-length", "")
        if length.isdecimal():
            if int(length) > most:
                raise _too_large(most)
            return int(length)
        return most if "transfer-encoding" in self._headers else 0

    async def arrive(self, most: int) -> None:
        """Wait for the whole body."""
        parts, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise _Gone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            more = message.get("more_body", False)
        self.body = b"".join(parts)

    async def receive(self) -> Message:
        """The body, once; then what happens to the connection."""
        if self._is_read:
            return await self._receive()
        self._is_read = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, answer: Response) -> None:
        """Send an answer that is made already."""
        await self.begin(answer)
        await self.more(bytes(answer.body), is_last=True)

    async def begin(self, answer: Response) -> None:
        """Its head."""
        self._is_begun = True
        head = {"type": "http.response.start", "status": answer.status_code}
        await self._send({**head, "headers": answer.raw_headers})

    async def more(self, piece: bytes, *, is_last: bool = False) -> None:
        """A piece of it."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": not is_last})

    async def finish(self) -> None:
        """There is no more of it."""
        await self.more(b"", is_last=True)

    async def tell(self, tell: Tell, request: Request, problem: Exception) -> None:
        """Say what is wrong, if no answer has begun and somebody is there."""
        if not self._is_begun and not isinstance(problem, _Gone):
            await self.send(tell(request, problem))

    def count(self, guard: Guard, seconds: float) -> None:
        """Count work; of what its visit measures, that is counted there."""
        measured_s = 0.0
        if self.visit is not None:
            measured_s, self.visit.measured_s = self.visit.measured_s, 0.0
        if self._connection is not None:
            seconds += self._connection.taken_work_s()
        guard.spend(self.who, max(seconds - measured_s, 0.0))

    async def put_off(self, guard: Guard, *, is_probe: bool = False) -> None:
        """Let an asker wait who has used more than its share."""
        wait_s = min(guard.rest_s(self.who), PROBE_OFF_S if is_probe else PUT_OFF_S)
        if wait_s and self._connection is not None:
            self._connection.is_put_off, self._connection.is_probe = True, is_probe
            await asyncio.sleep(wait_s)
            self._connection.is_put_off = self._connection.is_probe = False


class _Gone(Exception):
    """The client has left."""


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def _nothing(request: Request, _: Known) -> Response:
    there = request.path_params.get("there")
    if not there:
        raise HTTPException(404)
    raise HTTPException(405, headers={"Allow": ", ".join(there)})


def _check_head(scope: Scope) -> None:
    """`Refused` for a head that no honest client sends; the connection is not used again."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) + 4 for name, value in headers)
    names = {name for name, _ in headers}
    why = ""
    if size > MAX_HEAD_BYTES:
        why = f"a request's head has at most {MAX_HEAD_BYTES:,} bytes"
    elif {b"content-length", b"transfer-encoding"} <= names:
        why = "a request has a length or a transfer encoding, not both"
    if why:
        refused = Refused(400, why, "malformed")
        refused.headers = {"Connection": "close"}
        raise refused


def _too_large(most: int) -> Refused:
    return Refused(413, f"a body has at most {most:,} bytes", "too_large")


def told(request: Request, problem: Exception) -> Response:
    """What is wrong, as `application/problem+json`."""
    if isinstance(problem, HTTPException):
        return tell_refused(request, problem)
    if isinstance(problem, AntiphonError):
        return tell_failed(request, problem)
    return tell_bug(request, problem)


__all__ = ["Door", "told"]
