"""The dashboard beside `antiphon up` and `antiphon node --http`: the same pages, within bounds."""

import json
import re
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.shell import Shell, until
from tests.interfaces.http.dashboard_browser import go_in
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.nats, pytest.mark.processes]


@contextmanager
def signed_in(link):
    """A browser that has used the link."""
    base = link.partition("/sign-in/")[0]
    with httpx2.Client(base_url=base, timeout=PATIENCE_S, headers={"Origin": base}) as client:
        go_in(client, client.get(link))
        yield client


def link_in(line):
    """The link in the file that is named: what is not a terminal may be a log."""
    assert "sign-in" not in line
    file = Path(json.loads(line)["dashboard"])
    assert file.stat().st_mode & 0o077 == 0
    return file.read_text().strip()


def next_link(running):
    return link_in(running.line('"event": "dashboard"'))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("hosted"))
    with shell.init("--name", "hosted") as ready:
        shell.dashboard = ready["dashboard"]
        shell.following = lambda: next_link(ready["running"])
        yield shell


def submitted(shell, kind):
    return shell.run("submit", kind, "1", "--detach").out.strip()


def test_up_serves_the_pages_and_prints_the_next_link_when_one_was_used(host):
    job = submitted(host, "render.video")
    with signed_in(host.dashboard) as client:
        assert "<b>render.video</b>" in client.get("/jobs").text
        assert client.post(f"/jobs/{job}/cancel").headers["location"].endswith(f"/jobs/{job}")
        assert "cancelled" in client.get(f"/jobs/{job}").text
    following = host.following()
    assert following != host.dashboard
    with signed_in(following) as other:
        assert other.get("/nodes").status_code == 200
    host.dashboard = host.following()


def test_a_node_that_reads_some_kinds_shows_no_others_and_signs_with_its_own_machines_key(
    host, tmp_path
):
    ticket = host.run("invite", "--can", "claim", "--can", "cancel", "--kind", "render.*").out
    box = Shell(tmp_path)
    assert box.run("join", ticket.strip(), "--alias", "box").code == 0
    mine, other = submitted(host, "render.still"), submitted(host, "payroll.run")
    with box.start("node", "--http", "127.0.0.1:0", "--json") as node:
        with signed_in(link_in(node.line("ready"))) as client:
            until(lambda: mine in client.get("/jobs").text)
            page = client.get("/jobs").text
            assert "can read render.*" in page
            assert "payroll" not in page
            total = re.search(r'<b>([\d,]+)</b><span class="st none">all jobs', page)[1]
            counts = host.run("jobs", "--kind", "render", "--json").json["counts"]
            assert int(total) == sum(counts.values())
            assert client.get(f"/jobs/{other}").status_code == 404
            assert "payroll" not in client.get("/nodes").text
            assert client.post(f"/jobs/{mine}/cancel").status_code == 303
        node.stop()
    cancelled = host.run("show", mine, "--json").json["story"][-1]
    assert cancelled["op"] == "job.cancel"
    named = re.search("signing as <b>(.+?)</b>", page)[1]
    (machine,) = [one for one in box.run("who", "--json").json["holders"] if one["alias"] == "box"]
    assert cancelled["author"] in [
        one["node"] for one in machine["holders"] if one["alias"] == named
    ]


def test_a_machine_is_invited_and_revoked_on_the_page_that_names_the_owners_key(host, tmp_path):
    owner = host.run("who", "--json").json["owner"]
    with signed_in(host.dashboard) as client:
        page = client.get("/authority").text
        assert f"owner’s key {owner[-8:]}" in page
        wanted = {"can": ["claim", "read"], "kinds": "render.*", "alias": "shed", "until": "7d"}
        for origin in ("http://other.example", "null"):
            refused = client.post("/authority/invite", data=wanted, headers={"Origin": origin})
            assert refused.status_code == 403
        page = client.post("/authority/invite", data=wanted).text
        ticket = re.search("antiphon-ticket-[0-9A-Za-z_-]+", page)[0]
        assert "antiphon-ticket-" not in client.get("/authority").text, "it is shown once"
        shed = Shell(tmp_path)
        assert shed.run("join", ticket).code == 0
        page = client.get("/authority").text
        (leaf,) = [one for one in page.split("<li>") if "<b>shed</b>" in one]
        assert "claim, read render.*" in leaf or "claim render.*" in leaf
        grants = re.findall('name="grant" value="(bafy[a-z0-9]+)"', leaf)
        assert grants
        page = client.post("/authority/revoke", data={"grant": grants}).text
        assert "Revoked, signed with the owner’s key" in page
        assert "<b>shed</b>" not in page
        assert "<b>shed</b>" in client.get("/authority?all=1").text
        again = client.post("/authority/revoke", data={"grant": grants})
        assert "already revoked" in again.text
    assert "shed" not in host.run("who").out
