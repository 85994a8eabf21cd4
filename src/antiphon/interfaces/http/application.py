"""The ASGI application of a full node; a worker's has the first four paths.

    GET  /healthz                     ok                                     no token
    GET  /readyz                      ok, degraded, or not ready with 503    no token; with one, why
    GET  /metrics                     Prometheus' text                       read, every project
    GET  /v1/status                   whether it is ready, and why not       read, every project
    GET  /v1/tempo                    the tempo in force, and the policy     read or tempo
    PUT  /v1/tempo                    replaces the policy                    owner or operator
    POST /v1/tempo/freeze, unfreeze   holds the tempo, or lets it change     owner or operator
    POST /v1/a2a/deliver              stores a message for an agent          the sender's signature

Without a token there is one word, except for messages: each is signed, and its sender's delegations
decide. Everything else needs `Authorization: Bearer` with the operator's token or a bar-bound one.
Tokens are not logged, and neither are headers, bodies or query strings.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from antiphon.errors import (
    AntiphonError,
    Conflict,
    InboxFull,
    Malformed,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.interfaces.http.prometheus_text import MetricsPage
from antiphon.sdk.http.access import READ_BY, TEMPO_BY
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from antiphon.sdk.http.access import Bearer, HttpAccess
    from antiphon.sdk.http.deliveries import Deliveries
    from antiphon.sdk.http.node_view import NodeView
    from antiphon.sdk.http.tempo_admin import TempoAdmin
    from antiphon.sdk.http.worker_view import WorkerView

PROBES: Final = frozenset({"/healthz", "/readyz"})
MAX_REQUESTS: Final = 32
"""Requests that are answered at the same time; on more, except for probes, the answer is 503."""
REQUEST_S: Final = 10.0
"""How long a request may take, its body included."""
MAX_BODY_BYTES: Final = 64 * 1024
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_log = LazyLogger(__name__)


class ProbeRoutes:
    """What each path answers that nodes and workers have."""

    def __init__(self, view: NodeView | WorkerView, access: HttpAccess) -> None:
        self._view = view
        self._access = access
        self._metrics = MetricsPage(view)

    async def health(self, _: Request) -> Response:
        """Alive: the event loop answers."""
        return _word("ok")

    async def ready(self, request: Request) -> Response:
        """Ready: connected and caught up. Whoever may read everything is told why not."""
        status = self._view.status()
        words: tuple[str, ...] = (status.readiness,)
        if "authorization" in request.headers:
            self._require(request, READ_BY, every_kind=True)
            words += status.reasons
        return _word("\n".join(words), 503 if status.readiness == "not ready" else 200)

    async def metrics(self, request: Request) -> Response:
        """Everything that is counted; it is about the whole mesh."""
        self._require(request, READ_BY, every_kind=True)
        text, content_type = self._metrics.text(request.headers.get("accept", ""))
        return Response(text, headers={**_HEADERS, "Content-Type": content_type})

    async def status(self, request: Request) -> Response:
        """How the node is, with reasons."""
        self._require(request, READ_BY, every_kind=True)
        return _json(self._view.status())

    def _require(
        self, request: Request, commands: tuple[str, ...], *, every_kind: bool = False
    ) -> Bearer:
        """Whoever asks, if its token permits one of these commands; otherwise 401 or 403."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise _Refused(401, "a token is needed", "token", "send 'Authorization: Bearer TOKEN'")
        try:
            bearer = self._access.admit(token.strip())
        except Rejected as refused:
            raise _Refused(401, refused.message, refused.reason, refused.hint) from None
        if not bearer.may(*commands):
            needs = " or ".join(commands)
            raise _Refused(403, f"the token's role does not include {needs}", "role")
        if every_kind and not bearer.has_every_kind:
            raise _Refused(
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
        self, view: NodeView, access: HttpAccess, tempo: TempoAdmin, deliveries: Deliveries
    ) -> None:
        super().__init__(view, access)
        self._deliveries = deliveries
        self._tempo = tempo

    async def tempo(self, request: Request) -> Response:
        """The tempo in force; with PUT, another policy from the next downbeat on."""
        if request.method != "PUT":
            self._require(request, (*READ_BY, *TEMPO_BY))
            return _json(self._tempo.now())
        self._require_owner(request)
        return _json(await self._tempo.set(_fields(await request.body())))

    async def freeze(self, request: Request) -> Response:
        """The tempo stays where it is."""
        self._require_owner(request)
        return _json(await self._tempo.freeze())

    async def unfreeze(self, request: Request) -> Response:
        """The tempo may follow the load again."""
        self._require_owner(request)
        return _json(await self._tempo.unfreeze())

    async def deliver(self, request: Request) -> Response:
        """A message for an agent's inbox; the same one again is answered the same."""
        try:
            stored = await self._deliveries.deliver(await request.body())
        except Malformed as problem:
            raise _Refused(400, problem.message, problem.reason) from None
        except Rejected as refused:
            raise _Refused(403, refused.message, refused.reason, refused.hint) from None
        except RateLimited as limited:
            refusal = _Refused(429, limited.message, "rate", limited.hint)
            refusal.headers = {"Retry-After": str(math.ceil(limited.retry_s))}
            raise refusal from None
        return _json({"id": stored.id, "is_duplicate": stored.is_duplicate})

    def _require_owner(self, request: Request) -> None:
        bearer = self._require(request, TEMPO_BY, every_kind=True)
        if not self._access.may_govern(bearer):
            raise _Refused(
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
        ]


