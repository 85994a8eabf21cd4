"""The dashboard of a mesh, for the person who runs this node or this `antiphon dev`.

    GET  /sign-in/SECRET    signs a browser in; the link works once

Everything else is below /at/ROOM/, where ROOM is the browser's own:

    GET  for-you           questions, conflicts, what needs attention; and for-you/events
    POST for-you/answer, for-you/resolve   signed with this machine's key
    GET  jobs              the list: filters and cursor are in the address
    GET  jobs/JOB          one job: story, timeline, records, output, result, proof
    GET  jobs/events, jobs/JOB/events   the same as they change, as server-sent events
    GET  jobs/JOB/bundle   the bundle that proves it, for `antiphon verify`
    POST jobs/JOB/cancel, jobs/JOB/retry   signed with this machine's key
    GET  staves            who held what in the last minutes, drawn; and staves/events
    GET  nodes             who is online
    GET  authority         who may do what; POST authority/revoke and authority/invite
    GET  log               bytes, seals, archive, what was refused
    GET, POST verify       checks a bundle, step by step

Served on loopback. Every page but the first needs the session's cookie, which other sites cannot
send (`SameSite=Strict`) and other ports of this machine are not sent (its path is the room); acts
also need this page's own origin. Pages work without a script.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from antiphon.errors import AntiphonError, Malformed, Misconfigured, Rejected
from antiphon.interfaces.http.pages.answer_form import answer_in, form_of
from antiphon.interfaces.http.pages.job_drawing import drawn
from antiphon.interfaces.http.pages.live import QUIET_S, Frame, Make, Streams
from antiphon.interfaces.http.pages.log_drawing import bars
from antiphon.interfaces.http.pages.rendering import HEADERS, page, parts, static
from antiphon.interfaces.http.pages.staves_drawing import score
from antiphon.interfaces.http.pages.verify_page import VerifyPage
from antiphon.sdk.dashboard.authority import authority_view, make_ticket, revoke
from antiphon.sdk.dashboard.for_you import (
    ForYouView,
    for_you_view,
    open_question,
    resolve,
    waiting,
)
from antiphon.sdk.dashboard.live_output import LiveOutputs
from antiphon.sdk.dashboard.log_page import log_view
from antiphon.sdk.dashboard.sign_in import Session
from antiphon.sdk.dashboard.staves import staves_view
from antiphon.sdk.dashboard.views import JobWatch, job_view, jobs_view, nodes_view
from antiphon.sdk.proofs import bundles

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from antiphon.sdk.dashboard.sign_in import SignIn
    from antiphon.sdk.dashboard.source import Source
    from antiphon.sdk.dashboard.views import JobView

T = TypeVar("T")
COOKIE: Final = "antiphon"
COOKIES: Final = 8
COOKIE_LETTERS: Final = 8_192
ROOMS: Final = "/at"
FILTERS: Final = ("state", "kind", "worker", "by", "since", "text")
AT_ONCE: Final = 8
"""Pages that are made at the same time; others wait their turn."""
PAGE_S: Final = 20.0
LETTERS: Final = 200
"""Of one filter, or one field."""
STAVES_S: Final = 2.0
"""Time passes on the Staves even where nothing is written."""
OUTPUT_S: Final = 1.0
"""What a job prints is no record, so it is looked for."""
NOT_THERE: Final = frozenset({"no_job", "not_here", "ambiguous", "cursor"})
FORM_BYTES: Final = 16 * 1024
FIELDS: Final = 300
ANSWER_BYTES: Final = 256 * 1024
"""Of a form with an answer, or with a document's value."""

Answer = Callable[["Dashboard", "Request"], Awaitable[Response]]


def signed_in(answer: Answer) -> Answer:
    """Only for browsers that have signed in; what goes wrong becomes a page that says so."""

    @functools.wraps(answer)
    async def checked(self: Dashboard, request: Request) -> Response:
        if not self.is_signed_in(request):
            return page("sign_in.html", status=401, mesh=self.name)
        if request.method == "POST" and not _is_own(request):
            raise HTTPException(403, "this was sent by another site")
        try:
            async with self.turns, asyncio.timeout(PAGE_S):
                return await answer(self, request)
        except AntiphonError as problem:
            status = _status_of(problem)
            given = {"mesh": self.name, "here": "", "root": root_of(request)}
            return page("problem.html", status=status, problem=problem, **given)

    return checked


