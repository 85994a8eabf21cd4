"""The first minutes of a person with Antiphon: one terminal runs `antiphon dev`, others ask it."""

import json
import re

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev("--name", "first"):
        yield typed


def submit(shell, *words):
    answer = shell.run("submit", "--no-wait", *words)
    assert answer.code == 0, answer.err
    return answer.out.strip()


def test_a_result_is_there_at_once_and_alone_on_standard_output(shell, record_property):
    shell.run("submit", "example.add", "2", "3")
    answer = shell.run("submit", "example.add", "2", "3")
    record_property("submit_round_trip_s", round(answer.seconds, 3))
    assert answer.out == "5\n"
    assert "succeeded" in answer.err
    assert answer.seconds < 3


def test_the_job_itself_takes_milliseconds(shell, record_property):
    told = shell.run("submit", "example.add", "2", "3", "--json").json
    record_property("called_to_ended_s", told["seconds"])
    assert told["state"] == "succeeded"
    assert told["result"] == 5
    assert told["is_new"]
    assert told["seconds"] < 1


@pytest.mark.parametrize(
    "words, printed",
    [
        (["hello"], "hello\n"),
        (["hello", "world"], '["hello", "world"]\n'),
        (['{"a": [1, null, 2.5]}'], '{"a": [1, null, 2.5]}\n'),
        (['"5"'], "5\n"),
        (["NaN"], "NaN\n"),
        (["--", "-7"], "-7\n"),
        (["--kw", "options=1", "--kw", "kind=x"], '{"args": [], "kwargs": {"kind": "x", '
         '"options": 1}}\n'),
        (["two\nlines"], "two\nlines\n"),
    ],
)  # fmt: skip
def test_arguments_are_json_and_plain_words_are_text(shell, words, printed):
    assert shell.run("submit", "example.echo", *words).out == printed


def test_show_tells_the_story(shell):
    job = submit(shell, "example.add", "20", "22")
    shell.run("submit", "example.echo", "done")
    answer = shell.run("show", job[:10])
    assert answer.code == 0
    assert re.search(rf"✓ succeeded  example.add {job[:8]}", answer.out)
    story = [line for line in answer.out.splitlines() if re.match(r"\d\d:\d\d:\d\d\.\d{3} ", line)]
    assert [re.search(r"called|claimed|completed", line)[0] for line in story] == [
        "called",
        "claimed",
        "completed",
    ]
    assert all(re.search(r" [+-]\d+\.\d{3} s +✓ ", line) for line in story)
    assert re.search(r"^result  42$", answer.out, re.MULTILINE)
    assert "is worker-1" in answer.out


def test_show_for_programs_has_every_verdict(shell):
    job = submit(shell, "example.add", "1", "1")
    shell.run("submit", "example.echo", "done")
    told = shell.run("show", job, "--json").json
    assert told["job"] == job
    assert told["state"] == "succeeded"
    assert told["result"] == 2
    assert [line["op"] for line in told["story"]] == ["job.schedule", "job.claim", "job.complete"]
    assert all(line["accepted"] and line["verdict"] == "ok" for line in told["story"])


def test_a_failed_job_ends_with_its_error_and_code_1(shell):
    answer = shell.run("submit", "example.fail", "no luck", "--attempts", "1")
    assert answer.code == 1
    assert answer.out == ""
    assert "RuntimeError: no luck" in answer.err
    job = re.search(r"antiphon show ([0-9a-f]{8})", answer.err)[1]
    assert "RuntimeError: no luck" in shell.run("show", job).out


def test_a_failed_job_for_programs(shell):
    answer = shell.run("submit", "example.fail", "--attempts", "1", "--json")
    assert answer.code == 1
    assert answer.json["state"] == "failed"
    assert answer.json["error"]["reason"] == "failed"
    assert set(answer.json["error"]) == {"kind", "message", "reason", "hint"}


def test_once_runs_once_and_says_already_done(shell):
    first = shell.run("submit", "example.add", "7", "8", "--once")
    again = shell.run("submit", "example.add", "7", "8", "--once")
    assert first.out == again.out == "15\n"
    assert "already done" not in first.err
    assert "already done" in again.err
    assert not shell.run("submit", "example.add", "7", "8", "--once", "--json").json["is_new"]


def test_once_on_a_failed_job_says_how_to_call_it_anew(shell):
    words = ("submit", "example.fail", "once", "--once", "--attempts", "1")
    assert shell.run(*words).code == 1
    again = shell.run(*words)
    assert again.code == 1
    assert "leave out --once" in again.err


def test_jobs_lists_the_newest_first_and_filters(shell):
    first = submit(shell, "example.echo", "1")
    second = submit(shell, "example.echo", "2")
    shell.run("submit", "example.fail", "--attempts", "1")
    listed = shell.run("jobs")
    ids = [line.split()[0] for line in listed.out.splitlines()[1:]]
    assert ids.index(second[:8]) < ids.index(first[:8])
    assert "succeeded" in listed.err
    assert max(map(len, listed.out.splitlines())) <= 80
    told = shell.run("jobs", "--failed", "--json").json
    assert {job["state"] for job in told["jobs"]} == {"failed"}
    assert told["counts"]["failed"] >= len(told["jobs"]) >= 1
    told = shell.run("jobs", "--kind", "example.echo", "--limit", "2", "--json").json
    assert [job["job"] for job in told["jobs"]] == [second, first]
    assert "no jobs like that" in shell.run("jobs", "--kind", "nothing").out


