"""The page that checks a bundle: what it shows of a good and of a changed file, and to whom."""

import asyncio
import html
from contextlib import asynccontextmanager

import httpx2
import pytest

from antiphon.core.bundle import MAX_BUNDLE_BYTES
from antiphon.interfaces.http.bounded_server import serving
from antiphon.interfaces.http.pages.verify_page import File, changed, make_application
from antiphon.sdk.proofs.verification import STEPS, verify_in_steps
from antiphon.settings import HttpAddress
from chaos.tamper.sealed_jobs import make_sealed_jobs
from tests.acceptance.shell import Shell
from tests.interfaces.http.client import connected
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes
SECRET = "nobody-can-guess-it"


@pytest.fixture(scope="module")
def jobs():
    return asyncio.run(make_sealed_jobs())


@asynccontextmanager
async def shown(file=None, owner=None):
    app = make_application(SECRET, file, owner=owner)
    async with serving(app, HttpAddress("127.0.0.1", 0)) as port:
        base = f"http://127.0.0.1:{port}/{SECRET}/"
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE_S) as client:
            yield client


async def test_a_good_file_holds_at_every_step_and_the_page_says_what_that_proves(jobs):
    async with shown(File("job.json", jobs.bundle), jobs.owner) as client:
        page = (await client.get("")).text
    assert "This bundle is valid: " in page
    assert page.count('<li class="done">') == len(STEPS)
    assert "the owner that you named" in page
    assert "told the truth about what it ran" in page
    assert jobs.owner in page


async def test_a_changed_byte_is_marked_and_nothing_behind_it_is_claimed(jobs):
    async with shown(File("job.json", jobs.bundle)) as client:
        page = (await client.get("", params={"changed": "1"})).text
    change = changed(jobs.bundle)
    assert "This bundle is not valid: " in page
    assert page.count('<li class="broke">') == 1
    assert page.count("Not reached.") == page.count('<li class="never">') > 0
    assert f"<mark>{change.now:02x}</mark>" in page
    assert '<ul class="said yes">' not in page


def test_the_marked_byte_is_in_the_listing_wherever_it_is():
    for length in range(1, 60):
        change = changed(b"5" * length)
        assert [row.marked for row in change.rows if row.marked] == [f"{change.now:02x}"]


def test_each_kind_of_fault_is_found_at_its_step(jobs):
    def broke(data, **how):
        found = verify_in_steps(data, **how)
        assert found.report is None
        return next(one.title for one in found.steps if one.state == "broke")

    assert broke(b"") == "Bytes"
    assert broke(jobs.bundle + b" ") == "Bytes"
    assert broke(jobs.bundle, owner="did:key:z6Mk") == "Mesh and owner"
    assert broke(changed(jobs.bundle).data) in {"Bytes", "Seal"}


async def test_a_file_that_is_dropped_is_checked(jobs):
    async with shown() as client:
        assert "Drop a bundle here" in (await client.get("")).text
        files = {"bundle": ("<b>other</b>.json", jobs.bundle, "application/json")}
        answer = await client.post("", files=files)
        assert answer.status_code == 303
        page = (await client.get("")).text
    assert "This bundle is valid: " in page
    assert html.escape("<b>other</b>.json") in page, "the name of a file is no markup"


async def test_nobody_else_is_shown_anything(jobs):
    async with shown(File("job.json", jobs.bundle)) as client:
        assert (await client.get("", headers={"Host": "other.example"})).status_code == 400
        for path in ("/", "/guess/"):
            elsewhere = client.base_url.copy_with(path=path)
            assert (await client.get(elsewhere)).status_code == 404
        assert (await client.get("static/%2e%2e%2frendering.py")).status_code == 404
        answer = await client.get("")
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "<script>" not in answer.text
        assert "style=" not in answer.text


async def test_a_file_that_is_too_large_is_not_even_read():
    async with shown() as client, connected(client.base_url.port) as line:
        head = (f"POST /{SECRET}/ HTTP/1.1", "Host: 127.0.0.1")
        line.send("\r\n".join([*head, f"Content-Length: {2 * MAX_BUNDLE_BYTES}", "", ""]).encode())
        assert (await line.answer()).status == 413


def test_the_command_says_where_the_page_is_and_serves_it(tmp_path, jobs):
    (tmp_path / "job.json").write_bytes(jobs.bundle)
    shell = Shell(tmp_path, BROWSER="true")
    with shell.start("verify", "job.json", "--open") as running:
        line = running.line("http://")
        where = line.split(" at ")[1].split(";")[0]
        assert "This bundle is valid: " in httpx2.get(where, timeout=PATIENCE_S).text
        assert running.stop() == 0