class Dashboard:
    """The pages."""

    def __init__(self, source: Source, sign_in: SignIn) -> None:
        self.source = source
        self.mesh = source.mesh
        self.name = source.name
        self.sign_in = sign_in
        self.turns = asyncio.Semaphore(AT_ONCE)
        self.streams = Streams(source)
        self.outputs = LiveOutputs(source.mesh)
        self._verify = VerifyPage(None, owner=None)

    def close(self) -> None:
        """End all streams, and listen to nothing any more."""
        self.streams.close()
        self.outputs.close()

    def is_signed_in(self, request: Request) -> bool:
        """Whether its cookie is the one of its room."""
        room = request.path_params["room"]
        return any(self.sign_in.is_signed_in(Session(secret, room)) for secret in _secrets(request))

    async def enter(self, request: Request) -> Response:
        """Sign a browser in."""
        session = self.sign_in.enter(request.path_params["secret"])
        if session is None:
            return page("sign_in.html", status=401, mesh=self.name)
        root = f"{ROOMS}/{session.room}/"
        answer = RedirectResponse(f"{root}jobs", 303, headers=HEADERS)
        answer.set_cookie(COOKIE, session.secret, httponly=True, samesite="strict", path=root)
        return answer

    async def outside(self, _: Request) -> Response:
        """What a browser sees outside of its room."""
        return page("sign_in.html", status=401, mesh=self.name)

    async def first(self, request: Request) -> Response:
        """The page that one begins with."""
        return RedirectResponse(f"{root_of(request)}jobs", 303, headers=HEADERS)

    @signed_in
    async def for_you(self, request: Request) -> Response:
        """What waits for this person."""
        return await self._for_you(request)

    async def _for_you(
        self,
        request: Request,
        *,
        problem: AntiphonError | None = None,
        done: str = "",
        typed: tuple[str, dict[str, str]] = ("", {}),
    ) -> Response:
        view = await for_you_view(self.mesh)
        status = 200 if problem is None else _status_of(problem)
        given = await self._waiting_parts(request, view, typed)
        return page("for_you.html", status=status, problem=problem, done=done, **given)

    async def _waiting_parts(
        self, request: Request, view: ForYouView, typed: tuple[str, dict[str, str]] = ("", {})
    ) -> dict[str, Any]:
        """What the page is made of; a form that was refused keeps what was typed."""
        job, words = typed
        forms = {one.id: form_of(one, words if one.id == job else None) for one in view.questions}
        now_ms = round(time.time() * 1000)
        return {
            **await self._frame(request, "for-you"),
            "view": view,
            "forms": forms,
            "now_ms": now_ms,
        }

    @signed_in
    async def for_you_live(self, request: Request) -> Response:
        """The same, as it changes."""

        async def make() -> Frame:
            view = await self._in_turn(for_you_view(self.mesh))
            return Frame(parts("for_you.html", **await self._waiting_parts(request, view)))

        return self._stream(request, make)

    @signed_in
    async def answer(self, request: Request) -> Response:
        """Answer a question; the page says what came of it."""
        form = await _form(request, ANSWER_BYTES)
        words = {name: value for name, value in form.items() if isinstance(value, str)}
        job = words.get("job", "")
        try:
            asked = await open_question(self.mesh, job, kind=words.get("kind", ""))
            if asked.refusal:
                raise Rejected(asked.refusal.rstrip("."), reason="self")
            said = answer_in(asked, words)
            await self.mesh.questions.answer(asked.kind, asked.id, said)
        except AntiphonError as problem:
            return await self._for_you(request, problem=problem, typed=(job, words))
        await self.source.read_back()
        how = f"answered, signed with {self.source.signs_as} {self.mesh.did[-8:]}, and on the log"
        return await self._for_you(request, done=f"{asked.text!r}: {how}")

    @signed_in
    async def resolve(self, request: Request) -> Response:
        """End a conflict of a document; the page says what came of it."""
        form = await _form(request, ANSWER_BYTES)
        names = ("space", "key", "chosen", "written", "revision")
        said = {name: str(form.get(name, "")) for name in names}
        siblings = [one for one in form.getlist("sibling") if isinstance(one, str)]
        try:
            if not said["revision"].isdecimal():
                raise Malformed("this is no revision", reason="revision")
            done = await resolve(
                self.mesh,
                said["space"],
                said["key"],
                chosen=said["chosen"],
                written=said["written"],
                siblings=siblings,
                revision=int(said["revision"]),
            )
        except AntiphonError as problem:
            return await self._for_you(request, problem=problem)
        await self.source.read_back()
        return await self._for_you(request, done=done)

    @signed_in
    async def jobs(self, request: Request) -> Response:
        """The list of jobs."""
        return page("jobs.html", **await self._jobs(request))

    async def _jobs(self, request: Request) -> dict[str, Any]:
        asked = {name: request.query_params.get(name, "")[:LETTERS] for name in FILTERS}
        filters: dict[str, Any] = {name: value for name, value in asked.items() if value}
        found = await jobs_view(self.mesh, request.query_params.get("after", ""), filters)
        return {**await self._frame(request, "jobs"), "view": found, "asked": asked}

    @signed_in
    async def jobs_live(self, request: Request) -> Response:
        """The list, as it changes."""

        async def make() -> Frame:
            return Frame(parts("jobs.html", **await self._in_turn(self._jobs(request))))

        return self._stream(request, make)

    @signed_in
    async def job(self, request: Request) -> Response:
        """One job."""
        view = await job_view(self.mesh, request.path_params["job"], self.outputs)
        return page("job.html", **await self._job(request, view))

    async def _job(self, request: Request, view: JobView) -> dict[str, Any]:
        drawing = drawn(view.timeline, view.names)
        return {**await self._frame(request, "jobs"), "view": view, "drawing": drawing}

    @signed_in
    async def job_live(self, request: Request) -> Response:
        """One job, as it changes."""
        watch = JobWatch(self.mesh, request.path_params["job"], self.outputs)

        async def make() -> Frame | None:
            view = await self._in_turn(watch.look())
            if view is None:
                return None
            only = "live_output" if watch.is_output else ""
            return Frame(
                parts("job.html", only=only, **await self._job(request, view)), watch.is_over
            )

        return self._stream(request, make, quiet_s=OUTPUT_S)

    def _stream(self, request: Request, make: Make, *, quiet_s: float = QUIET_S) -> Response:
        return self.streams.answer(make, lambda: self.is_signed_in(request), quiet_s=quiet_s)

    async def _in_turn(self, making: Awaitable[T]) -> T:
        """Make something beside few others; that a stream is open takes nobody's turn."""
        async with self.turns, asyncio.timeout(PAGE_S):
            return await making

    @signed_in
    async def bundle(self, request: Request) -> Response:
        """The file that proves it."""
        job = await self.mesh.queries.job(request.path_params["job"])
        data = await bundles.export(self.mesh, job.kind, job.id, wait_s=0)
        name = f'attachment; filename="bundle-{job.id[:8]}.json"'
        headers = {**HEADERS, "Content-Disposition": name}
        return Response(data, headers=headers, media_type="application/json")

    @signed_in
    async def cancel(self, request: Request) -> Response:
        """Cancel it."""
        job = await self.mesh.queries.job(request.path_params["job"])
        await self.mesh.job(job.kind, job.id).cancel("from the dashboard")
        await self.source.read_back()
        return RedirectResponse(f"{root_of(request)}jobs/{job.id}", 303, headers=HEADERS)

    @signed_in
    async def retry(self, request: Request) -> Response:
        """Submit it once more."""
        job = await self.mesh.queries.job(request.path_params["job"])
        again = await self.mesh.job(job.kind, job.id).retry()
        await self.source.read_back()
        return RedirectResponse(f"{root_of(request)}jobs/{again.id}", 303, headers=HEADERS)

    @signed_in
    async def staves(self, request: Request) -> Response:
        """A staff for each worker."""
        return page("staves.html", **await self._staves(request))

    async def _staves(self, request: Request) -> dict[str, Any]:
        view = await staves_view(self.mesh)
        return {**await self._frame(request, "staves"), "view": view, "score": score(view)}

    @signed_in
    async def staves_live(self, request: Request) -> Response:
        """The same, as time passes."""

        async def make() -> Frame:
            return Frame(parts("staves.html", **await self._in_turn(self._staves(request))))

        return self._stream(request, make, quiet_s=STAVES_S)

    @signed_in
    async def nodes(self, request: Request) -> Response:
        """Who is online."""
        return page(
            "nodes.html", **await self._frame(request, "nodes"), view=await nodes_view(self.mesh)
        )

    @signed_in
    async def authority(self, request: Request) -> Response:
        """Who may do what."""
        return await self._authority(request, show_all="all" in request.query_params)

    @signed_in
    async def revoke(self, request: Request) -> Response:
        """Revoke grants; the page says what that ended."""
        form = await _form(request)
        cids = [one for one in form.getlist("grant") if isinstance(one, str)]
        ended = await revoke(self.mesh.home, cids)
        return await self._authority(request, ended=ended)

    @signed_in
    async def invite(self, request: Request) -> Response:
        """Make a ticket; the page shows it, and nothing keeps it."""
        form = await _form(request)
        words = [one for one in form.getlist("can") if isinstance(one, str)]
        given = {name: str(form.get(name, ""))[:LETTERS] for name in ("kinds", "alias", "until")}
        invited = await asyncio.to_thread(make_ticket, self.mesh.home, can=words, **given)
        return await self._authority(request, invited=invited)

    async def _authority(
        self, request: Request, *, show_all: bool = False, **done: Any
    ) -> Response:
        view = await authority_view(self.mesh, show_all=show_all)
        given = {"ended": None, "invited": None, **done}
        return page(
            "authority.html",
            **await self._frame(request, "authority"),
            view=view,
            show_all=show_all,
            **given,
        )

    @signed_in
    async def log(self, request: Request) -> Response:
        """The log."""
        view = await log_view(self.mesh, request.query_params.get("after", ""))
        minutes = view.status.minutes
        shares = [one.refused / one.records if one.records else 0.0 for one in minutes]
        plot = bars([one.bytes for one in minutes], shares)
        return page("log.html", **await self._frame(request, "log"), view=view, plot=plot)

    @signed_in
    async def verify(self, request: Request) -> Response:
        """Check a bundle."""
        if request.method == "POST":
            return await self._verify.take(request)
        return await self._verify.show(request, frame=await self._frame(request, "verify"))

    async def static(self, request: Request) -> Response:
        """A style sheet, or the script: for everybody."""
        return static(request.path_params["name"])

    async def _frame(self, request: Request, here: str) -> dict[str, Any]:
        return {
            "mesh": self.name,
            "here": here,
            "root": root_of(request),
            "signs_as": self.source.signs_as,
            "waiting": await waiting(self.mesh),
        }

    def routes(self) -> list[BaseRoute]:
        """The paths."""
        inside = [
            Route("/", self.first),
            Route("/for-you", self.for_you),
            Route("/for-you/events", self.for_you_live),
            Route("/for-you/answer", self.answer, methods=["POST"]),
            Route("/for-you/resolve", self.resolve, methods=["POST"]),
            Route("/jobs", self.jobs),
            Route("/jobs/events", self.jobs_live),
            Route("/jobs/{job}", self.job),
            Route("/jobs/{job}/events", self.job_live),
            Route("/jobs/{job}/bundle", self.bundle),
            Route("/jobs/{job}/cancel", self.cancel, methods=["POST"]),
            Route("/jobs/{job}/retry", self.retry, methods=["POST"]),
            Route("/staves", self.staves),
            Route("/staves/events", self.staves_live),
            Route("/nodes", self.nodes),
            Route("/authority", self.authority),
            Route("/authority/revoke", self.revoke, methods=["POST"]),
            Route("/authority/invite", self.invite, methods=["POST"]),
            Route("/log", self.log),
            Route("/verify", self.verify, methods=["GET", "POST"]),
        ]
        return [
            Route("/", self.outside),
            Route("/sign-in/{secret}", self.enter),
            Route("/static/{name}", self.static),
            Mount(f"{ROOMS}/{{room}}", routes=inside),
        ]


