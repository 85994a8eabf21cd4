"""The ASGI application of a full node; a worker's has the first four paths.

    GET  /healthz                     ok                                     no token
    GET  /readyz                      ok, degraded, or not ready with 503    no token; with one, why
    GET  /metrics                     Prometheus' text                       read, every project
    GET  /v1/status                   whether it is ready, and why not       read, every project
    GET  /v1/tempo                    the tempo in force, and the policy     read or tempo
    PUT  /v1/tempo                    replaces the policy                    owner or operator
    POST /v1/tempo/freeze, unfreeze   holds the tempo, or lets it change     owner or operator
    POST /v1/a2a/deliver              stores a message for an agent          the sender's signature
    …    /v1/jobs and others          `endpoints.py` lists them              by role and project
    …    /v1/offers, lanes, records   `member_routes.py`, for workers        the asker's signature

Without a token there is one word, except for messages and for members that sign each request: the
delegations of whoever signed decide. Everything else needs `Authorization: Bearer` with the
operator's token or a bar-bound one.
Tokens are not logged, and neither are headers, bodies or query strings.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from antiphon.errors import AntiphonError, Malformed, RateLimited, Rejected
from antiphon.interfaces.http.answers import (
    BUSY,
    HEADERS,
    Refused,
    fields_of,
    json_of,
    tell_bug,
    tell_failed,
    tell_refused,
    too_many,
    word,
)
from antiphon.interfaces.http.api_routes import ApiRoutes
from antiphon.interfaces.http.guards import Rates, check_source
from antiphon.interfaces.http.member_routes import MAX_RECORD_BYTES, MemberRoutes
from antiphon.interfaces.http.prometheus_text import MetricsPage
from antiphon.sdk.http.access import READ_BY, TEMPO_BY

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from antiphon.sdk.http.access import Bearer, HttpAccess, JobLink
    from antiphon.sdk.http.deliveries import Deliveries
    from antiphon.sdk.http.node_api import NodeApi
    from antiphon.sdk.http.node_view import NodeView
    from antiphon.sdk.http.tempo_admin import TempoAdmin
    from antiphon.sdk.http.worker_view import WorkerView

PROBES: Final = frozenset({"/healthz", "/readyz"})
MAX_REQUESTS: Final = 32
"""Requests that are answered at the same time; on more, except for probes, the answer is 503."""
REQUEST_S: Final = 10.0
"""How long a request may take, its body included."""
MAX_BODY_BYTES: Final = 64 * 1024
BODY_BYTES: Final = {
    "/v1/verify": 1024 * 1024,
    "/v1/records": MAX_RECORD_BYTES,
    "/v1/log": MAX_RECORD_BYTES,
}
"""Of paths that take more."""
STREAMED: Final = re.compile(r"/v1/jobs/[^/]+/(?:events|log|outputs/.+)|/v1/(?:offers|log)")
"""Answers that may last."""
MAX_STREAMS: Final = 64
"""Streams of events at the same time; they do not count as requests."""
STREAM_S: Final = 3_600.0
"""How long one lasts at most. A client connects again and goes on where it was."""


class ProbeRoutes:
    """What each path answers that nodes and workers have."""

    def __init__(self, view: NodeView | WorkerView, access: HttpAccess) -> None:
        self._view = view
        self._access = access
        self._metrics = MetricsPage(view)
        self._rates = Rates()

    async def health(self, _: Request) -> Response:
        """Alive: the event loop answers."""
        return word("ok")

    async def ready(self, request: Request) -> Response:
        """Ready: connected and caught up. Whoever may read everything is told why not."""
        status = self._view.status()
        words: tuple[str, ...] = (status.readiness,)
        if "authorization" in request.headers:
            self._require(request, READ_BY, every_kind=True)
            words += status.reasons
        return word("\n".join(words), 503 if status.readiness == "not ready" else 200)

    async def metrics(self, request: Request) -> Response:
        """Everything that is counted; it is about the whole mesh."""
        self._require(request, READ_BY, every_kind=True)
        text, content_type = self._metrics.text(request.headers.get("accept", ""))
        return Response(text, headers={**HEADERS, "Content-Type": content_type})

    async def status(self, request: Request) -> Response:
        """How the node is, with reasons."""
        self._require(request, READ_BY, every_kind=True)
        return json_of(self._view.status())

    def _require_link(self, text: str, job: str, *, outputs: bool) -> tuple[Bearer, JobLink]:
        """Whoever has a link to this job, and what it says; otherwise 401, 403 or 404."""
        try:
            bearer, link = self._access.admit_link(text)
        except Rejected as refused:
            raise Refused(401, refused.message, refused.reason, refused.hint) from None
        self._rates.take(bearer.party)
        if job != link.job:
            raise Refused(404, "the link is to another job", "no_job")
        if outputs and not link.outputs:
            raise Refused(
                403,
                "the link opens the job's story, and not what it wrote",
                "role",
                "ask whoever sent it for one that does: antiphon link JOB --outputs",
            )
        return bearer, link

    def _require(
        self, request: Request, commands: tuple[str, ...], *, every_kind: bool = False
    ) -> Bearer:
        """Whoever asks, if its token permits one of these commands; otherwise 401 or 403."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused(401, "a token is needed", "token", "send 'Authorization: Bearer TOKEN'")
        try:
            bearer = self._access.admit(token.strip())
        except Rejected as refused:
            raise Refused(401, refused.message, refused.reason, refused.hint) from None
        self._rates.take(bearer.party)
        if not bearer.may(*commands):
            needs = " or ".join(commands)
            raise Refused(403, f"the token's role does not include {needs}", "role")
        if every_kind and not bearer.has_every_kind:
            raise Refused(
                403,
                "this is about every kind of job, and the token is for some of them",
                "project",
                "make one with --project '*'",
            )
        return bearer

    def routes(self) -> list[Route]:
        """The paths."""
        return [
            Route("/healthz", self.health),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
            Route("/v1/status", self.status),
        ]


