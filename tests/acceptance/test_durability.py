"""What a mesh knows outlives every process of it, and a machine that cannot be reached is tried."""

import time

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = [pytest.mark.nats, pytest.mark.processes]
TAKE = ("lock", "take", "deploy", "--scope", "prod.web")


@pytest.mark.req("S1")
def test_locks_messages_and_jobs_outlive_a_crash_of_everything(tmp_path):
    shell = Shell(tmp_path)
    with shell.start("dev", "--json") as host:  # its block ends with SIGKILL, the server's too
        host.line('"is_new"')
        me = shell.run("msg", "address").out.strip()
        sent = shell.run("msg", "send", me, "still here", "--json").json["id"]
        job = shell.run("submit", "example.add", "2", "3", "--delay", "1h", "--detach").out.strip()
        done = shell.run("submit", "example.add", "3", "4", "--json").json["job"]
        with shell.start(*TAKE, "--ttl", "1h", "--", "sleep", "99"):
            until(lambda: shell.run("lock", "ls", "--json").json["locks"])
        (held,) = shell.run("lock", "ls", "--json").json["locks"]
    with shell.dev() as again:
        assert not again["is_new"]
        assert shell.run("lock", "ls", "--json").json["locks"] == [held]
        refused = shell.run(*TAKE, "--wait", "0", "--", "true")
        assert "holds it until" in refused.err
        assert shell.run("msg", "read", "--json").json["id"] == sent
        assert shell.run("show", job, "--json").json["state"] == "waiting"
        assert shell.run("show", done, "--json").json["result"] == 7


@pytest.mark.req("S15")
def test_joining_a_machine_that_does_not_answer_is_tried_until_the_breaker_opens(tmp_path):
    (tmp_path / "owner").mkdir()
    (tmp_path / "other").mkdir()
    owner, other = Shell(tmp_path / "owner"), Shell(tmp_path / "other")
    with owner.init():
        ticket = owner.run("invite", "--can", "claim").out.strip()
    began_s = time.monotonic()
    answer = other.run("join", ticket, ANTIPHON_BREAKER_FAILURES="3")
    took_s = time.monotonic() - began_s
    assert answer.code != 0
    assert took_s >= 0.5 + 1, answer.err
    assert "3 times in a row" in answer.err
