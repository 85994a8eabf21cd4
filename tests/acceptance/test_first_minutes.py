"""The first minutes of a person with Antiphon: one terminal runs `antiphon dev`, others ask it."""

import asyncio
import json
import re

import pytest

from antiphon import Mesh
from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev("--name", "first"):
        yield typed


def called(shell, kind, *args):
    """Call a job through the SDK, where the command line is not what the test is about."""

    async def call():
        async with Mesh.open(home=shell.home) as mesh:
            handle = await mesh.submit(kind, *args)
            if kind.startswith("example."):
                await handle.result()
            return handle.id

    return asyncio.run(call())


def test_a_result_is_alone_on_standard_output(shell):
    answer = shell.run("submit", "example.add", "2", "3")
    assert answer.out == "5\n"
    assert "succeeded" in answer.err


def test_a_program_reads_the_result_as_json(shell):
    told = shell.run("submit", "example.add", "2", "3", "--json").json
    assert (told["state"], told["result"], told["is_new"]) == ("succeeded", 5, True)
    assert told["seconds"] > 0


@pytest.mark.parametrize(
    "words, printed",
    [
        (["hello", "--kw", "options=[1]"], '{"args": ["hello"], "kwargs": {"options": [1]}}\n'),
        (["--", "-7"], "-7\n"),
    ],
)
def test_arguments_are_json_and_plain_words_are_text(shell, words, printed):
    assert shell.run("submit", "example.echo", *words).out == printed


def test_show_tells_the_story(shell):
    job = called(shell, "example.add", 20, 22)
    answer = shell.run("show", job[:10])
    assert answer.code == 0
    assert re.search(rf"✓ succeeded  example.add {job[:8]}", answer.out)
    story = [line for line in answer.out.splitlines() if re.match(r"\d\d:\d\d:\d\d\.\d{3} ", line)]
    assert [re.search(r"submitted|claimed|completed", line)[0] for line in story] == [
        "submitted",
        "claimed",
        "completed",
    ]
    assert all(re.search(r" [+-]\d+\.\d{3} s +✓ ", line) for line in story)
    assert re.search(r"^  called with 20, 22$", answer.out, re.MULTILINE)
    assert re.search(r"^result  42$", answer.out, re.MULTILINE)
    # Names are asked for; who is slow to answer is shown by its key.
    until(lambda: "worker-1 claimed it" in shell.run("show", job).out)
    until(lambda: re.search(r"worker-1 is \w{8}", shell.run("show", job).out))


def test_show_for_programs_has_every_verdict(shell):
    job = called(shell, "example.add", 1, 1)
    told = shell.run("show", job, "--json").json
    assert told["job"] == job
    assert told["state"] == "succeeded"
    assert told["result"] == 2
    assert told["arguments"] == {"args": [1, 1], "kwargs": {}}
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
    assert answer.json["attempts"] == 1, "as 'antiphon jobs' counts them"
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
    first = called(shell, "example.echo", 1)
    second = shell.run("submit", "example.echo", "2", "--priority", "high", "--json").json["job"]
    shell.run("submit", "example.fail", "--attempts", "1")
    listed = shell.run("jobs")
    ids = [line.split()[0] for line in listed.out.splitlines()[1:]]
    assert ids.index(second[:8]) < ids.index(first[:8])
    assert "succeeded" in listed.err
    assert max(map(len, listed.out.splitlines())) <= 80
    told = shell.run("jobs", "--failed", "--json").json
    assert {job["state"] for job in told["jobs"]} <= {"failed", "aborted"}
    assert told["jobs"][0]["error"]["name"]
    assert sum(told["counts"].get(state, 0) for state in ("failed", "aborted")) >= 1
    told = shell.run("jobs", "--kind", "example.echo", "--limit", "2", "--json").json
    assert [job["job"] for job in told["jobs"]] == [second, first]
    assert [job["priority"] for job in told["jobs"]] == ["high", "normal"]
    assert "no job matches" in shell.run("jobs", "--kind", "nothing").out


def test_nodes_answers_with_one_worker_and_one_full_node(shell):
    told = shell.run("nodes", "--wait", "20", "--json").json["nodes"]
    assert sorted((node["alias"], node["role"]) for node in told) == [
        ("node-1", "node"),
        ("worker-1", "worker"),
    ]
    worker = next(node for node in told if node["role"] == "worker")
    assert "example.add" in worker["kinds"]
    assert worker["slots"] == 8
    table = shell.run("nodes", "--wait", "20").out
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
            called(shell, "example.echo", "is anyone watching?")
            if not watching._lines.empty():
                seen.append(json.loads(watching.line()))
        job = called(shell, "example.add", 3, 4)
        while not any(e["job"] == job and e["op"] == "job.complete" for e in seen):
            seen.append(json.loads(watching.line()))
        assert watching.stop() == 0
        assert watching.err == ""
    mine = [event for event in seen if event["job"] == job]
    assert [event["state"] for event in mine] == ["pending", "running", "succeeded"]
    assert all(event["accepted"] for event in mine)


def test_a_job_that_nobody_answers_says_what_could_be_wrong(shell):
    for wait in ("4500ms", "20s"):  # a slow machine answers the roll call later
        answer = shell.run("submit", "example.ad", "2", "3", "--wait", wait)
        assert answer.code == 4
        if "did you mean" in answer.err:
            break
    assert "no worker that is online runs example.ad" in answer.err
    assert "did you mean example.add?" in answer.err
    assert "it is not cancelled" in answer.err
    assert "antiphon why " in answer.err


def test_cancel_ends_what_has_not_ended(shell):
    job = shell.run("submit", "nobody.runs.this", "--detach").out.strip()
    answer = shell.run("cancel", job[:12], "--reason", "a test")
    assert answer.code == 0
    assert "aborted" in answer.out
    assert "cancelled it: a test" in shell.run("show", job).out
    again = shell.run("cancel", job, "--json")
    assert again.code == 0
    assert again.json["state"] == "aborted"
    late = shell.run("cancel", called(shell, "example.add", 1, 2))
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
    assert "is already running in" in answer.err


def test_an_unknown_or_unclear_job_is_explained(shell):
    unknown = shell.run("show", "00000000")
    assert unknown.code == 5
    assert "antiphon jobs" in unknown.err
    ids = [called(shell, "example.echo", "x") for _ in range(17)]  # one digit begins two of them
    head = next(head for head in "0123456789abcdef" if sum(i[0] == head for i in ids) > 1)
    unclear = shell.run("show", head)
    assert unclear.code == 5
    assert "several jobs begin with" in unclear.err


def test_the_shell_completes_job_ids_and_kinds(shell):
    job = called(shell, "example.echo", "complete me")

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
