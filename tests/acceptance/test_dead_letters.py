"""`antiphon jobs --failed` and `antiphon retry`, as people type them."""

import json
import re

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("letters"))
    with shell.dev():
        yield shell


def failed(shell: Shell, word: str) -> str:
    answer = shell.run("submit", "example.fail", word, "--attempts", "1", "--json")
    assert answer.code == 1
    return answer.json["job"]


def test_a_failed_job_is_listed_with_its_error_and_retried_by_its_id(shell):
    job = failed(shell, "first")
    listed = shell.run("jobs", "--failed")
    line = next(line for line in listed.out.splitlines() if line.startswith(job[:8]))
    assert "first" in line
    assert "1/1" in line
    again = shell.run("retry", job[:10])
    assert again.code == 0, again.err
    new = again.out.strip()
    assert new != job
    assert shell.run("retry", job[:10]).code == 0
    assert f"repeats {job[:8]}" in shell.run("show", new).out
    shown = shell.run("show", job).out
    assert "traceback, innermost call last" in shown
    told = shell.run("show", job, "--json").json
    assert told["error_type"] in told["traceback"].splitlines()[-1]
    assert told["retried_as"] == new
    assert (told["attempts"], told["attempts_max"]) == (1, 1)
    assert shell.run("show", new, "--json").json["retry_of"] == job


def test_all_that_failed_are_retried_once(shell):
    jobs = {failed(shell, word) for word in ("a", "b")}
    unasked = shell.run("retry", "--all-failed", "--kind", "example")
    assert unasked.code == 2, "nobody is there to be asked"
    assert re.search(r"retry (\d+) jobs: \1 of example\.fail", unasked.err)
    assert "--yes" in unasked.err
    words = ("retry", "--all-failed", "--kind", "example", "--json", "--yes")
    first = shell.run(*words).json["retried"]
    assert jobs <= {one["retry_of"] for one in first}
    assert all(one["is_new"] for one in first)
    second = shell.run("retry", "--all-failed", "--kind", "nothing", "--json").json
    assert second == {"retried": [], "has_more": False}


def test_many_jobs_are_cancelled_by_what_they_have_in_common_a_bounded_number_at_a_time(shell):
    words = ("submit", "example.add", "1", "2", "--delay", "1h", "--detach", "--json")
    jobs = {shell.run(*words).json["job"] for _ in range(3)}
    assert shell.run("cancel", "--kind", "example").code == 2, "nobody is there to be asked"
    assert shell.run("cancel").code == shell.run("cancel", "abc", "--kind", "example").code == 2
    young = shell.run("cancel", "--kind", "example", "--older-than", "1h", "--yes", "--json")
    assert young.json == {"cancelled": [], "failed": [], "has_more": False}
    words = ("cancel", "--kind", "example", "--state", "waiting", "--yes", "--limit", "2", "--json")
    first, second, third = (shell.run(*words).json for _ in range(3))
    assert (len(first["cancelled"]), first["has_more"]) == (2, True)
    assert (len(second["cancelled"]), second["has_more"]) == (1, False)
    assert third["cancelled"] == []
    assert {*first["cancelled"], *second["cancelled"]} == jobs


def test_a_kind_is_paused_and_resumed_and_everybody_is_told(shell):
    paused = shell.run("pause", "example", "--reason", "the disk is full")
    assert paused.code == 0, paused.err
    waits = shell.run("submit", "example.add", "1", "2", "--detach")
    assert "the disk is full" in waits.err
    job = waits.out.strip()
    assert "paused" in shell.run("why", job).out
    listed = shell.run("pause")
    assert "the disk is full" in listed.out
    assert "antiphon resume example" in listed.err
    told = shell.run("doctor", "--json").out
    assert "antiphon resume example" in told
    assert shell.run("resume").code == 2
    assert shell.run("resume", "example").code == 0
    assert shell.ended(job)["state"] == "succeeded"


def test_retry_says_what_is_wrong_with_a_wish(shell):
    for words in (("retry",), ("retry", "abc", "--all-failed"), ("retry", "abc", "--kind", "x")):
        assert shell.run(*words).code == 2
    done = json.loads(shell.run("submit", "example.add", "1", "2", "--json").out)["job"]
    refused = shell.run("retry", done)
    assert refused.code == 5
    assert "succeeded" in refused.err
