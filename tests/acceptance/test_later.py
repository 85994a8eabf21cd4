"""Delayed jobs, as typed: `antiphon submit --delay`, `--at`, and what the other commands say."""

import time
from datetime import datetime, timedelta, timezone

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev():
        yield typed


def test_a_delayed_job_begins_not_before_its_time(shell):
    began_ms = time.time() * 1000
    answer = shell.run("submit", "--delay", "2s", "--json", "example.add", "2", "3").json
    assert (answer["state"], answer["result"]) == ("succeeded", 5)
    told = shell.run("show", answer["job"], "--json").json
    assert told["not_before_ms"] >= began_ms + 2_000
    (offered,) = (line for line in told["story"] if line["op"] == "job.offer")
    (claimed,) = (line for line in told["story"] if line["op"] == "job.claim")
    assert offered["accepted"]
    assert told["not_before_ms"] <= offered["at_ms"] <= claimed["at_ms"]


def test_a_job_that_waits_says_until_when_and_can_be_cancelled(shell):
    job = shell.run("submit", "--delay", "1d", "--detach", "example.add", "1", "1").out.strip()
    assert "waits until" in shell.run("show", job).out
    assert "waits until" in shell.run("jobs", "--state", "waiting").out
    assert "it waits until" in shell.run("why", job).out
    told = shell.run("why", job, "--json").json
    assert [wait["what"] for wait in told["waits_for"]] == ["time"]
    assert shell.run("cancel", job).code == 0
    assert shell.run("show", job, "--json").json["state"] == "aborted"


def test_a_job_at_a_point_in_time_waits_for_it_wherever_its_zone_is(shell):
    at = datetime.now(timezone(timedelta(hours=-7))) + timedelta(hours=5)
    text = at.isoformat(timespec="minutes")
    job = shell.run("submit", "--at", text, "--detach", "example.add", "1", "2").out.strip()
    told = shell.run("show", job, "--json").json
    assert told["state"] == "waiting"
    assert told["not_before_ms"] == datetime.fromisoformat(text).timestamp() * 1000
    shell.run("cancel", job)


def test_a_point_in_time_that_has_passed_begins_at_once(shell):
    job = shell.run("submit", "--at", "2020-01-01T00:00Z", "--detach", "example.add", "1", "3")
    assert shell.ended(job.out.strip())["state"] == "succeeded"


def test_a_delay_beyond_the_horizon_is_a_sentence_and_writes_nothing(shell):
    before = shell.run("jobs", "--json").json["counts"]
    answer = shell.run("submit", "--delay", "31d", "example.add", "1", "1")
    assert answer.code == 5
    assert "its delay is longer than the mesh's horizon" in answer.err
    assert "at most 30d from now" in answer.err
    assert shell.run("jobs", "--json").json["counts"] == before
