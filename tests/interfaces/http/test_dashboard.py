"""The dashboard: what its pages show, to whom, and that nothing on them is anybody's markup."""

import asyncio
import re
from contextlib import aclosing, asynccontextmanager
from html import escape
from urllib.parse import quote

import httpx2
import pytest

from antiphon import Mesh
from antiphon.interfaces.http.bounded_server import serving
from antiphon.interfaces.http.pages.dashboard import make_dashboard
from antiphon.sdk.dashboard.sign_in import SignIn
from antiphon.sdk.dashboard.source import Source
from antiphon.settings import HttpAddress
from tests.acceptance.shell import Shell
from tests.interfaces.http.dashboard_browser import go_in
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.nats, pytest.mark.processes]
SPITE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("dashboard"))
    with typed.dev("--name", "seen") as ready:
        typed.dashboard = ready["dashboard"]
        typed.run("submit", "example.echo", SPITE)
        typed.run("submit", "example.fail", SPITE, "--attempts", "1")
        yield typed


@asynccontextmanager
async def browser(shell):
    """One that has signed in to pages of its own, over the same mesh."""
    sign_in = SignIn()
    async with Mesh.open(home=shell.home) as mesh:
        app, _ = make_dashboard(Source(mesh, "seen"), sign_in)
        async with serving(app, HttpAddress("127.0.0.1", 0)) as port:
            base = f"http://127.0.0.1:{port}"
            async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE_S) as client:
                client.origin = base
                go_in(client, await client.get(f"/sign-in/{sign_in.link()}"))
                yield client


def test_dev_prints_a_link_that_signs_one_browser_in_once(shell):
    with httpx2.Client(timeout=PATIENCE_S) as first, httpx2.Client(timeout=PATIENCE_S) as second:
        signed = first.get(shell.dashboard)
        cookie = signed.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        base = shell.dashboard.partition("/sign-in/")[0]
        room = signed.headers["location"].removesuffix("jobs")
        assert f"Path={room};" in cookie, "other ports of this machine are not sent it"
        assert first.get(f"{base}{room}jobs").status_code == 200
        assert first.get(base).status_code == 401
        assert second.get(shell.dashboard).status_code == 401
        assert second.get(f"{base}{room}jobs").status_code == 401


async def test_a_cookie_that_another_port_set_locks_nobody_out(shell):
    async with browser(shell) as client:
        (mine,) = client.cookies.jar
        headers = {"Cookie": f"{mine.name}={mine.value}; other=1; {mine.name}=theirs"}
        assert (await client.get("/jobs", headers=headers)).status_code == 200
        client.cookies.clear()
        stolen = {"Cookie": f"{mine.name}={mine.value}"}
        elsewhere = f"{client.origin}/at/a-room-that-was-guessed/jobs"
        assert (await client.get(elsewhere, headers=stolen)).status_code == 401


async def test_the_list_has_counts_filters_and_every_job(shell):
    async with browser(shell) as client:
        page = (await client.get("/jobs")).text
        assert "example.echo" in page
        assert "example.fail" in page
        failed = (await client.get("/jobs", params={"state": "failed"})).text
        assert "<b>example.fail</b>" in failed
        assert "<b>example.echo</b>" not in failed
        nothing = (await client.get("/jobs", params={"kind": SPITE})).text
        assert SPITE not in nothing
        wrong = await client.get("/jobs", params={"since": SPITE})
        assert wrong.status_code == 400, "it is the filter that is wrong, and not the mesh"
        assert SPITE not in wrong.text


async def test_a_job_is_told_with_its_timeline_error_and_proof(shell):
    async with browser(shell) as client:
        page = (await client.get("/jobs", params={"state": "failed"})).text
        job = re.search("/jobs/([0-9a-f]{64})", page)[1]
        shown = (await client.get(f"/jobs/{job}")).text
        assert f"RuntimeError: {escape(SPITE)}" in shown
        assert SPITE not in shown
        assert "1 hold by 1 worker" in shown
        assert "demo_tasks.py" in shown, "the traceback"
        assert "Why this worker" in shown
        assert 'aria-current="page">Jobs' in shown


async def test_a_job_that_is_not_there_is_a_page_that_says_so(shell):
    async with browser(shell) as client:
        answer = await client.get("/jobs/ffffffff")
        assert answer.status_code == 404
        assert "no job" in answer.text.lower()


async def test_a_job_is_cancelled_and_retried_from_its_page(shell):
    waiting = shell.run("submit", "nobody.runs.this", "1", "--detach").out.strip()
    async with browser(shell) as client:
        own = {"Origin": client.origin}
        assert (await client.post(f"/jobs/{waiting}/cancel", headers=own)).status_code == 303
        assert "cancelled" in (await client.get(f"/jobs/{waiting}")).text
        again = await client.post(f"/jobs/{waiting}/retry", headers=own)
        assert again.headers["location"].rpartition("/")[2] != waiting
        other = f"{client.origin}{again.headers['location']}/cancel"
        assert (await client.post(other, headers=own)).status_code == 303


