"""The dashboard in a real browser, as one person uses it; where Chromium is installed."""

import asyncio
import json

import pytest

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


def text_of(selector):
    return f"document.querySelector({json.dumps(selector)}).textContent"


def row_of(job):
    return f'[data-job="{job}"] .st'


async def typed(shell, *words):
    answer = await asyncio.to_thread(shell.run, *words)
    assert answer.code == 0, answer
    return answer.out.strip()


async def test_a_person_signs_in_watches_cancels_and_verifies(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev("--name", "watched") as ready:
        link = ready["dashboard"]
        base = link.partition("/sign-in/")[0]
        async with browser() as tab:
            await tab.open(f"{base}/jobs")
            assert "not signed in" in await tab.ask(text_of("h1"))
            await tab.open(link)
            await _watch(shell, tab)
            await _cancel(shell, tab, base)
            await _verify(tab, base, tmp_path)
            await _without_a_script(tab, base)
            assert tab.seen.errors == []


async def _watch(shell, tab):
    """A job that is submitted in a terminal appears, and its state follows."""
    assert await tab.ask(text_of("h1")) == "Jobs"
    done = await typed(shell, "submit", "example.add", "2", "3", "--detach")
    failed = await typed(
        shell,
        "submit",
        "example.fail",
        "<img src=x onerror=alert(1)>",
        "--attempts",
        "1",
        "--detach",
    )
    for job, state in ((done, "succeeded"), (failed, "failed")):
        await tab.until(f"{text_of(row_of(job)).replace('.text', '?.text')} === '{state}'")
    assert (await tab.ask(text_of("#live"))).startswith("live")
    await tab.press(f'[data-job="{failed}"] a')
    assert "onerror=alert(1)" in await tab.ask(text_of("h1"))
    assert await tab.ask("document.querySelectorAll('img').length") == 0
    assert tab.seen.errors == []


async def _cancel(shell, tab, base):
    """It asks first, names the key, and the page says what came of it."""
    waiting = await typed(shell, "submit", "nobody.runs.this", "1", "--detach")
    await tab.open(f"{base}/jobs/{waiting}")
    await tab.click("details.confirm summary")
    asked = await tab.ask(text_of("details.confirm div"))
    assert "ends the job for good, signed as" in asked
    await tab.press("details.confirm form button")
    assert "cancelled" in await tab.ask(text_of("h1"))


async def _verify(tab, base, place):
    """A good bundle holds; the same with one other byte does not, and says at which step."""
    bundle = (await make_sealed_jobs()).bundle
    good = place / "bundle.json"
    good.write_bytes(bundle)
    await tab.open(f"{base}/verify")
    await tab.choose_file("#bundle", good)
    assert await tab.ask("document.querySelectorAll('.phrase .done').length") == 6
    assert await tab.ask("document.querySelectorAll('.phrase .broke').length") == 0
    bad = place / "changed.json"
    bad.write_bytes(changed(bundle).data)
    await tab.choose_file("#bundle", bad)
    assert await tab.ask("document.querySelectorAll('.phrase .broke').length") == 1
    assert "fail" in await tab.ask("document.querySelector('.say').className")


async def _without_a_script(tab, base):
    """Every page shows the same after a reload."""
    await tab.call("Emulation.setScriptExecutionDisabled", value=True)
    for path in ("/jobs", "/staves", "/nodes", "/authority", "/log", "/verify"):
        await tab.open(f"{base}{path}")
        page = await tab.call("DOM.getDocument", depth=1)
        html = await tab.call("DOM.getOuterHTML", nodeId=page["root"]["nodeId"])
        assert "<h1>" in html["outerHTML"]
    await tab.call("Emulation.setScriptExecutionDisabled", value=False)
