"""On a train: jobs and messages without a connection."""

import json

import pytest

from tests.acceptance.shell import Shell

pytestmark = [pytest.mark.nats, pytest.mark.processes, pytest.mark.req("P12", "S16")]


def test_what_is_typed_without_a_connection_arrives_later_and_is_told_once(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        me = shell.run("msg", "address").out.strip()
        assert shell.run("status", "--json").json["is_connected"]
    told = shell.run("submit", "example.add", "2", "3", "--detach")
    job = told.out.strip()
    assert (told.code, len(job)) == (0, 64), told.err
    assert "tentative" in told.err
    waited = shell.run("submit", "example.add", "4", "5")
    assert (waited.code, waited.out) == (4, ""), "there is no result to print"
    put = shell.run("memory", "put", "notes.team", "plan", "7", "--base", "0")
    assert (put.code, "so the document waits" in put.err) == (0, True)
    sent = shell.run("msg", "send", me, "from the train", "--json").json
    assert sent["is_tentative"]
    assert "so the message waits" in shell.run("msg", "send", me, "and again").err
    shown = shell.run("show", job[:8], "--json").json
    assert (shown["id"], shown["state"], shown["is_tentative"]) == (job, "waiting", True)
    assert "tentative" in shell.run("show", job[:8]).out
    listed = shell.run("outbox").out
    assert [line.split()[0] for line in listed.splitlines()] == ["tentative"] * 5
    answer = shell.run("status", "--json")
    found = answer.json
    assert (answer.code, found["is_connected"], found["outbox"]["waiting"]) == (4, False, 5)
    assert "NATS server" in found["why"]
    assert shell.run("outbox", "send").code == 4
    assert len(shell.run("outbox", "--json").out.splitlines()) == 5, "and nothing was lost by it"
    with shell.dev():
        assert shell.ended(job)["result"] == 5
        result = shell.run("submit", "example.add", "6", "7")
        assert result.out.strip() == "13"
        assert result.err.count("outbox: the mesh has it") == 5, "what held is told"
        again = shell.run("outbox")
        assert (again.out, "nothing waits here" in again.err) == ("", True), "and told once"
        assert shell.run("memory", "get", "notes.team", "plan").out.strip() == "7"
        read = shell.run("msg", "read", "--json").out.splitlines()
        assert [json.loads(one)["payload"] for one in read] == ["from the train", "and again"]


def test_without_a_connection_jobs_are_listed_as_tentative_and_as_they_were_known(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        done = shell.run("submit", "example.add", "1", "1", "--json").json["job"]
        assert shell.run("jobs", "--json").json["is_connected"]
    job = shell.run("submit", "example.add", "2", "3", "--detach").out.strip()
    found = shell.run("jobs", "--json").json
    assert not found["is_connected"]
    assert [one["id"] for one in found["tentative"]] == [job]
    assert [(one["job"], one["state"]) for one in found["jobs"]] == [(done, "succeeded")]
    listed = shell.run("jobs")
    assert "tentative" in listed.out
    assert "cannot be reached" in listed.err


def test_an_item_can_be_dropped_before_it_is_sent(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        pass
    job = shell.run("submit", "example.add", "2", "3", "--detach").out.strip()
    assert shell.run("outbox", "drop").code == 2
    assert "removed: submit example.add" in shell.run("outbox", "drop", job[:8]).err
    assert shell.run("outbox", "retry", job[:8]).code == 5
    assert shell.run("outbox", "--json").out == ""
