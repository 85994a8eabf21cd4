"""The dashboard beside `antiphon up` and `antiphon node --http`: the same pages, within bounds."""

import json
import re
from contextlib import contextmanager

import httpx2
import pytest

from tests.acceptance.shell import Shell, until
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.nats, pytest.mark.processes]


@contextmanager
def signed_in(link):
    """A browser that has used the link."""
    base = link.partition("/sign-in/")[0]
    with httpx2.Client(base_url=base, timeout=PATIENCE_S, headers={"Origin": base}) as client:
        assert client.get(link).status_code == 303
        yield client


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("hosted"))
    with shell.init("--name", "hosted") as ready:
        shell.running, shell.dashboard = ready["running"], ready["dashboard"]
        yield shell


def submitted(shell, kind):
    return shell.run("submit", kind, "1", "--detach").out.strip()


def test_up_serves_the_pages_and_prints_the_next_link_when_one_was_used(host):
    job = submitted(host, "render.video")
    with signed_in(host.dashboard) as client:
        assert "<b>render.video</b>" in client.get("/jobs").text
        assert client.post(f"/jobs/{job}/cancel").headers["location"] == f"/jobs/{job}"
        assert "cancelled" in client.get(f"/jobs/{job}").text
    following = json.loads(host.running.line("sign-in"))["dashboard"]
    assert following != host.dashboard
    with signed_in(following) as other:
        assert other.get("/nodes").status_code == 200


def test_a_node_that_reads_some_kinds_shows_no_others_and_signs_with_its_own_machines_key(
    host, tmp_path
):
    ticket = host.run("invite", "--can", "claim", "--can", "cancel", "--kind", "render.*").out
    box = Shell(tmp_path)
    assert box.run("join", ticket.strip(), "--alias", "box").code == 0
    mine, other = submitted(host, "render.still"), submitted(host, "payroll.run")
    with box.start("node", "--http", "127.0.0.1:0", "--json") as node:
        with signed_in(json.loads(node.line("ready"))["dashboard"]) as client:
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
