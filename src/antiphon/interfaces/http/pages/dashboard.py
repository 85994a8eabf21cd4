"""The dashboard of a mesh, for the person who runs this node or this `antiphon dev`.

    GET  /sign-in/SECRET    signs a browser in; the link works once

Everything else is below /at/ROOM/, where ROOM is the browser's own:

    GET  for-you           questions, conflicts, what needs attention; and for-you/events
    POST for-you/answer, for-you/resolve, for-you/retry   signed with this machine's key
    POST for-you/dismiss   takes dead jobs off the list
    GET  jobs              the list: filters and cursor are in the address
    GET  jobs/JOB          one job: story, timeline, records, output, result, proof
    GET  jobs/events, jobs/JOB/events   the same as they change, as server-sent events
    GET  jobs/JOB/bundle   the bundle that proves it, for `antiphon verify`
    POST jobs/JOB/cancel, jobs/JOB/retry   signed with this machine's key
    GET  staves            who held what in the last minutes, drawn; and staves/events
    GET  nodes             who is online, and who died; POST nodes/dismiss
    GET  authority         who may do what; POST authority/revoke and authority/invite
    GET  log               bytes, seals, archive, what was refused
    GET, POST verify       checks a bundle, step by step

Served on loopback. Every page but the first needs the session's cookie, which other sites cannot
send (`SameSite=Strict`) and other ports of this machine are not sent (its path is the room); acts
also need this page's own origin. Pages work without a script. All requests pass one `Door`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from antiphon.errors import AntiphonError, Malformed, Misconfigured, Rejected
from antiphon.guard import Limits
from antiphon.interfaces.http.answers import Refused, log_bug
from antiphon.interfaces.http.askers import Anybody, Browser, Known
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.pages.answer_form import answer_in, form_of
from antiphon.interfaces.http.pages.job_drawing import drawn
from antiphon.interfaces.http.pages.live import QUIET_S, Frame, Make, Streams
from antiphon.interfaces.http.pages.log_drawing import bars
from antiphon.interfaces.http.pages.rendering import HEADERS, page, parts, static
from antiphon.interfaces.http.pages.staves_drawing import score
from antiphon.interfaces.http.pages.verify_page import UPLOADS, VerifyPage
from antiphon.interfaces.http.route import Answer, Route
from antiphon.sdk.dashboard.authority import authority_view, make_ticket, revoke
from antiphon.sdk.dashboard.for_you import (
    ForYouView,
    dismiss_dead,
    for_you_view,
    open_question,
    resolve,
    retry_dead,
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

    from antiphon.sdk.dashboard.sign_in import SignIn
    from antiphon.sdk.dashboard.source import Source
    from antiphon.sdk.dashboard.views import JobView

COOKIE: Final = "antiphon"
COOKIES: Final = 8
COOKIE_LETTERS: Final = 8_192
ROOMS: Final = "/at"
FILTERS: Final = ("state", "kind", "worker", "by", "since", "text")
PAGES: Final = Limits(
    room="pages", of_party=16, in_all=32, request_bytes=16 * 1024, seconds=20.0, work_s=5.0
)
ANSWERS: Final = structs.replace(PAGES, request_bytes=256 * 1024)
"""Forms with an answer, or with a document's value."""
FOLLOWED: Final = Limits(
    room="page streams", of_party=32, in_all=64, request_bytes=0, seconds=3_600.0, work_s=5.0
)
"""Pages that are kept current."""
LETTERS: Final = 200
"""Of one filter, or one field."""
STAVES_S: Final = 2.0
"""Time passes on the Staves even where nothing is written."""
OUTPUT_S: Final = 1.0
"""What a job prints is no record, so it is looked for."""
NOT_THERE: Final = frozenset({"no_job", "not_here", "ambiguous", "cursor"})
FIELDS: Final = 300


