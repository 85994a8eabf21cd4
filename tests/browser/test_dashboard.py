"""The dashboard in a real browser, as one person uses it; where Chromium is installed."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import pytest

from antiphon import JobContext, Mesh
from antiphon.interfaces.http.pages.verify_page import changed
from bench.pages.chromium import browser, program
from chaos.tamper.sealed_jobs import make_sealed_jobs
from tests.acceptance.shell import Shell

pytestmark = [
    pytest.mark.nats,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.skipif(program() is None, reason="chromium is not installed"),
]


SPITE = "<img src=x onerror=alert(1)>"
FORM = {
    "type": "object",
    "required": ["count"],
    "properties": {"count": {"type": "integer"}, "where": {"enum": ["eu", SPITE]}},
}


def text_of(selector):
    return f"document.querySelector({json.dumps(selector)}).textContent"


def row_of(job):
    return f'[data-job="{job}"] .st'


async def typed(shell, *words):
    answer = await asyncio.to_thread(shell.run, *words)
    assert answer.code == 0, answer
    return answer.out.strip()


@asynccontextmanager
async def working(home):
    """A worker on the host's machine: it adds, fails, and asks before it deploys."""
    mesh = Mesh.open(home=home)

    @mesh.task("example.add")
    async def add(left: int, right: int) -> int:
        return left + right

    @mesh.task("example.fail", attempts=1)
    async def fail(words: str) -> None:
        raise RuntimeError(words)

    @mesh.task("release.ship")
    async def ship(ctx: JobContext, version: int) -> object:
        await ctx.step("build", lambda: f"build {version} {SPITE}")
        await ctx.step(SPITE, lambda: {SPITE: [SPITE]})
        ctx.progress(0.5, SPITE)
        print(f"built {version} {SPITE}")
        return await ctx.ask(f"ship {version}? {SPITE}", kind="approve.ship", schema=FORM)

    async with mesh, mesh.worker():
        yield mesh


async def test_a_person_signs_in_watches_cancels_answers_invites_revokes_and_verifies(tmp_path):
    for name in ("host", "guest"):
        (tmp_path / name).mkdir()
    host, guest = Shell(tmp_path / "host"), Shell(tmp_path / "guest")
    with host.init("--name", "watched") as ready:
        link = ready["dashboard"]
        base = link.partition("/sign-in/")[0]
        async with working(host.home) as mesh, browser() as tab:
            await tab.open(base)
            assert "not signed in" in await tab.ask(text_of("h1"))
            await tab.open(link)
            room = (await tab.ask("location.href")).removesuffix("/jobs")
            await _other_ports_get_no_cookie(tab, room)
            await _watch(mesh, tab)
            await _cancel(mesh, tab, room)
            await _answer(mesh, tab, room)
            await _invite_and_revoke(guest, tab, room)
            await _nothing_that_people_wrote_acts(mesh, tab, room)
            await _verify(tab, room, tmp_path)
            await _without_a_script(tab, room)
            assert tab.seen.errors == []