class NodeRoutes(ProbeRoutes):
    """What each path of a full node answers."""

    def __init__(
        self,
        view: NodeView,
        access: HttpAccess,
        tempo: TempoAdmin,
        deliveries: Deliveries,
        api: NodeApi,
    ) -> None:
        super().__init__(view, access)
        self._api = ApiRoutes(api, self._require, self._require_link, access.still_holds)
        self._members = MemberRoutes(api.members, api.member_log, self._rates)
        self._deliveries = deliveries
        self._tempo = tempo

    async def tempo(self, request: Request) -> Response:
        """The tempo in force; with PUT, another policy from the next downbeat on."""
        if request.method != "PUT":
            self._require(request, (*READ_BY, *TEMPO_BY))
            return json_of(self._tempo.now())
        self._require_owner(request)
        return json_of(await self._tempo.set(fields_of(await request.body())))

    async def freeze(self, request: Request) -> Response:
        """The tempo stays where it is."""
        self._require_owner(request)
        return json_of(await self._tempo.freeze())

    async def unfreeze(self, request: Request) -> Response:
        """The tempo may follow the load again."""
        self._require_owner(request)
        return json_of(await self._tempo.unfreeze())

    async def deliver(self, request: Request) -> Response:
        """A message for an agent's inbox; the same one again is answered the same."""
        try:
            stored = await self._deliveries.deliver(await request.body())
        except Malformed as problem:
            raise Refused(400, problem.message, problem.reason) from None
        except Rejected as refused:
            raise Refused(403, refused.message, refused.reason, refused.hint) from None
        except RateLimited as limited:
            raise too_many(limited.retry_s, limited.message, limited.hint) from None
        return json_of({"id": stored.id, "is_duplicate": stored.is_duplicate})

    def _require_owner(self, request: Request) -> None:
        bearer = self._require(request, TEMPO_BY, every_kind=True)
        if not self._access.may_govern(bearer):
            raise Refused(
                403,
                "only the owner, or the operator of this node, may change the tempo",
                "not_owner",
            )

    def routes(self) -> list[Route]:
        """The paths."""
        return [
            *super().routes(),
            Route("/v1/tempo", self.tempo, methods=["GET", "PUT"]),
            Route("/v1/tempo/freeze", self.freeze, methods=["POST"]),
            Route("/v1/tempo/unfreeze", self.unfreeze, methods=["POST"]),
            Route("/v1/a2a/deliver", self.deliver, methods=["POST"]),
            *self._api.routes(),
            *self._members.routes(),
        ]


