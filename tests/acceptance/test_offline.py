"""On a train: jobs and messages without a connection."""

import pytest

from tests.acceptance.shell import Shell

pytestmark = [pytest.mark.nats, pytest.mark.processes, pytest.mark.req("P12", "S16")]


def test_what_is_typed_without_a_connection_arrives_later_and_is_told_once(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        me = shell.run("msg", "address").out.strip()
    told = shell.run("submit", "example.add", "2", "3", "--detach")
    job = told.out.strip()
    assert (told.code, len(job)) == (0, 64), told.err
    assert "tentative" in told.err
    waited = shell.run("submit", "example.add", "4", "5")
    assert (waited.code, waited.out) == (4, ""), "there is no result to print"
    sent = shell.run("msg", "send", me, "from the train", "--json").json
    assert sent["is_tentative"]
    listed = shell.run("outbox").out
    assert [line.split()[0] for line in listed.splitlines()] == ["tentative"] * 3
    assert shell.run("outbox", "send").code == 4
    dropped = waited.err and shell.run("outbox", "--json").out.splitlines()
    assert len(dropped) == 3
    with shell.dev():
        assert shell.ended(job)["result"] == 5
        result = shell.run("submit", "example.add", "6", "7")
        assert result.out.strip() == "13"
        assert result.err.count("outbox: the mesh has it") == 3, "what held is told"
        again = shell.run("outbox")
        assert (again.out, "nothing waits here" in again.err) == ("", True), "and told once"
        assert shell.run("msg", "read", "--json").json["id"] == sent["id"]


def test_an_entry_can_be_dropped_before_it_is_sent(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        pass
    job = shell.run("submit", "example.add", "2", "3", "--detach").out.strip()
    assert shell.run("outbox", "drop").code == 2
    assert "removed: submit example.add" in shell.run("outbox", "drop", job[:8]).err
    assert shell.run("outbox", "retry", job[:8]).code == 5
    assert shell.run("outbox", "--json").out == ""