def test_nodes_answers_with_one_worker_and_one_full_node(shell):
    told = shell.run("nodes", "--json").json["nodes"]
    assert sorted((node["alias"], node["role"]) for node in told) == [
        ("node-1", "node"),
        ("worker-1", "worker"),
    ]
    worker = next(node for node in told if node["role"] == "worker")
    assert "example.add" in worker["kinds"]
    assert worker["slots"] == 8
    table = shell.run("nodes").out
    assert worker["node"][-8:] in table
    assert "example.sleep" in table


def test_doctor_finds_a_development_mesh_well_and_open(shell):
    answer = shell.run("doctor")
    assert answer.code == 0, answer.out
    assert "✗" not in answer.out
    told = shell.run("doctor", "--json").json
    levels = {check["check"]: check["level"] for check in told["checks"]}
    assert told["ok"]
    assert levels["authority"] == "warning"
    for check in ("state", "private", "reach", "durability", "rules", "clock", "replica"):
        assert levels[check] == "ok", told


def test_doctor_sees_a_key_that_others_may_read(shell):
    key = shell.home / "keys" / "recovery.key"
    key.chmod(0o644)
    try:
        answer = shell.run("doctor")
        assert answer.code == 1
        assert f"chmod 600 {key}" in answer.out
    finally:
        key.chmod(0o600)


def test_keys_and_credentials_are_private(shell):
    secrets = [*shell.home.glob("keys/*.key"), shell.home / "access.json"]
    secrets += [shell.home / "server" / "server.conf", shell.home / "server" / "credentials.json"]
    assert len(secrets) > 4
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secrets)
    assert shell.home.stat().st_mode & 0o777 == 0o700


def test_watch_sees_what_other_processes_do(shell):
    with shell.start("watch", "--json") as watching:
        seen: list[dict[str, object]] = []
        while not seen:  # it follows from the moment it is up
            shell.run("submit", "example.echo", "is anyone watching?")
            if not watching._lines.empty():
                seen.append(json.loads(watching.line()))
        job = submit(shell, "example.add", "3", "4")
        while not any(e["job"] == job and e["op"] == "job.complete" for e in seen):
            seen.append(json.loads(watching.line()))
        assert watching.stop() == 0
        assert watching.err == ""
    mine = [event for event in seen if event["job"] == job]
    assert [event["state"] for event in mine] == ["pending", "running", "succeeded"]
    assert all(event["accepted"] for event in mine)


def test_a_job_that_nobody_answers_says_what_could_be_wrong(shell):
    answer = shell.run("submit", "example.ad", "2", "3", "--wait-timeout", "4.5")
    assert answer.code == 4
    assert "nobody who answers the roll call runs example.ad" in answer.err
    assert "did you mean example.add?" in answer.err
    assert "it goes on" in answer.err


def test_cancel_ends_what_has_not_ended(shell):
    job = submit(shell, "nobody.runs.this")
    answer = shell.run("cancel", job[:12], "--reason", "a test")
    assert answer.code == 0
    assert "aborted" in answer.out
    assert "cancelled it: a test" in shell.run("show", job).out
    again = shell.run("cancel", job, "--json")
    assert again.code == 0
    assert again.json["state"] == "aborted"
    ended = shell.run("submit", "example.add", "1", "2", "--json").json["job"]
    late = shell.run("cancel", ended)
    assert late.code == 6
    assert "already ended" in late.err


def test_a_call_against_the_rules_says_what_they_allow(shell):
    answer = shell.run("submit", "example.add", "1", "2", "--lease", "1")
    assert answer.code == 5
    assert "between 5 and 3600 s" in answer.err
    told = shell.run("submit", "example.add", "1", "2", "--lease", "1", "--json")
    assert told.code == 5
    assert told.json["error"]["reason"] == "lease"


def test_text_from_the_log_cannot_steer_a_terminal(shell):
    hostile = "\x1b[31m[bold red]red[/] \u202egnirts \x07\r"
    answer = shell.run("submit", "example.fail", json.dumps(hostile), "--attempts", "1")
    job = re.search(r"antiphon show ([0-9a-f]{8})", answer.err)[1]
    for said in (answer.err, shell.run("show", job).out):
        assert "\\x1b[31m[bold red]red[/] \\u202egnirts \\x07" in said
        assert not {"\x1b", "\u202e", "\x07", "\r"} & set(said)


def test_a_second_dev_in_the_same_directory_is_told_to_use_the_first(shell):
    answer = shell.run("dev")
    assert answer.code == 6
    assert "already runs" in answer.err


def test_an_unknown_or_unclear_job_is_explained(shell):
    unknown = shell.run("show", "00000000")
    assert unknown.code == 5
    assert "antiphon jobs" in unknown.err
    heads = {submit(shell, "example.echo", "x")[0] for _ in range(20)}
    head = next(
        head for head in sorted(heads)
        if sum(job["job"][0] == head for job in shell.run("jobs", "--json").json["jobs"]) > 1
    )  # fmt: skip
    unclear = shell.run("show", head)
    assert unclear.code == 5
    assert "several jobs begin with" in unclear.err


def test_the_shell_completes_job_ids_and_kinds(shell):
    job = submit(shell, "example.echo", "complete me")
    shell.run("jobs")

    def completed(*words):
        line = " ".join(("antiphon", *words))
        return shell.run(
            _ANTIPHON_COMPLETE="complete_bash",
            COMP_WORDS=line,
            COMP_CWORD=str(len(words)),
        ).out.split()

    assert job[:12] in completed("show", job[:4])
    assert "example.echo" in completed("submit", "example.e")
    assert "doctor" in completed("do")
