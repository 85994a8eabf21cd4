"""What the paths below `/v1` answer (`endpoints.py` lists them): thin, over `NodeApi`."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from antiphon.errors import AntiphonError
from antiphon.interfaces.http import openapi
from antiphon.interfaces.http.answers import HEADERS, Refused, json_of, too_many
from antiphon.interfaces.http.endpoints import ENDPOINTS, JOB_FILTERS, MOST_CHARACTERS
from antiphon.sdk.http import models
from antiphon.sdk.http.node_api import CANCEL, READ_BY, SCHEDULE
from antiphon.sdk.mesh import Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.requests import Request

    from antiphon.sdk.http.access import Bearer
    from antiphon.sdk.http.node_api import NodeApi
    from antiphon.sdk.queries.page import Page

T = TypeVar("T")

HEARTBEAT_S: Final = 15.0
STREAMS_EACH: Final = 8
"""Streams of events that one party may follow at the same time."""
KEY_MOST: Final = 200
DIGITS: Final = 18
"""Of a number in a header."""
_COMMANDS: Final = {"read": READ_BY, "schedule": (SCHEDULE,), "cancel": (CANCEL,)}
_STREAMED: Final = {**HEADERS, "X-Accel-Buffering": "no"}
_WORDS: Final = {one.value: one.in_words for one in Verdict}


class ApiRoutes:
    """The answers. `require` gives whoever sent a request, if the token permits a command."""

    def __init__(self, api: NodeApi, require: Callable[[Request, tuple[str, ...]], Bearer]) -> None:
        self._api = api
        self._require = require
        self._streams: Counter[str] = Counter()

    def routes(self) -> list[Route]:
        """The paths."""
        made = [
            Route(
                one.path.replace("{name}", "{name:path}"),
                self._answering(one.name, one.role),
                methods=[one.method],
            )
            for one in ENDPOINTS
        ]
        return [*made, Route("/v1/openapi.json", self.document)]

    def _answering(self, name: str, role: str) -> Callable[[Request], Any]:
        answer = getattr(self, name)

        async def answering(request: Request) -> Response:
            bearer = self._require(request, _COMMANDS[role])
            if any(len(value) > MOST_CHARACTERS for value in request.query_params.values()):
                raise Refused(400, f"a value has at most {MOST_CHARACTERS} characters", "malformed")
            found: Response = await answer(request, bearer)
            return found

        return answering

    async def document(self, _: Request) -> Response:
        """The OpenAPI document; it says nothing about this mesh."""
        return json_of(openapi.document())

    # --- jobs -------------------------------------------------------------------------------------

    async def jobs(self, request: Request, bearer: Bearer) -> Response:
        """A page of jobs."""
        asked: dict[str, Any] = _paged(request)
        for param in JOB_FILTERS:
            values = request.query_params.getlist(param.name)
            if values and values != [""]:
                asked[param.name] = values if param.name == "state" else values[-1]
        return json_of(await self._api.jobs(bearer, asked))

    async def job(self, request: Request, bearer: Bearer) -> Response:
        """One job. One that has ended does not change, and has an ETag."""
        found = await self._api.job(bearer, request.path_params["job"])
        answer = json_of(models.job_view(found))
        return _tagged(request, answer, str(found.ended_seq)) if found.is_terminal else answer

    async def outputs(self, request: Request, bearer: Bearer) -> Response:
        """What a job wrote."""
        content = await self._api.content(bearer, request.path_params["job"])
        return json_of(await content.outputs())

    async def proof(self, request: Request, bearer: Bearer) -> Response:
        """The proof of a completion; it never changes."""
        content = await self._api.content(bearer, request.path_params["job"])
        found = await content.proof()
        return _tagged(request, json_of(found), f"proof-{request.path_params['job']}")

    async def output(self, request: Request, bearer: Bearer) -> Response:
        """The content of an output: bytes that no browser shows as a page."""
        content = await self._api.content(bearer, request.path_params["job"])
        found = await content.output(request.path_params["name"])
        tag = f'"{found.hash}"'
        if tag in request.headers.get("if-none-match", ""):
            return _tagged(request, Response(), found.hash)
        asked = request.headers.get("range", "")
        if request.headers.get("if-range", tag) != tag:
            asked = ""
        first, last = byte_range(asked, found.size)
        is_part = (first, last) != (0, found.size - 1)
        headers = {
            **HEADERS,
            "Accept-Ranges": "bytes",
            "Content-Length": str(last + 1 - first),
            "Content-Disposition": "attachment",
            "Content-Security-Policy": "sandbox",
        }
        if is_part:
            headers["Content-Range"] = f"bytes {first}-{last}/{found.size}"
        pieces = content.content(found, first, last)
        head = await anext(pieces, b"")  # what is gone is told before the answer begins

        async def whole() -> AsyncIterator[bytes]:
            yield head
            async for piece in pieces:
                yield piece

        answer = StreamingResponse(
            whole(),
            206 if is_part else 200,
            headers=headers,
            media_type="application/octet-stream",
        )
        return _tagged(request, answer, found.hash)

    async def printed(self, request: Request, bearer: Bearer) -> Response:
        """What a job prints, as server-sent events, until it ends."""
        job = (await self._api.job(bearer, request.path_params["job"])).id
        content = await self._api.content(bearer, job)
        return self._streamed(
            bearer, content.printed(lambda: self._api.job(bearer, job), HEARTBEAT_S)
        )

    async def submit(self, request: Request, bearer: Bearer) -> Response:
        """Submit a job."""
        key = request.headers.get("idempotency-key", "")
        if len(key) > KEY_MOST:
            raise Refused(400, f"a key has at most {KEY_MOST} characters", "malformed")
        body = await _read(request, models.SubmitBody)
        return _made(await self._api.submit(bearer, body, key=key))

    async def cancel(self, request: Request, bearer: Bearer) -> Response:
        """Cancel a job."""
        body = await _read(request, models.CancelBody)
        job = request.path_params["job"]
        return json_of(await self._api.cancel(bearer, job, body.reason))

    async def retry(self, request: Request, bearer: Bearer) -> Response:
        """Submit a job again."""
        return _made(await self._api.retry(bearer, request.path_params["job"]))

    async def bundle(self, request: Request, bearer: Bearer) -> Response:
        """A job's bundle."""
        found = await self._api.bundle(bearer, request.path_params["job"])
        return Response(found, headers=HEADERS, media_type="application/octet-stream")

    async def verify(self, request: Request, _: Bearer) -> Response:
        """Check a bundle, beside the event loop: it may have many signatures."""
        return json_of(await asyncio.to_thread(self._api.verify, await request.body()))

    async def events(self, request: Request, bearer: Bearer) -> Response:
        """A job and its records as server-sent events, until it ends."""
        last = request.headers.get("last-event-id", "0")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < DIGITS else 0
        job = (await self._api.job(bearer, request.path_params["job"])).id
        return self._streamed(
            bearer, self._api.events(bearer, job, after=after, wait_s=HEARTBEAT_S)
        )

    def _streamed(self, bearer: Bearer, found: AsyncIterator[Any]) -> Response:
        if self._streams[bearer.holder] >= STREAMS_EACH:
            raise too_many(HEARTBEAT_S, f"you follow {STREAMS_EACH} jobs already")

        async def stream() -> AsyncIterator[bytes]:
            with self._followed(bearer.holder):
                try:
                    async for one in found:
                        yield _event(one)
                except AntiphonError:
                    return  # the client connects again, and is told then

        return StreamingResponse(stream(), headers=_STREAMED, media_type="text/event-stream")

    @contextmanager
    def _followed(self, holder: str) -> Iterator[None]:
        self._streams[holder] += 1
        try:
            yield
        finally:
            self._streams[holder] -= 1
            if not self._streams[holder]:
                del self._streams[holder]

    # --- lists ------------------------------------------------------------------------------------

    async def counts(self, request: Request, bearer: Bearer) -> Response:
        """Jobs by state."""
        kind = request.query_params.get("kind", "")
        return json_of({"jobs": await self._api.queries(bearer).counts(kind=kind)})

    async def kinds(self, request: Request, bearer: Bearer) -> Response:
        """Jobs by kind and state."""
        return _page(await self._api.queries(bearer).kinds(**_paged(request)))

    async def nodes(self, request: Request, bearer: Bearer) -> Response:
        """Nodes that are online."""
        return json_of(await self._api.nodes(bearer, **_paged(request)))

    async def plans(self, request: Request, bearer: Bearer) -> Response:
        """Plans."""
        return json_of(await self._api.plans(bearer, **_paged(request)))

    async def locks(self, request: Request, bearer: Bearer) -> Response:
        """Locks."""
        scope = request.query_params.get("scope", "")
        return json_of(await self._api.locks(bearer, scope=scope, **_paged(request)))

    async def documents(self, request: Request, bearer: Bearer) -> Response:
        """Documents of a space."""
        prefix = request.query_params.get("prefix", "")
        found = await self._api.queries(bearer).documents(
            request.path_params["space"], prefix=prefix, **_paged(request)
        )
        return _page(found)

    async def limits(self, request: Request, bearer: Bearer) -> Response:
        """Limits."""
        return json_of(await self._api.limits(bearer, **_paged(request)))

    async def pauses(self, _: Request, bearer: Bearer) -> Response:
        """Pauses."""
        return json_of(self._api.pauses(bearer))

    async def refusals(self, request: Request, bearer: Bearer) -> Response:
        """Records that took no effect."""
        kind = request.query_params.get("kind", "")
        return _page(await self._api.queries(bearer).refusals(kind=kind, **_paged(request)))

    async def attention(self, request: Request, bearer: Bearer) -> Response:
        """What was set aside."""
        return json_of(await self._api.attention(bearer, **_paged(request)))

    async def reports(self, request: Request, bearer: Bearer) -> Response:
        """Bar reports."""
        return json_of(await self._api.reports(bearer, **_paged(request)))

    async def problem_words(self, request: Request, _: Bearer) -> Response:
        """What a verdict means."""
        reason = request.path_params["reason"]
        if reason not in _WORDS:
            raise Refused(404, "this is not a verdict of the log", "no_verdict")
        path = f"/v1/problems/{reason}"
        return json_of(models.Problem(type=path, title=_WORDS[reason], status=200, reason=reason))