async def test_another_site_can_do_nothing(shell):
    waiting = shell.run("submit", "nobody.runs.this", "2", "--detach").out.strip()
    async with browser(shell) as client:
        for origin in ("http://other.example", "null", ""):
            headers = {"Origin": origin} if origin else {}
            refused = await client.post(f"/jobs/{waiting}/cancel", headers=headers)
            assert refused.status_code == 403
        assert (await client.get("/jobs", headers={"Host": "other.example"})).status_code == 400
        client.cookies.clear()
        assert (await client.get(f"/jobs/{waiting}")).status_code == 401


async def test_the_log_is_told_by_bytes_seals_and_reasons(shell):
    async with browser(shell) as client:
        page = (await client.get("/log")).text
        assert "Sealed up to" in page
        assert "example.echo" in page, "what is written"
        assert re.search(r"Newest record</dt><dd>[1-9]", page)
        refused = await client.get("/log", params={"after": SPITE})
        assert refused.status_code == 404
        assert SPITE not in refused.text


async def test_a_development_mesh_says_that_it_is_open_and_invites_nobody(shell):
    async with browser(shell) as client:
        own = {"Origin": client.origin}
        page = (await client.get("/authority")).text
        assert "This mesh is open" in page
        assert "/authority/invite" not in page
        wanted = {"can": "claim", "kinds": "*", "alias": "", "until": "1d"}
        refused = await client.post("/authority/invite", headers=own, data=wanted)
        assert "cannot invite to it" in refused.text


@pytest.mark.parametrize(
    "path, sent",
    [
        ("/jobs?text=", None),
        ("/jobs?by=", None),
        ("/jobs/", None),
        ("/authority/invite", {"can": SPITE, "kinds": "*", "alias": "", "until": "1d"}),
        ("/authority/invite", {"can": "claim", "kinds": SPITE, "alias": "", "until": "1d"}),
        ("/authority/invite", {"can": "claim", "kinds": "*", "alias": SPITE, "until": "1d"}),
        ("/authority/invite", {"can": "claim", "kinds": "*", "alias": "", "until": SPITE}),
        ("/authority/revoke", {"grant": SPITE}),
        ("/authority/revoke", {"grant": f"bafy{SPITE}"}),
    ],
)
async def test_whatever_is_sent_comes_back_as_text(shell, path, sent):
    async with browser(shell) as client:
        own = {"Origin": client.origin}
        if sent is None:
            answer = await client.get(f"{path}{quote(SPITE)}")
        else:
            answer = await client.post(path, headers=own, data=sent)
        assert "<script>alert" not in answer.text
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy


async def test_nodes_and_verify_are_there(shell):
    async with browser(shell) as client:
        assert "example.add" in (await client.get("/nodes")).text
        page = await client.get("/verify")
        assert "Drop a bundle here" in page.text
        assert "script-src 'self'" in page.headers["content-security-policy"]
        # Under `no-referrer` a browser hides where our own forms come from.
        assert page.headers["referrer-policy"] == "same-origin"
        for name in ("tokens.css", "app.css", "app.js", "icon.svg"):
            assert (await client.get(f"{client.origin}/static/{name}")).status_code == 200


async def arriving(client, path):
    """The frames of a stream."""
    async with client.stream("GET", path) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = []
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                lines.append(line.removeprefix("data: "))
            elif lines:
                yield "\n".join(lines)
                lines = []


async def test_the_list_and_a_job_arrive_again_when_they_change(shell):
    waiting = shell.run("submit", "nobody.runs.this", "3", "--detach").out.strip()
    async with browser(shell) as client, asyncio.timeout(PATIENCE_S):
        own = {"Origin": client.origin}
        async with aclosing(arriving(client, f"/jobs/{waiting}/events")) as frames:
            first = await anext(frames)
            assert "It waits for a worker" in first
            assert 'id="job" data-live' in first
            await client.post(f"/jobs/{waiting}/cancel", headers=own)
            assert "cancelled" in await anext(frames)
        async with aclosing(arriving(client, "/jobs/events?kind=nobody")) as frames:
            assert waiting in await anext(frames)
            later = await asyncio.to_thread(
                shell.run, "submit", "nobody.runs.this", SPITE, "--detach"
            )
            async for frame in frames:
                assert SPITE not in frame
                if later.out.strip() in frame:
                    break
        client.cookies.clear()
        assert (await client.get("/jobs/events")).status_code == 401


async def test_the_staves_are_drawn_by_the_server_and_drawn_again(shell):
    async with browser(shell) as client, asyncio.timeout(PATIENCE_S):
        page = (await client.get("/staves")).text
        assert "<svg" in page
        assert "slots</text>" in page
        async with aclosing(arriving(client, "/staves/events")) as frames:
            first = await anext(frames)
            assert 'id="staves" data-live' in first
            assert await anext(frames) != first, "time passes"