def make_application(routes: ProbeRoutes, *, host: str = "") -> ASGIApp:
    """The application for one node or worker that listens on this address."""
    app = Starlette(
        routes=routes.routes(),
        exception_handlers={
            HTTPException: tell_refused,
            AntiphonError: tell_failed,
            Exception: tell_bug,
        },
    )
    return _limited(_guarded(app, host))


# --- limits ---------------------------------------------------------------------------------------


class _Exchange:
    """One request's body, which is read first, and whether it was answered."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._most = most
        self._receive = receive
        self._send = send
        self._body: Message | None = None
        self.is_answered = False

    async def arrive(self) -> bool:
        """Wait for the whole body; whether the client stayed until then."""
        parts, size, more = [], 0, True
        while more and size <= self._most:
            message = await self._receive()
            if message["type"] != "http.request":
                return False
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
        self._body = {"type": "http.request", "body": b"".join(parts), "more_body": False}
        return True

    async def receive(self) -> Message:
        body = self._body
        self._body = None
        if body is None:
            return await self._receive()
        if len(body["body"]) > self._most:
            raise Refused(413, f"a body has at most {self._most:,} bytes", "too_large")
        return body

    async def send(self, message: Message) -> None:
        self.is_answered = True
        await self._send(message)


class _Room:
    """How many there may be at the same time, and how many there are."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0


def _guarded(app: ASGIApp, listening: str) -> ASGIApp:
    """The same for requests that were sent to this node, and not for another site's page."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in PROBES:
            try:
                check_source(Headers(scope=scope), listening)
            except Refused as refused:
                await tell_refused(Request(scope), refused)(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded


def _limited(app: ASGIApp) -> ASGIApp:
    """The same with limits on a request's time and body, and on requests at the same time.

    A request counts when it has arrived: whoever sends half a body takes no one's place. Probes do
    not count. They wait for nothing, and one that is not answered gets the node restarted.
    """
    requests, streams = _Room(MAX_REQUESTS), _Room(MAX_STREAMS)

    async def answer(scope: Scope, passing: _Exchange, room: _Room) -> None:
        if scope["path"] in PROBES:
            await app(scope, passing.receive, passing.send)
        elif room.taken >= room.most:
            await BUSY(scope, passing.receive, passing.send)
        else:
            room.taken += 1
            try:
                await app(scope, passing.receive, passing.send)
            finally:
                room.taken -= 1

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        passing = _Exchange(receive, send, BODY_BYTES.get(scope["path"], MAX_BODY_BYTES))
        is_stream = STREAMED.fullmatch(scope["path"]) is not None
        try:
            async with asyncio.timeout(REQUEST_S):
                has_arrived = await passing.arrive()
                if has_arrived and not is_stream:
                    await answer(scope, passing, requests)
            if has_arrived and is_stream:
                async with asyncio.timeout(STREAM_S):
                    await answer(scope, passing, streams)
        except TimeoutError:
            if not passing.is_answered:
                await word("timed out", 408)(scope, receive, send)
        except Exception:
            # Answered and logged in `tell_bug`; Starlette raises it again for its own server.
            if not passing.is_answered:
                raise

    return limited
