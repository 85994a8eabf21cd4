"""`antiphon jobs --failed` and `antiphon retry`, as people type them."""

import json

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
    first = shell.run("retry", "--all-failed", "--kind", "example", "--json").json["retried"]
    assert jobs <= {one["retry_of"] for one in first}
    assert all(one["is_new"] for one in first)
    second = shell.run("retry", "--all-failed", "--kind", "nothing", "--json").json
    assert second == {"retried": []}


def test_retry_says_what_is_wrong_with_a_wish(shell):
    for words in (("retry",), ("retry", "abc", "--all-failed"), ("retry", "abc", "--kind", "x")):
        assert shell.run(*words).code == 2
    done = json.loads(shell.run("submit", "example.add", "1", "2", "--json").out)["job"]
    refused = shell.run("retry", done)
    assert refused.code == 5
    assert "succeeded" in refused.err