class Dashboard:
    """The pages."""

    def __init__(self, source: Source, sign_in: SignIn) -> None:
        self.source = source
        self.mesh = source.mesh
        self.name = source.name
        self.sign_in = sign_in
        self.streams = Streams(source)
        self.outputs = LiveOutputs(source.mesh)
        self._verify = VerifyPage(None, owner=None)

    def close(self) -> None:
        """End all streams, and listen to nothing any more."""
        self.streams.close()
        self.outputs.close()

    def session_of(self, request: Request) -> str:
        """The room of a browser whose cookie is the one of its room; empty if it is not."""
        room = str(request.path_params["room"])
        found = (self.sign_in.is_signed_in(Session(secret, room)) for secret in _secrets(request))
        return room if any(found) else ""

    async def enter(self, request: Request, _: Known) -> Response:
        """Sign a browser in."""
        session = self.sign_in.enter(request.path_params["secret"])
        if session is None:
            return page("sign_in.html", status=401, mesh=self.name)
        root = f"{ROOMS}/{session.room}/"
        answer = RedirectResponse(f"{root}jobs", 303, headers=HEADERS)
        answer.set_cookie(COOKIE, session.secret, httponly=True, samesite="strict", path=root)
        return answer

    async def outside(self, _: Request, __: Known) -> Response:
        """What a browser sees outside of its room."""
        return page("sign_in.html", status=401, mesh=self.name)

    async def first(self, request: Request, _: Known) -> Response:
        """The page that one begins with."""
        return RedirectResponse(f"{root_of(request)}jobs", 303, headers=HEADERS)

    async def for_you(self, request: Request, _: Known) -> Response:
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

    async def for_you_live(self, request: Request, _: Known) -> Response:
        """The same, as it changes."""

        async def make() -> Frame:
            view = await for_you_view(self.mesh)
            return Frame(parts("for_you.html", **await self._waiting_parts(request, view)))

        return self._stream(request, make)

    async def answer(self, request: Request, _: Known) -> Response:
        """Answer a question; the page says what came of it."""
        form = await _form(request)
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

    async def resolve(self, request: Request, _: Known) -> Response:
        """End a conflict of a document; the page says what came of it."""
        form = await _form(request)
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

    async def retry_dead(self, request: Request, _: Known) -> Response:
        """Retry a dead job, or a group of them; the page says what came of it."""
        return await self._about_dead(request, retry_dead)

    async def dismiss_dead(self, request: Request, _: Known) -> Response:
        """Take a dead job, or a group of them, off the list; the page says so."""
        return await self._about_dead(request, dismiss_dead)

    async def _about_dead(self, request: Request, act: Callable[..., Awaitable[str]]) -> Response:
        form = await _form(request)
        said = {name: str(form.get(name, ""))[:LETTERS] for name in ("kind", "job", "error")}
        try:
            done = await act(self.mesh, said["kind"], job=said["job"], error=said["error"])
        except AntiphonError as problem:
            return await self._for_you(request, problem=problem)
        await self.source.read_back()
        return await self._for_you(request, done=done)

    async def jobs(self, request: Request, _: Known) -> Response:
        """The list of jobs."""
        return page("jobs.html", **await self._jobs(request))

    async def _jobs(self, request: Request) -> dict[str, Any]:
        asked = {name: request.query_params.get(name, "")[:LETTERS] for name in FILTERS}
        filters: dict[str, Any] = {name: value for name, value in asked.items() if value}
        found = await jobs_view(self.mesh, request.query_params.get("after", ""), filters)
        return {**await self._frame(request, "jobs"), "view": found, "asked": asked}

    async def jobs_live(self, request: Request, _: Known) -> Response:
        """The list, as it changes."""

        async def make() -> Frame:
            return Frame(parts("jobs.html", **await self._jobs(request)))

        return self._stream(request, make)

    async def job(self, request: Request, _: Known) -> Response:
        """One job."""
        view = await job_view(self.mesh, request.path_params["job"], self.outputs)
        return page("job.html", **await self._job(request, view))

    async def _job(self, request: Request, view: JobView) -> dict[str, Any]:
        drawing = drawn(view.timeline, view.names)
        return {**await self._frame(request, "jobs"), "view": view, "drawing": drawing}

    async def job_live(self, request: Request, _: Known) -> Response:
        """One job, as it changes."""
        watch = JobWatch(self.mesh, request.path_params["job"], self.outputs)

        async def make() -> Frame | None:
            view = await watch.look()
            if view is None:
                return None
            only = "live_output" if watch.is_output else ""
            return Frame(
                parts("job.html", only=only, **await self._job(request, view)), watch.is_over
            )

        return self._stream(request, make, quiet_s=OUTPUT_S)

    def _stream(self, request: Request, make: Make, *, quiet_s: float = QUIET_S) -> Response:
        return self.streams.answer(make, lambda: bool(self.session_of(request)), quiet_s=quiet_s)

    async def bundle(self, request: Request, _: Known) -> Response:
        """The file that proves it."""
        job = await self.mesh.queries.job(request.path_params["job"])
        data = await bundles.export(self.mesh, job.kind, job.id, wait_s=0)
        name = f'attachment; filename="bundle-{job.id[:8]}.json"'
        headers = {**HEADERS, "Content-Disposition": name}
        return Response(data, headers=headers, media_type="application/json")

    async def cancel(self, request: Request, _: Known) -> Response:
        """Cancel it."""
        job = await self.mesh.queries.job(request.path_params["job"])
        await self.mesh.job(job.kind, job.id).cancel("from the dashboard")
        await self.source.read_back()
        return RedirectResponse(f"{root_of(request)}jobs/{job.id}", 303, headers=HEADERS)

    async def retry(self, request: Request, _: Known) -> Response:
        """Submit it once more."""
        job = await self.mesh.queries.job(request.path_params["job"])
        again = await self.mesh.job(job.kind, job.id).retry()
        await self.source.read_back()
        return RedirectResponse(f"{root_of(request)}jobs/{again.id}", 303, headers=HEADERS)

    async def staves(self, request: Request, _: Known) -> Response:
        """A staff for each worker."""
        return page("staves.html", **await self._staves(request))

    async def _staves(self, request: Request) -> dict[str, Any]:
        view = await staves_view(self.mesh)
        return {**await self._frame(request, "staves"), "view": view, "score": score(view)}

    async def staves_live(self, request: Request, _: Known) -> Response:
        """The same, as time passes."""

        async def make() -> Frame:
            return Frame(parts("staves.html", **await self._staves(request)))

        return self._stream(request, make, quiet_s=STAVES_S)

    async def nodes(self, request: Request, _: Known) -> Response:
        """Who is online, and who died."""
        now_ms = round(time.time() * 1000)
        frame = await self._frame(request, "nodes")
        return page("nodes.html", **frame, view=await nodes_view(self.mesh), now_ms=now_ms)

    async def dismiss_node(self, request: Request, _: Known) -> Response:
        """Take a node that died off the list."""
        await self.mesh.dismissals.node(str((await _form(request)).get("node", ""))[:LETTERS])
        return RedirectResponse(f"{root_of(request)}nodes", 303, headers=HEADERS)

    async def authority(self, request: Request, _: Known) -> Response:
        """Who may do what."""
        return await self._authority(request, show_all="all" in request.query_params)

    async def revoke(self, request: Request, _: Known) -> Response:
        """Revoke grants; the page says what that ended."""
        form = await _form(request)
        cids = [one for one in form.getlist("grant") if isinstance(one, str)]
        ended = await revoke(self.mesh.home, cids)
        return await self._authority(request, ended=ended)

    async def invite(self, request: Request, _: Known) -> Response:
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

    async def log(self, request: Request, _: Known) -> Response:
        """The log."""
        view = await log_view(self.mesh, request.query_params.get("after", ""))
        minutes = view.status.minutes
        shares = [one.refused / one.records if one.records else 0.0 for one in minutes]
        plot = bars([one.bytes for one in minutes], shares)
        return page("log.html", **await self._frame(request, "log"), view=view, plot=plot)

    async def verify(self, request: Request, _: Known) -> Response:
        """Check a bundle."""
        return await self._verify.show(request, frame=await self._frame(request, "verify"))

    async def take(self, request: Request, _: Known) -> Response:
        """A bundle to check."""
        return await self._verify.take(request)

    async def static(self, request: Request, _: Known) -> Response:
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

    def routes(self) -> list[Route]:
        """The paths."""
        person, anybody = Browser(self.session_of), Anybody("how to sign in, and style sheets")
        room = f"{ROOMS}/{{room}}"

        def page_at(path: str, answer: Answer) -> Route:
            return Route(path=f"{room}/{path}", answer=answer, asker=person, limits=PAGES)

        def live_at(path: str, answer: Answer) -> Route:
            return Route(path=f"{room}/{path}", answer=answer, asker=person, limits=FOLLOWED)

        def act_at(path: str, answer: Answer, limits: Limits = PAGES) -> Route:
            where = f"{room}/{path}"
            return Route(path=where, answer=answer, asker=person, limits=limits, methods=("POST",))

        def open_at(path: str, answer: Answer) -> Route:
            return Route(path=path, answer=answer, asker=anybody, limits=PAGES)

        return [
            open_at("/", self.outside),
            open_at("/sign-in/{secret}", self.enter),
            open_at("/static/{name}", self.static),
            page_at("", self.first),
            page_at("for-you", self.for_you),
            live_at("for-you/events", self.for_you_live),
            act_at("for-you/answer", self.answer, ANSWERS),
            act_at("for-you/resolve", self.resolve, ANSWERS),
            act_at("for-you/retry", self.retry_dead),
            act_at("for-you/dismiss", self.dismiss_dead),
            page_at("jobs", self.jobs),
            live_at("jobs/events", self.jobs_live),
            page_at("jobs/{job}", self.job),
            live_at("jobs/{job}/events", self.job_live),
            page_at("jobs/{job}/bundle", self.bundle),
            act_at("jobs/{job}/cancel", self.cancel),
            act_at("jobs/{job}/retry", self.retry),
            page_at("staves", self.staves),
            live_at("staves/events", self.staves_live),
            page_at("nodes", self.nodes),
            act_at("nodes/dismiss", self.dismiss_node),
            page_at("authority", self.authority),
            act_at("authority/revoke", self.revoke),
            act_at("authority/invite", self.invite),
            page_at("log", self.log),
            page_at("verify", self.verify),
            act_at("verify", self.take, UPLOADS),
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


async def _form(request: Request) -> FormData:
    return await request.form(max_files=0, max_fields=FIELDS)


def make_dashboard(source: Source, sign_in: SignIn) -> tuple[Door, Callable[[], None]]:
    """The application, for a server on loopback; and what ends its streams."""
    pages, name = Dashboard(source, sign_in), source.name

    def tell(request: Request, problem: Exception) -> Response:
        if isinstance(problem, Refused) and problem.reason == "session":
            return page("sign_in.html", status=401, mesh=name)
        status, words = 500, AntiphonError("it failed")
        if isinstance(problem, HTTPException):
            status, words = problem.status_code, AntiphonError(problem.detail)
        elif isinstance(problem, AntiphonError):
            status, words = _status_of(problem), problem
        elif not isinstance(problem, HTTPException):
            log_bug(request, problem)
        room = request.path_params.get("room")
        given = {"mesh": name, "here": "", "problem": words}
        answer = page(
            "problem.html", status=status, root=root_of(request) if room else "/", **given
        )
        answer.headers.update(getattr(problem, "headers", None) or {})
        return answer

    return Door(
        pages.routes(), source.guard, host="127.0.0.1", tell=tell, is_for_people=True
    ), pages.close
