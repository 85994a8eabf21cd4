"""The dashboard of a mesh, for the person who runs this node or this `antiphon dev`.

    GET  /sign-in/SECRET    signs a browser in; the link works once
    GET  /jobs              the list: filters and cursor are in the address
    GET  /jobs/JOB          one job: story, timeline, records, result, proof
    GET  /jobs/events, /jobs/JOB/events   the same as they change, as server-sent events
    GET  /jobs/JOB/bundle   the bundle that proves it, for `antiphon verify`
    POST /jobs/JOB/cancel, /jobs/JOB/retry   signed with this machine's key
    GET  /staves            who held what in the last minutes, drawn; and /staves/events
    GET  /nodes             who is online
    GET  /authority         who may do what; POST /authority/revoke and /authority/invite
    GET  /log               bytes, seals, archive, what was refused
    GET, POST /verify       checks a bundle, step by step

Served on loopback. Every page but the first needs the session's cookie, which other sites cannot
send (`SameSite=Strict`); acts also need this page's own origin. Pages work without a script.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from antiphon.errors import AntiphonError, Malformed, Rejected
from antiphon.interfaces.http.pages.job_drawing import drawn
from antiphon.interfaces.http.pages.live import QUIET_S, Frame, Make, Streams
from antiphon.interfaces.http.pages.log_drawing import bars
from antiphon.interfaces.http.pages.rendering import HEADERS, page, parts, static
from antiphon.interfaces.http.pages.staves_drawing import score
from antiphon.interfaces.http.pages.verify_page import VerifyPage
from antiphon.sdk.dashboard.authority import authority_view, make_ticket, revoke
from antiphon.sdk.dashboard.log_page import log_view
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
FILTERS: Final = ("state", "kind", "worker", "by", "since", "text")
AT_ONCE: Final = 8
"""Pages that are made at the same time; others wait their turn."""
PAGE_S: Final = 20.0
LETTERS: Final = 200
"""Of one filter, or one field."""
STAVES_S: Final = 2.0
"""Time passes on the Staves even where nothing is written."""
NOT_THERE: Final = frozenset({"no_job", "not_here", "ambiguous", "cursor"})
FORM_BYTES: Final = 16 * 1024
FIELDS: Final = 100

Answer = Callable[["Dashboard", "Request"], Awaitable[Response]]


def signed_in(answer: Answer) -> Answer:
    """Only for browsers that have signed in; what goes wrong becomes a page that says so."""

    @functools.wraps(answer)
    async def checked(self: Dashboard, request: Request) -> Response:
        if not self.sign_in.is_signed_in(request.cookies.get(cookie_of(request), "")):
            return page("sign_in.html", status=401, mesh=self.name)
        if request.method == "POST" and not _is_own(request):
            raise HTTPException(403, "this was sent by another site")
        try:
            async with self.turns, asyncio.timeout(PAGE_S):
                return await answer(self, request)
        except AntiphonError as problem:
            status = _status_of(problem)
            return page("problem.html", status=status, mesh=self.name, here="", problem=problem)

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
        self._verify = VerifyPage(None, owner=None)

    async def enter(self, request: Request) -> Response:
        """Sign a browser in."""
        session = self.sign_in.enter(request.path_params["secret"])
        if not session:
            return page("sign_in.html", status=401, mesh=self.name)
        answer = RedirectResponse("/jobs", 303, headers=HEADERS)
        answer.set_cookie(cookie_of(request), session, httponly=True, samesite="strict", path="/")
        return answer

    async def first(self, _: Request) -> Response:
        """The page that one begins with."""
        return RedirectResponse("/jobs", 303, headers=HEADERS)

    @signed_in
    async def jobs(self, request: Request) -> Response:
        """The list of jobs."""
        return page("jobs.html", **await self._jobs(request))

    async def _jobs(self, request: Request) -> dict[str, Any]:
        asked = {name: request.query_params.get(name, "")[:LETTERS] for name in FILTERS}
        filters: dict[str, Any] = {name: value for name, value in asked.items() if value}
        found = await jobs_view(self.mesh, request.query_params.get("after", ""), filters)
        return {**self._frame("jobs"), "view": found, "asked": asked}

    @signed_in
    async def jobs_live(self, request: Request) -> Response:
        """The list, as it changes."""

        async def make() -> Frame:
            return Frame(parts("jobs.html", **await self._in_turn(self._jobs(request))))

        return self._stream(request, make)

    @signed_in
    async def job(self, request: Request) -> Response:
        """One job."""
        view = await job_view(self.mesh, request.path_params["job"])
        return page("job.html", **self._job(view))

    def _job(self, view: JobView) -> dict[str, Any]:
        drawing = drawn(view.timeline, view.names)
        return {**self._frame("jobs"), "view": view, "drawing": drawing}

    @signed_in
    async def job_live(self, request: Request) -> Response:
        """One job, as it changes."""
        watch = JobWatch(self.mesh, request.path_params["job"])

        async def make() -> Frame | None:
            view = await self._in_turn(watch.look())
            return Frame(parts("job.html", **self._job(view)), watch.is_over) if view else None

        return self._stream(request, make)

    def _stream(self, request: Request, make: Make, *, quiet_s: float = QUIET_S) -> Response:
        cookie = request.cookies.get(cookie_of(request), "")
        return self.streams.answer(make, lambda: self.sign_in.is_signed_in(cookie), quiet_s=quiet_s)

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
        return RedirectResponse(f"/jobs/{job.id}", 303, headers=HEADERS)

    @signed_in
    async def retry(self, request: Request) -> Response:
        """Submit it once more."""
        job = await self.mesh.queries.job(request.path_params["job"])
        again = await self.mesh.job(job.kind, job.id).retry()
        await self.source.read_back()
        return RedirectResponse(f"/jobs/{again.id}", 303, headers=HEADERS)

    @signed_in
    async def staves(self, _: Request) -> Response:
        """A staff for each worker."""
        return page("staves.html", **await self._staves())

    async def _staves(self) -> dict[str, Any]:
        view = await staves_view(self.mesh)
        return {**self._frame("staves"), "view": view, "score": score(view)}

    @signed_in
    async def staves_live(self, request: Request) -> Response:
        """The same, as time passes."""

        async def make() -> Frame:
            return Frame(parts("staves.html", **await self._in_turn(self._staves())))

        return self._stream(request, make, quiet_s=STAVES_S)

    @signed_in
    async def nodes(self, _: Request) -> Response:
        """Who is online."""
        return page("nodes.html", **self._frame("nodes"), view=await nodes_view(self.mesh))

    @signed_in
    async def authority(self, request: Request) -> Response:
        """Who may do what."""
        return await self._authority(show_all="all" in request.query_params)

    @signed_in
    async def revoke(self, request: Request) -> Response:
        """Revoke grants; the page says what that ended."""
        form = await _form(request)
        cids = [one for one in form.getlist("grant") if isinstance(one, str)]
        ended = await revoke(self.mesh.home, cids)
        return await self._authority(ended=ended)

    @signed_in
    async def invite(self, request: Request) -> Response:
        """Make a ticket; the page shows it, and nothing keeps it."""
        form = await _form(request)
        words = [one for one in form.getlist("can") if isinstance(one, str)]
        given = {name: str(form.get(name, ""))[:LETTERS] for name in ("kinds", "alias", "until")}
        invited = await asyncio.to_thread(make_ticket, self.mesh.home, can=words, **given)
        return await self._authority(invited=invited)

    async def _authority(self, *, show_all: bool = False, **done: Any) -> Response:
        view = await authority_view(self.mesh, show_all=show_all)
        given = {"ended": None, "invited": None, **done}
        return page(
            "authority.html", **self._frame("authority"), view=view, show_all=show_all, **given
        )

    @signed_in
    async def log(self, request: Request) -> Response:
        """The log."""
        view = await log_view(self.mesh, request.query_params.get("after", ""))
        minutes = view.status.minutes
        shares = [one.refused / one.records if one.records else 0.0 for one in minutes]
        plot = bars([one.bytes for one in minutes], shares)
        return page("log.html", **self._frame("log"), view=view, plot=plot)

    @signed_in
    async def verify(self, request: Request) -> Response:
        """Check a bundle."""
        if request.method == "POST":
            return await self._verify.take(request)
        return await self._verify.show(request, frame=self._frame("verify"))

    async def static(self, request: Request) -> Response:
        """A style sheet, or the script: for everybody."""
        return static(request.path_params["name"])

    def _frame(self, here: str) -> dict[str, Any]:
        return {"mesh": self.name, "here": here, "signs_as": self.source.signs_as}

    def routes(self) -> list[Route]:
        """The paths."""
        return [
            Route("/", self.first),
            Route("/sign-in/{secret}", self.enter),
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
            Route("/static/{name}", self.static),
        ]


def cookie_of(request: Request) -> str:
    """The name of the session's cookie: browsers share cookies among the ports of a machine."""
    return f"{COOKIE}-{request.url.port}"


def _status_of(problem: AntiphonError) -> int:
    if isinstance(problem, Rejected | Malformed):
        return 404 if problem.reason in NOT_THERE else 403
    return 503


def _is_own(request: Request) -> bool:
    """Whether a form was on one of our own pages; a browser always says where it was."""
    return request.headers.get("origin", "") == f"http://{request.headers.get('host', '')}"


async def _form(request: Request) -> FormData:
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > FORM_BYTES:
        raise HTTPException(413, f"a form has at most {FORM_BYTES:,} bytes")
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
    return made, pages.streams.close