async def _other_ports_get_no_cookie(tab, room):
    """Whoever serves another port of this machine is sent nothing that is of use to them."""
    told = []

    async def hostile(reader, writer):
        with suppress(asyncio.IncompleteReadError):  # a connection that was opened ahead
            told.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if writer.is_closing():
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n")
        writer.write(b"<link rel=icon href=data:,><p>give me your cookies")
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(hostile, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for path in ("", "jobs", "at/", "sign-in/x"):
            await tab.open(f"http://127.0.0.1:{port}/{path}")
        await tab.open(f"{room}/jobs")
    assert len(told) >= 4
    assert not any("cookie:" in one.casefold() for one in told)
    assert room.rpartition("/")[2] not in "".join(told)


async def _watch(mesh, tab):
    """A job that is submitted elsewhere appears, and its state follows."""
    assert await tab.ask(text_of("h1")) == "Jobs"
    done = (await mesh.submit("example.add", 2, 3)).id
    failed = (await mesh.submit("example.fail", SPITE, options={"attempts": 1})).id
    for job, state in ((done, "succeeded"), (failed, "failed")):
        await tab.until(f"{text_of(row_of(job)).replace('.text', '?.text')} === '{state}'")
    assert (await tab.ask(text_of("#live"))).startswith("live")
    await tab.press(f'[data-job="{failed}"] a')
    assert SPITE in await tab.ask(text_of("h1"))
    await _is_inert(tab)


async def _is_inert(tab):
    assert await tab.ask("document.querySelectorAll('img').length") == 0
    assert tab.seen.errors == []


async def _open(tab, room, job):
    """The page of a job that the node beside the dashboard has read."""
    await tab.open(f"{room}/jobs")
    await tab.until(f"document.querySelector('{row_of(job)}') !== null")
    await tab.open(f"{room}/jobs/{job}")


async def _cancel(mesh, tab, room):
    """It asks first, names the key, and the page says what came of it."""
    waiting = (await mesh.submit("nobody.runs.this", 1)).id
    await _open(tab, room, waiting)
    await tab.click("details.confirm summary")
    asked = await tab.ask(text_of("details.confirm div"))
    assert "ends the job for good, signed as" in asked
    await tab.press("details.confirm form button")
    assert "cancelled" in await tab.ask(text_of("h1"))


async def _answer(mesh, tab, room):
    """A job that waits leads to its question; the answer is signed with the key that is named."""
    handle = await mesh.submit("release.ship", 7)
    await _open(tab, room, handle.id)
    await tab.until("document.querySelector('#rest a[href*=\"for-you#q-\"]') !== null")
    assert f"build 7 {SPITE}" in await tab.ask(text_of("#rest table"))
    await _is_inert(tab)
    await tab.press("#rest a[href*='for-you#q-']")
    assert f"ship 7? {SPITE}" in await tab.ask(text_of(".ask h3"))
    key = await tab.ask(text_of(".head .id"))
    await tab.ask("document.querySelector('.ask input[type=number]').value = 3")
    await tab.ask("document.querySelector('.ask select').value = 1")
    await _is_inert(tab)
    await tab.press(".ask form button.main")
    assert f"{key}, and on the log" in await tab.ask(text_of("[role=status]"))
    assert await handle.result() == {"count": 3, "where": SPITE}


async def _nothing_that_people_wrote_acts(mesh, tab, room):
    """Whatever a person or a program can put on the log is text on every page.

    An image that was made of it would be seen, and a script's attempt is an error of the policy.
    """
    told = (
        "document.addEventListener('securitypolicyviolation', (e) => console.error(e.blockedURI))"
    )
    await tab.call("Page.addScriptToEvaluateOnNewDocument", source=told)
    notes = mesh.memory["notes.team"]
    old = (await notes.put(SPITE, {SPITE: SPITE})).document
    await notes.put(SPITE, SPITE, base=old)
    await notes.put(SPITE, [SPITE], base=old, strategy="defer")
    asked = await mesh.submit("release.ship", 8)
    await _open(tab, room, asked.id)
    await tab.until("document.querySelector('#rest a[href*=\"for-you#q-\"]') !== null")
    found = [one.id for one in await mesh.jobs(limit=20)]
    paths = ["for-you", "jobs", "staves", "nodes", "authority", "log"]
    paths += [f"jobs/{one}" for one in found]
    paths += [f"jobs?{field}={quote(SPITE)}" for field in ("kind", "worker", "text", "since")]
    seen = 0
    for path in paths:
        await tab.open(f"{room}/{path}")
        assert await tab.ask("document.querySelectorAll('img').length") == 0, path
        assert [one for one in tab.seen.errors if "status of 40" not in one] == [], path
        seen += SPITE in await tab.ask("document.body.textContent")
    assert seen >= 4, "it is shown, as text"


async def _invite_and_revoke(guest, tab, room):
    """A machine joins with the ticket that the page shows, and is gone when it is revoked."""
    await tab.open(f"{room}/authority")
    await tab.ask("document.querySelector('#i-alias').value = 'shed'")
    await tab.press("form[action$=invite] button.main")
    ticket = (await tab.ask(text_of("[role=status] pre"))).split()[-1]
    await typed(guest, "join", ticket)
    await tab.open(f"{room}/authority")
    leaf = "[...document.querySelectorAll('.leaf')].find((one) => /shed/.test(one.textContent))"
    await tab.during(tab.ask(f"{leaf}.querySelector('form button').click()"))
    assert "Revoked, signed with the owner" in await tab.ask(text_of("[role=status]"))
    assert await tab.ask(f"{leaf} === undefined")


async def _verify(tab, room, place):
    """A good bundle holds; the same with one other byte does not, and says at which step."""
    bundle = (await make_sealed_jobs()).bundle
    good = place / "bundle.json"
    good.write_bytes(bundle)
    await tab.open(f"{room}/verify")
    await tab.choose_file("#bundle", good)
    assert await tab.ask("document.querySelectorAll('.phrase .done').length") == 6
    assert await tab.ask("document.querySelectorAll('.phrase .broke').length") == 0
    bad = place / "changed.json"
    bad.write_bytes(changed(bundle).data)
    await tab.choose_file("#bundle", bad)
    assert await tab.ask("document.querySelectorAll('.phrase .broke').length") == 1
    assert "fail" in await tab.ask("document.querySelector('.say').className")


async def _without_a_script(tab, room):
    """Every page shows the same after a reload."""
    await tab.call("Emulation.setScriptExecutionDisabled", value=True)
    for path in ("/for-you", "/jobs", "/staves", "/nodes", "/authority", "/log", "/verify"):
        await tab.open(f"{room}{path}")
        page = await tab.call("DOM.getDocument", depth=1)
        html = await tab.call("DOM.getOuterHTML", nodeId=page["root"]["nodeId"])
        assert "<h1>" in html["outerHTML"]
    await tab.call("Emulation.setScriptExecutionDisabled", value=False)