def byte_range(asked: str, size: int) -> tuple[int, int]:
    """The first and last byte that a `Range` asks for; all of them where it asks for no one range.

    416 if there are no such bytes.
    """
    unit, _, span = asked.partition("=")
    first, dash, last = span.strip().partition("-")
    is_one = unit.strip() == "bytes" and dash and (first or last)
    if not is_one or not all(
        not one or (one.isascii() and one.isdigit() and len(one) < DIGITS) for one in (first, last)
    ):
        return 0, size - 1
    if not first:
        begin, end = max(size - int(last), 0), size - 1
    else:
        begin, end = int(first), min(int(last), size - 1) if last else size - 1
    if begin > end or begin >= size:
        refused = Refused(416, "there are no such bytes", "range")
        refused.headers = {"Content-Range": f"bytes */{size}"}
        raise refused
    return begin, end


def _tagged(request: Request, answer: Response, tag: str) -> Response:
    """An answer that never changes: not sent again to whoever has it."""
    if f'"{tag}"' in request.headers.get("if-none-match", ""):
        answer = Response(status_code=304, headers=HEADERS)
    answer.headers["ETag"] = f'"{tag}"'
    answer.headers["Cache-Control"] = "private, no-cache"
    return answer


def _paged(request: Request) -> dict[str, Any]:
    text = request.query_params.get("limit", "50")
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 3 and 1 <= int(text) <= 500):  # noqa: PLR2004
        raise Refused(400, "a limit is between 1 and 500", "limit")
    return {"limit": int(text), "after": request.query_params.get("after", "")}


async def _read(request: Request, of: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=of)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise Refused(400, f"the body is not what is asked for: {problem}", "malformed") from None


def _page(page: Page[Any]) -> Response:
    return json_of({"items": list(page), "next": page.next})


def _made(found: models.Submitted) -> Response:
    answer = json_of(found, 201 if found.is_new else 200)
    answer.headers["Location"] = f"/v1/jobs/{found.id}"
    return answer


def _event(one: models.JobView | models.JobEvent | models.OutputPiece | None) -> bytes:
    match one:
        case None:
            return b": still here\n\n"
        case models.JobEvent():
            head = b"id: %d\nevent: record\n" % one.seq
        case models.OutputPiece():
            head = f"id: {one.id}\nevent: output\n".encode()
        case _:
            head = b"event: job\n"
    return head + b"data: " + msgspec.json.encode(one) + b"\n\n"