class _Refused(HTTPException):
    """An answer without success: what is wrong, in a word for programs and a sentence."""

    def __init__(self, status: int, error: str, reason: str, hint: str = "") -> None:
        challenge = {"WWW-Authenticate": "Bearer"} if status == 401 else None  # noqa: PLR2004
        super().__init__(status, error, challenge)
        self.reason = reason
        self.hint = hint


def make_application(routes: ProbeRoutes) -> ASGIApp:
    """The application for one node or worker."""
    app = Starlette(
        routes=routes.routes(),
        exception_handlers={
            HTTPException: _tell_refused,
            AntiphonError: _tell_failed,
            Exception: _tell_bug,
        },
    )
    return _limited(app)


# --- limits ---------------------------------------------------------------------------------------


class _Exchange:
    """One request's body, which is read first, and whether it was answered."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._body: Message | None = None
        self.is_answered = False

    async def arrive(self) -> bool:
        """Wait for the whole body; whether the client stayed until then."""
        parts, size, more = [], 0, True
        while more and size <= MAX_BODY_BYTES:
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
        if len(body["body"]) > MAX_BODY_BYTES:
            raise _Refused(413, f"a body has at most {MAX_BODY_BYTES:,} bytes", "too_large")
        return body

    async def send(self, message: Message) -> None:
        self.is_answered = True
        await self._send(message)


def _limited(app: ASGIApp) -> ASGIApp:
    """The same with limits on a request's time and body, and on requests at the same time.

    A request counts when it has arrived: whoever sends half a body takes no one's place. Probes do
    not count. They wait for nothing, and one that is not answered gets the node restarted.
    """
    answering = 0

    async def answer(scope: Scope, passing: _Exchange) -> None:
        nonlocal answering
        if scope["path"] in PROBES:
            await app(scope, passing.receive, passing.send)
            return
        if answering >= MAX_REQUESTS:
            await _BUSY(scope, passing.receive, passing.send)
            return
        answering += 1
        try:
            await app(scope, passing.receive, passing.send)
        finally:
            answering -= 1

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        passing = _Exchange(receive, send)
        try:
            async with asyncio.timeout(REQUEST_S):
                if await passing.arrive():
                    await answer(scope, passing)
        except TimeoutError:
            if not passing.is_answered:
                await _word("timed out", 408)(scope, receive, send)
        except Exception:
            # Answered and logged in `_tell_bug`; Starlette raises it again for its own server.
            if not passing.is_answered:
                raise

    return limited


# --- answers --------------------------------------------------------------------------------------


def _word(word: str, status: int = 200) -> Response:
    return PlainTextResponse(f"{word}\n", status, headers=_HEADERS)


_BUSY: Final = PlainTextResponse("busy\n", 503, headers={**_HEADERS, "Connection": "close"})


def _json(value: Any, status: int = 200) -> Response:
    text = msgspec.json.encode(value) + b"\n"
    return Response(text, status, headers=_HEADERS, media_type="application/json")


def _fields(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise _Refused(400, "the body is not a JSON object", "malformed") from None


def _tell_refused(_: Request, refused: Exception) -> Response:
    if not isinstance(refused, _Refused):  # Starlette's own: no such path, no such method
        status = refused.status_code if isinstance(refused, HTTPException) else 500
        return _json({"error": HTTPStatus(status).phrase.lower()}, status)
    told = {"error": refused.detail, "reason": refused.reason, "hint": refused.hint}
    answer = _json({key: value for key, value in told.items() if value}, refused.status_code)
    answer.headers.update(refused.headers or {})
    return answer


def _tell_failed(_: Request, failed: Exception) -> Response:
    """An error of ours: the engine does not answer, somebody else was first, it is not allowed."""
    if not isinstance(failed, AntiphonError):
        raise failed
    status = next((code for kind, code in _STATUS if isinstance(failed, kind)), 500)
    reason = failed.reason if isinstance(failed, Rejected) else ""
    if reason == "not_owner":
        status = 403
    told = {"error": failed.message, "reason": reason, "hint": failed.hint}
    return _json({key: value for key, value in told.items() if value}, status)


_STATUS: Final = ((Rejected, 422), (Conflict, 409), (InboxFull, 507), (Unavailable, 503))


def _tell_bug(request: Request, problem: Exception) -> Response:
    """Log where it happened, and nothing that the client sent."""
    frames = traceback.extract_tb(problem.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    _log.error(
        "http_request_failed",
        path=request.scope["path"],
        error=type(problem).__name__,
        where=where,
    )
    return _json({"error": "internal error"}, 500)
