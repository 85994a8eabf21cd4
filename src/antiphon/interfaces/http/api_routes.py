"""What the paths below `/v1` answer (`endpoints.py` lists them): thin, over `NodeApi`."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, Malformed, Rejected
from antiphon.interfaces.http import openapi
from antiphon.interfaces.http.answers import HEADERS, Refused, json_of, too_many
from antiphon.interfaces.http.endpoints import (
    COST_BY,
    ENDPOINTS,
    JOB_FILTERS,
    MOST_CHARACTERS,
    SIGNED,
)
from antiphon.interfaces.http.guards import Rates
from antiphon.sdk.http import models
from antiphon.sdk.http.node_api import ANSWERS, CANCEL, READ_BY, SCHEDULE, SEND_BY
from antiphon.sdk.mesh import Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from antiphon.interfaces.http.endpoints import Endpoint
    from antiphon.sdk.http.access import Bearer, JobLink
    from antiphon.sdk.http.node_api import NodeApi
    from antiphon.sdk.queries.page import Page

T = TypeVar("T")

HEARTBEAT_S: Final = 15.0
STREAMS_EACH: Final = 8
"""Streams of events and downloads that one party may have at the same time."""
HOOKS_PER_S, HOOKS_BURST = 10.0, 50.0
"""Requests for one webhook."""
KEY_MOST: Final = 200
DIGITS: Final = 18
"""Of a number in a header."""
_COMMANDS: Final = {
    "read": READ_BY,
    "schedule": (SCHEDULE,),
    "cancel": (CANCEL,),
    "answer": (ANSWERS,),
    "message": SEND_BY,
}
OWN_BOUNDS: Final = ("link", "after")
_MESSAGE: Final = re.compile("[0-9a-f]{32}", re.ASCII)
_STREAMED: Final = {**HEADERS, "X-Accel-Buffering": "no"}
_WORDS: Final = {one.value: one.in_words for one in Verdict}


class ApiRoutes:
    """The answers. `require` gives whoever sent a request, if the token permits a command.

    What lasts asks again and again whether whoever asked `still_holds` what it was admitted by.
    """

    def __init__(
        self,
        api: NodeApi,
        require: Callable[[Request, tuple[str, ...]], Bearer],
        require_link: Callable[..., tuple[Bearer, JobLink]],
        still_holds: Callable[[Bearer], bool],
    ) -> None:
        self._api = api
        self._require = require
        self._require_link = require_link
        self._still_holds = still_holds
        self._streams: Counter[str] = Counter()
        self._hook_rates = Rates(HOOKS_PER_S, HOOKS_BURST)

    def routes(self) -> list[Route]:
        """The paths."""
        made = [
            Route(
                one.path.replace("{name}", "{name:path}"),
                self.hook if one.role == SIGNED else self._answering(one),
                methods=[one.method],
            )
            for one in ENDPOINTS
        ]
        return [*made, Route("/v1/openapi.json", self.document)]

    def _answering(self, one: Endpoint) -> Callable[[Request], Any]:
        answer = getattr(self, one.name)

        async def answering(request: Request) -> Response:
            asked = request.query_params
            link = asked.get("link", "") if one.linked else ""
            if link and "authorization" not in request.headers:
                job, outputs = request.path_params["job"], one.linked == "outputs"
                bearer, request.state.link = self._require_link(link, job, outputs=outputs)
            else:
                bearer = self._require(request, _COMMANDS[one.role])
            if any(len(asked[name]) > MOST_CHARACTERS for name in asked if name not in OWN_BOUNDS):
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
        view, last = await self._api.one_job(bearer, request.path_params["job"])
        answer = json_of(view)
        return _tagged(request, answer, str(last)) if last else answer

    async def outputs(self, request: Request, bearer: Bearer) -> Response:
        """What a job wrote."""
        content = await self._api.content(bearer, request.path_params["job"])
        return json_of(await content.outputs())

    async def proof(self, request: Request, bearer: Bearer) -> Response:
        """The proof of a completion; it never changes."""
        job = await self._api.job(bearer, request.path_params["job"])
        _require_no_answer(request, is_question=job.question is not None)
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
        with ExitStack() as place:
            place.enter_context(self._streaming(bearer.party))
            head = await anext(pieces, b"")  # what is gone is told before the answer begins

            async def whole() -> AsyncIterator[bytes]:
                yield head
                async for piece in pieces:
                    self._require_still(request, bearer)
                    yield piece

            answer = _Streamed(
                whole(),
                206 if is_part else 200,
                headers=headers,
                media_type="application/octet-stream",
            )
            answer.place = place.pop_all()
        return _tagged(request, answer, found.hash)

    async def printed(self, request: Request, bearer: Bearer) -> Response:
        """What a job prints, as server-sent events, until it ends."""
        job = (await self._api.job(bearer, request.path_params["job"])).id
        content = await self._api.content(bearer, job)
        pieces = content.printed(lambda: self._api.job(bearer, job), HEARTBEAT_S)
        return self._streamed(request, bearer, pieces)

    async def submit(self, request: Request, bearer: Bearer) -> Response:
        """Submit a job."""
        body = await _read(request, models.SubmitBody)
        return _made(await self._api.submit(bearer, body, key=_key(request)))

    async def cancel(self, request: Request, bearer: Bearer) -> Response:
        """Cancel a job."""
        body = await _read(request, models.CancelBody)
        job = request.path_params["job"]
        return json_of(await self._api.cancel(bearer, job, body.reason))

    async def retry(self, request: Request, bearer: Bearer) -> Response:
        """Submit a job again."""
        return _made(await self._api.retry(bearer, request.path_params["job"]))

    async def link(self, request: Request, bearer: Bearer) -> Response:
        """Make a link to a job."""
        body = await _read(request, models.LinkBody)
        return json_of(await self._api.link(bearer, request.path_params["job"], body), 201)

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
        job = await self._api.job(bearer, request.path_params["job"])
        _require_no_answer(request, is_question=job.question is not None)
        found = self._api.events(bearer, job.id, after=after, wait_s=HEARTBEAT_S)
        return self._streamed(request, bearer, found)

    def _streamed(self, request: Request, bearer: Bearer, found: AsyncIterator[Any]) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            try:
                async for one in found:
                    self._require_still(request, bearer)
                    yield _event(one)
            except AntiphonError:
                return  # the client connects again, and is told then

        with ExitStack() as place:
            place.enter_context(self._streaming(bearer.party))
            answer = _Streamed(stream(), headers=_STREAMED, media_type="text/event-stream")
            answer.place = place.pop_all()
        return answer

    def _require_still(self, request: Request, bearer: Bearer) -> None:
        """`Rejected` if the link has ended meanwhile, or the right that it or the token had."""
        link: JobLink | None = getattr(request.state, "link", None)
        is_over = link is not None and self._api.now_ms() >= link.until_ms
        if is_over or not self._still_holds(bearer):
            raise Rejected("whoever asked may not read this any more", reason="ended")

    @contextmanager
    def _streaming(self, party: str) -> Iterator[None]:
        """One of the places of a party; 429 if it has taken all of them."""
        if self._streams[party] >= STREAMS_EACH:
            raise too_many(
                HEARTBEAT_S, f"you have {STREAMS_EACH} streams of events or downloads already"
            )
        self._streams[party] += 1
        try:
            yield
        finally:
            self._streams[party] -= 1
            if not self._streams[party]:
                del self._streams[party]

    # --- questions and messages -------------------------------------------------------------------

    async def questions(self, request: Request, bearer: Bearer) -> Response:
        """Questions that nobody has answered."""
        kind = request.query_params.get("kind", "")
        return json_of(await self._api.questions(bearer, kind=kind, **_paged(request)))

    async def question(self, request: Request, bearer: Bearer) -> Response:
        """One question."""
        return json_of(await self._api.question(bearer, request.path_params["job"]))

    async def answer(self, request: Request, bearer: Bearer) -> Response:
        """Answer a question."""
        body = await _read(request, models.AnswerBody)
        given = await self._api.answer(bearer, request.path_params["job"], body.answer)
        return json_of(given, 201 if given.is_new else 200)

    async def threads(self, request: Request, bearer: Bearer) -> Response:
        """The threads of an inbox."""
        agent = request.query_params.get("agent", "")
        return json_of(await self._api.inbox.threads(bearer, agent=agent, **_paged(request)))

    async def send(self, request: Request, bearer: Bearer) -> Response:
        """Send a message."""
        body = await _read(request, models.SendBody)
        return json_of(await self._api.inbox.send(bearer, body, key=_key(request)))

    async def take(self, request: Request, bearer: Bearer) -> Response:
        """Hand out messages."""
        body = await _read(request, models.TakeBody)
        return json_of(await self._api.inbox.take(bearer, body))

    async def ack(self, request: Request, bearer: Bearer) -> Response:
        """A message was handled."""
        body, id_ = await _read(request, models.AckBody), request.path_params["message"]
        if _MESSAGE.fullmatch(id_) is None:
            raise Refused(400, "this is not the id of a message", "malformed")
        return json_of(await self._api.inbox.ack(bearer, id_, body))

    async def hook(self, request: Request) -> Response:
        """A webhook: its signature decides, and no token."""
        name = request.path_params["hook"]
        try:
            wanted = self._api.wanted(name, request.headers, await request.body())
        except Malformed:
            raise
        except Rejected as refused:
            raise Refused(401, refused.message, refused.reason, refused.hint) from None
        self._hook_rates.take(name)  # nobody uses up what belongs to those with the secret
        done = await self._api.hook(name, wanted)
        return json_of(done, 201 if done.is_new else 200)

    # --- lists ------------------------------------------------------------------------------------

    async def counts(self, request: Request, bearer: Bearer) -> Response:
        """Jobs by state."""
        kind = request.query_params.get("kind", "")
        return json_of({"jobs": await self._api.queries(bearer).counts(kind=kind)})

    async def cost(self, request: Request, bearer: Bearer) -> Response:
        """What jobs cost."""
        asked = request.query_params
        by: Any = asked.get("by", COST_BY[0])
        if by not in COST_BY:
            raise Refused(400, f"by is one of {', '.join(COST_BY)}", "malformed")
        since, kind = asked.get("since", ""), asked.get("kind", "")
        return json_of(await self._api.cost(bearer, by=by, since=since, kind=kind))

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


def _require_no_answer(request: Request, *, is_question: bool) -> None:
    """403 for a link to a job's story, if the story would tell what somebody answered."""
    link: JobLink | None = getattr(request.state, "link", None)
    if link is not None and not link.outputs and is_question:
        raise Refused(
            403,
            "the link does not open the answer to the question, which this would show",
            "role",
            "ask whoever sent it for one that does: antiphon link JOB --outputs",
        )


class _Streamed(StreamingResponse):
    """An answer that gives back its party's place when it has ended, however it ended."""

    place: ExitStack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.place:
            await super().__call__(scope, receive, send)


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
