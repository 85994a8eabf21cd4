"""What the paths below `/v1` answer (`endpoints.py` lists them): thin, over `NodeApi`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import Response

from antiphon.decoding import UNREADABLE
from antiphon.errors import Rejected
from antiphon.guard import in_thread
from antiphon.interfaces.http import openapi
from antiphon.interfaces.http.answers import HEADERS, Refused, json_of
from antiphon.interfaces.http.askers import Anybody, Asker, Hook, Token
from antiphon.interfaces.http.endpoints import (
    COST_BY,
    ENDPOINTS,
    JOB_FILTERS,
    MOST_CHARACTERS,
    SIGNED,
)
from antiphon.interfaces.http.route import EVENTS, REQUESTS, Known, Route, Streamed
from antiphon.sdk.http import models
from antiphon.sdk.mesh import Verdict

if TYPE_CHECKING:
    from starlette.requests import Request

    from antiphon.interfaces.http.endpoints import Endpoint
    from antiphon.interfaces.http.route import Answer
    from antiphon.sdk.http.access import HttpAccess
    from antiphon.sdk.http.node_api import NodeApi
    from antiphon.sdk.queries.page import Page

T = TypeVar("T")

HEARTBEAT_S: Final = 15.0
OWN_BOUNDS: Final = ("link", "after")
KEY_MOST: Final = 200
DIGITS: Final = 18
"""Of a number in a header."""
_MESSAGE: Final = re.compile("[0-9a-f]{32}", re.ASCII)
_STREAMED: Final = {**HEADERS, "X-Accel-Buffering": "no"}
_WORDS: Final = {one.value: one.in_words for one in Verdict}


class ApiRoutes:
    """The answers.

    What lasts asks again and again whether whoever asked still holds what it was admitted by.
    """

    def __init__(self, api: NodeApi, access: HttpAccess) -> None:
        self._api = api
        self._access = access

    def routes(self) -> list[Route]:
        """The paths."""
        made = [
            Route(
                path=one.path.replace("{name}", "{name:path}"),
                answer=_within_limits(getattr(self, one.name)),
                asker=self._asker(one),
                limits=one.limits,
                methods=(one.method,),
            )
            for one in ENDPOINTS
        ]
        document = Route(
            path="/v1/openapi.json",
            answer=self.document,
            asker=Anybody("which paths there are"),
            limits=REQUESTS,
        )
        return [*made, document]

    def _asker(self, one: Endpoint) -> Asker:
        if one.under == SIGNED:
            return Hook(self._api)
        return Token(self._access, one.under, linked=one.linked)

    async def document(self, request: Request, _: Known) -> Response:
        """The OpenAPI document; it says nothing about this mesh, and is made once."""
        text, tag = _document()
        return _tagged(request, Response(text, headers=HEADERS, media_type="application/json"), tag)

    # --- jobs -------------------------------------------------------------------------------------

    async def jobs(self, request: Request, known: Known) -> Response:
        """A page of jobs."""
        asked: dict[str, Any] = _paged(request)
        for param in JOB_FILTERS:
            values = request.query_params.getlist(param.name)
            if values and values != [""]:
                asked[param.name] = values if param.name == "state" else values[-1]
        return json_of(await self._api.jobs(known.bearer, asked))

    async def job(self, request: Request, known: Known) -> Response:
        """One job. One that has ended does not change, and has an ETag."""
        view, last = await self._api.one_job(known.bearer, request.path_params["job"])
        answer = json_of(view)
        return _tagged(request, answer, str(last)) if last else answer

    async def outputs(self, request: Request, known: Known) -> Response:
        """What a job wrote."""
        content = await self._api.content(known.bearer, request.path_params["job"])
        return json_of(await content.outputs())

    async def proof(self, request: Request, known: Known) -> Response:
        """The proof of a completion; it never changes."""
        job = await self._api.job(known.bearer, request.path_params["job"])
        _require_no_answer(known, is_question=job.question is not None)
        content = await self._api.content(known.bearer, request.path_params["job"])
        found = await content.proof()
        return _tagged(request, json_of(found), f"proof-{request.path_params['job']}")

    async def output(self, request: Request, known: Known) -> Response:
        """The content of an output: bytes that no browser shows as a page."""
        content = await self._api.content(known.bearer, request.path_params["job"])
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
        pieces = self._while_held(known, content.content(found, first, last))
        answer = Streamed(
            pieces,
            206 if is_part else 200,
            headers=headers,
            media_type="application/octet-stream",
        )
        return _tagged(request, answer, found.hash)

    async def printed(self, request: Request, known: Known) -> Response:
        """What a job prints, as server-sent events, until it ends."""
        job = (await self._api.job(known.bearer, request.path_params["job"])).id
        content = await self._api.content(known.bearer, job)
        pieces = content.printed(lambda: self._api.job(known.bearer, job), HEARTBEAT_S)
        return self._events(known, pieces)

    async def submit(self, request: Request, known: Known) -> Response:
        """Submit a job."""
        body = await _read(request, models.SubmitBody)
        return _made(await self._api.submit(known.bearer, body, key=_key(request)))

    async def cancel(self, request: Request, known: Known) -> Response:
        """Cancel a job."""
        body = await _read(request, models.CancelBody)
        job = request.path_params["job"]
        return json_of(await self._api.cancel(known.bearer, job, body.reason))

    async def retry(self, request: Request, known: Known) -> Response:
        """Submit a job again."""
        return _made(await self._api.retry(known.bearer, request.path_params["job"]))

    async def link(self, request: Request, known: Known) -> Response:
        """Make a link to a job."""
        body = await _read(request, models.LinkBody)
        return json_of(await self._api.link(known.bearer, request.path_params["job"], body), 201)

    async def bundle(self, request: Request, known: Known) -> Response:
        """A job's bundle."""
        found = await self._api.bundle(known.bearer, request.path_params["job"])
        return Response(found, headers=HEADERS, media_type="application/octet-stream")

    async def verify(self, request: Request, _: Known) -> Response:
        """Check a bundle, beside the event loop: it may have many signatures."""
        data = await request.body()
        return json_of(await in_thread(lambda turn: self._api.verify(data, turn)))

    async def events(self, request: Request, known: Known) -> Response:
        """A job and its records as server-sent events, until it ends."""
        last = request.headers.get("last-event-id", "0")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < DIGITS else 0
        job = await self._api.job(known.bearer, request.path_params["job"])
        _require_no_answer(known, is_question=job.question is not None)
        found = self._api.events(known.bearer, job.id, after=after, wait_s=HEARTBEAT_S)
        return self._events(known, found)

    def _events(self, known: Known, found: AsyncIterator[Any]) -> Response:
        async def events() -> AsyncIterator[bytes]:
            async for one in found:
                yield _event(one)

        pieces = self._while_held(known, events())
        return Streamed(pieces, headers=_STREAMED, media_type=EVENTS)

    async def _while_held(self, known: Known, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces until the link has ended, or the right that it or the token had."""
        async for piece in pieces:
            link = known.link
            is_over = link is not None and self._api.now_ms() >= link.until_ms
            if is_over or not self._access.still_holds(known.bearer):
                raise Rejected("whoever asked may not read this any more", reason="ended")
            yield piece

    # --- questions and messages -------------------------------------------------------------------

    async def questions(self, request: Request, known: Known) -> Response:
        """Questions that nobody has answered."""
        kind = request.query_params.get("kind", "")
        return json_of(await self._api.questions(known.bearer, kind=kind, **_paged(request)))

    async def question(self, request: Request, known: Known) -> Response:
        """One question."""
        return json_of(await self._api.question(known.bearer, request.path_params["job"]))

    async def answer(self, request: Request, known: Known) -> Response:
        """Answer a question."""
        body = await _read(request, models.AnswerBody)
        given = await self._api.answer(known.bearer, request.path_params["job"], body.answer)
        return json_of(given, 201 if given.is_new else 200)

    async def threads(self, request: Request, known: Known) -> Response:
        """The threads of an inbox."""
        agent = request.query_params.get("agent", "")
        return json_of(await self._api.inbox.threads(known.bearer, agent=agent, **_paged(request)))

    async def send(self, request: Request, known: Known) -> Response:
        """Send a message."""
        body = await _read(request, models.SendBody)
        return json_of(await self._api.inbox.send(known.bearer, body, key=_key(request)))

    async def take(self, request: Request, known: Known) -> Response:
        """Hand out messages."""
        body = await _read(request, models.TakeBody)
        return json_of(await self._api.inbox.take(known.bearer, body))

    async def ack(self, request: Request, known: Known) -> Response:
        """A message was handled."""
        body, id_ = await _read(request, models.AckBody), request.path_params["message"]
        if _MESSAGE.fullmatch(id_) is None:
            raise Refused(400, "this is not the id of a message", "malformed")
        return json_of(await self._api.inbox.ack(known.bearer, id_, body))

    async def hook(self, request: Request, _: Known) -> Response:
        """A webhook: what its request wants is done."""
        done = await self._api.hook(request.path_params["hook"], request.state.wanted)
        return json_of(done, 201 if done.is_new else 200)

    # --- lists ------------------------------------------------------------------------------------

    async def counts(self, request: Request, known: Known) -> Response:
        """Jobs by state."""
        kind = request.query_params.get("kind", "")
        return json_of({"jobs": await self._api.queries(known.bearer).counts(kind=kind)})

    async def cost(self, request: Request, known: Known) -> Response:
        """What jobs cost."""
        asked = request.query_params
        by: Any = asked.get("by", COST_BY[0])
        if by not in COST_BY:
            raise Refused(400, f"by is one of {', '.join(COST_BY)}", "malformed")
        since, kind = asked.get("since", ""), asked.get("kind", "")
        return json_of(await self._api.cost(known.bearer, by=by, since=since, kind=kind))

    async def kinds(self, request: Request, known: Known) -> Response:
        """Jobs by kind and state."""
        return _page(await self._api.queries(known.bearer).kinds(**_paged(request)))

    async def nodes(self, request: Request, known: Known) -> Response:
        """Nodes that are online."""
        return json_of(await self._api.nodes(known.bearer, **_paged(request)))

    async def plans(self, request: Request, known: Known) -> Response:
        """Plans."""
        return json_of(await self._api.plans(known.bearer, **_paged(request)))

    async def locks(self, request: Request, known: Known) -> Response:
        """Locks."""
        scope = request.query_params.get("scope", "")
        return json_of(await self._api.locks(known.bearer, scope=scope, **_paged(request)))

    async def documents(self, request: Request, known: Known) -> Response:
        """Documents of a space."""
        prefix = request.query_params.get("prefix", "")
        found = await self._api.queries(known.bearer).documents(
            request.path_params["space"], prefix=prefix, **_paged(request)
        )
        return _page(found)

    async def limits(self, request: Request, known: Known) -> Response:
        """Limits."""
        return json_of(await self._api.limits(known.bearer, **_paged(request)))

    async def pauses(self, _: Request, known: Known) -> Response:
        """Pauses."""
        return json_of(self._api.pauses(known.bearer))

    async def refusals(self, request: Request, known: Known) -> Response:
        """Records that took no effect."""
        kind = request.query_params.get("kind", "")
        return _page(await self._api.queries(known.bearer).refusals(kind=kind, **_paged(request)))

    async def attention(self, request: Request, known: Known) -> Response:
        """What was set aside."""
        return json_of(await self._api.attention(known.bearer, **_paged(request)))

    async def reports(self, request: Request, known: Known) -> Response:
        """Bar reports."""
        return json_of(await self._api.reports(known.bearer, **_paged(request)))

    async def problem_words(self, request: Request, _: Known) -> Response:
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


def _require_no_answer(known: Known, *, is_question: bool) -> None:
    """403 for a link to a job's story, if the story would tell what somebody answered."""
    if known.link is not None and not known.link.outputs and is_question:
        raise Refused(
            403,
            "the link does not open the answer to the question, which this would show",
            "role",
            "ask whoever sent it for one that does: antiphon link JOB --outputs",
        )


def _within_limits(answer: Answer) -> Answer:
    async def answering(request: Request, known: Known) -> Response:
        asked = request.query_params
        if any(len(asked[name]) > MOST_CHARACTERS for name in asked if name not in OWN_BOUNDS):
            raise Refused(400, f"a value has at most {MOST_CHARACTERS} characters", "malformed")
        return await answer(request, known)

    return answering


@cache
def _document() -> tuple[bytes, str]:
    text = msgspec.json.encode(openapi.document()) + b"\n"
    return text, sha256(text).hexdigest()[:32]


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


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if len(key) > KEY_MOST:
        raise Refused(400, f"a key has at most {KEY_MOST} characters", "malformed")
    return key


async def _read(request: Request, of: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=of)
    except UNREADABLE as problem:
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