def root_of(request: Request) -> str:
    """Where the pages of this browser are."""
    return f"{ROOMS}/{request.path_params['room']}/"


def _secrets(request: Request) -> list[str]:
    """What the browser says that its session is.

    Another port of this machine can set a cookie of the same name for every path; the browser sends
    it, too.
    """
    pairs = request.headers.get("cookie", "")[:COOKIE_LETTERS].split(";")
    named = (one.strip().partition("=") for one in pairs)
    return [value for name, _, value in named if name == COOKIE][:COOKIES]


def _status_of(problem: AntiphonError) -> int:
    if isinstance(problem, Rejected | Malformed):
        if problem.reason == "erased":
            return 410
        return 404 if problem.reason in NOT_THERE else 403
    return 400 if isinstance(problem, Misconfigured) else 503


def _is_own(request: Request) -> bool:
    """Whether a form was on one of our own pages; a browser always says where it was."""
    return request.headers.get("origin", "") == f"http://{request.headers.get('host', '')}"


async def _form(request: Request, most: int = FORM_BYTES) -> FormData:
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > most:
        raise HTTPException(413, f"a form has at most {most:,} bytes")
    return await request.form(max_files=0, max_fields=FIELDS)


def make_dashboard(source: Source, sign_in: SignIn) -> tuple[ASGIApp, Callable[[], None]]:
    """The application, for a server on loopback; and what ends its streams."""
    pages, name = Dashboard(source, sign_in), source.name

    def refuse(_: Request, refused: Exception) -> Response:
        status = refused.status_code if isinstance(refused, HTTPException) else 500
        words = refused.detail if isinstance(refused, HTTPException) else "it failed"
        problem = AntiphonError(words)
        return page("problem.html", status=status, mesh=name, here="", problem=problem)

    made = Starlette(
        routes=pages.routes(),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={HTTPException: refuse, Exception: refuse},
    )
    return made, pages.close
