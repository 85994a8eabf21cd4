"""`antiphon run`: a command somewhere on the mesh, as if it ran here."""

import base64
import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from blake3 import blake3

from antiphon.core.record.ids import public_key_of
from tests.acceptance.shell import Shell, is_alive, processes_called, until, wake
from tests.runtime.sandboxed import require_sandbox

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    require_sandbox()
    shell = Shell(tmp_path_factory.mktemp("run"))
    with shell.dev() as ready:
        assert "command" in ready["kinds"]
        yield shell


@pytest.mark.parametrize("code", [0, 3, 127])
def test_streams_and_exit_code_are_the_commands_own(shell, code):
    answer = shell.run("run", "--", "sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert (answer.code, answer.out) == (code, "out\n")
    assert answer.err.startswith("err\n")
    assert ("exited with" in answer.err) is (code != 0)


def test_a_signal_is_told_as_shells_tell_it(shell):
    assert shell.run("run", "--", "sh", "-c", "kill -KILL $$").code == 128 + 9


def test_words_behind_the_command_are_its_own(shell):
    answer = shell.run("run", "echo", "--json", "-n", "--help")
    assert (answer.code, answer.out) == (0, "--json -n --help\n")


def test_the_same_again_is_already_done_with_its_outputs_and_code(shell):
    words = ("--", "sh", "-c", "date +%s%N; exit 4")
    first, second = shell.run("run", *words), shell.run("run", *words)
    assert (first.code, second.code) == (4, 4)
    assert first.out == second.out
    assert "this job already ran and is not run again" in second.err
    anew = shell.run("run", "--again", *words)
    assert anew.out != first.out
    words = ("--", "sh", "-c", "date +%s%N")
    first, second = shell.run("run", *words), shell.run("run", *words)
    assert (first.out, "already done" in second.err) == (second.out, True)


def test_a_program_of_ones_own_goes_along_by_itself_and_other_files_by_option(shell):
    tool = shell.directory / "tools" / "count.sh"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nwc -l < "$1"\n')
    (shell.directory / "rows.csv").write_text("a\nb\n")
    refused = shell.run("run", "--", "tools/count.sh", "rows.csv")
    assert (refused.code, refused.out) == (2, "")
    assert "rows.csv is a file here, but not an input" in refused.err
    answer = shell.run("run", "--input", "rows.csv", "--", "tools/count.sh", "rows.csv")
    assert (answer.code, answer.out) == (0, "2\n")
    assert "tools/count.sh is sent along as an input" in answer.err
    manifest = "command: [./tools/count.sh]\nargs: [rows.csv]\ntimeout: 60\n"
    (shell.directory / "count.yaml").write_text(manifest)
    words = ("submit", "count.yaml", "--kind", "command")
    assert "--input rows.csv" in shell.run(*words).err
    authored = shell.run(*words, "--input", "rows.csv")
    assert (authored.code, authored.out) == (0, "2\n"), authored.err


@pytest.mark.req("P7")
def test_files_go_in_and_come_out(shell):
    (shell.directory / "data.csv").write_text("a\nb\n")
    answer = shell.run(
        *("run", "--input", "data.csv", "--input", "data.csv=deep/copy", "--output", "out/*"),
        *("--env", "GREETING=hello", "--json", "--"),
        *("sh", "-c", "mkdir out; echo $GREETING $(cat data.csv deep/copy | wc -l) > out/x"),
    )
    told = answer.json
    assert (answer.code, told["exit"], told["outcome"]) == (0, 0, "succeeded")
    assert [one["name"] for one in told["outputs"]] == ["stdout", "stderr", "out/x"]
    assert shell.run("get", told["job"], "out/x", "-o", "-").out == "hello 4\n"


def test_output_comes_while_the_command_runs_and_is_whole_at_the_end(shell):
    script = "echo first; sleep 601.1; seq 1 60000; echo last >&2"
    with shell.start("run", "--", "sh", "-c", script) as running:
        assert running.line() == "first\n"
        wake("601.1")
        assert running.wait() == 0
        running.line("60000\n")
        assert running.seen == ["first\n", *(f"{at}\n" for at in range(1, 60_001))]
        assert running.err == "last\n"


def test_detached_it_prints_the_id_and_goes_on(shell):
    answer = shell.run("run", "--detach", "--", "sh", "-c", "sleep 0.5; echo later")
    job = answer.out.strip()
    assert re.fullmatch("[0-9a-f]{64}", job)
    until(lambda: shell.run("get", job, "stdout", "-o", "-").out == "later\n")


def test_interrupted_it_says_that_the_job_goes_on_and_how_to_end_it(shell):
    with shell.start("run", "--", "sh", "-c", "echo begun; sleep 641.41") as running:
        running.line("begun")
        assert running.stop(signal.SIGINT) == 130
        told = running.err
    job = re.search("antiphon cancel ([0-9a-f]{8})", told)[1]
    assert "the job keeps running" in told
    (pid,) = processes_called("sleep", "641.41")
    assert shell.run("cancel", job).code == 0
    until(lambda: not is_alive(pid))


def test_what_is_refused_names_who_refused_it(shell):
    answer = shell.run("run", "--network", "--", "true")
    assert (answer.code, "not started with --network" in answer.err) == (1, True)
    answer = shell.run("run", "--secret", "token", "--", "true")
    assert (answer.code, "no secret called 'token'" in answer.err) == (1, True)
    answer = shell.run("run", "--", "@example.add")
    assert (answer.code, "antiphon submit example.add" in answer.err) == (5, True)
    answer = shell.run("run", "--input", ".", "--", "true")
    assert (answer.code, "tar cf" in answer.err) == (2, True)


def test_a_manifest_of_a_command_runs_the_same_way(shell):
    (shell.directory / "data.txt").write_text("x\n")
    (shell.directory / "job.yaml").write_text(
        "command: [sh, -c]\nargs: ['cat data.txt; echo y > made; exit 5']\ntimeout: 30\n"
    )
    words = ("submit", "job.yaml", "--kind", "command", "--input", "data.txt", "--output", "made")
    answer = shell.run(*words)
    assert (answer.code, answer.out) == (5, "x\n")
    detached = shell.run(*words, "--detach")
    assert shell.run("get", detached.out.strip(), "made", "-o", "-").out == "y\n"


def test_nobody_to_run_it_is_explained(shell):
    with shell.start("run", "--kind", "elsewhere", "--", "true") as running:
        told = iter(running.process.stderr)
        assert any("antiphon worker --commands elsewhere" in line for line in told)
        assert running.stop(signal.SIGINT) == 130


def test_a_worker_needs_something_to_do(shell):
    answer = shell.run("worker")
    assert (answer.code, "--commands command" in answer.err) == (2, True)
    answer = shell.run("worker", "example", "--network")
    assert (answer.code, "needs --commands" in answer.err) == (2, True)


def test_a_worker_offers_commands_of_the_kinds_it_is_told(shell):
    with shell.start("worker", "--commands", "build", "--commands", "test", "--json") as worker:
        assert '"kinds": ["build", "test"]' in worker.line("ready")
        answer = shell.run("run", "--kind", "build", "--", "echo", "built")
        assert (answer.code, answer.out) == (0, "built\n")
        assert worker.stop() == 0
    assert not list(shell.home.glob("runs/*/*"))


@pytest.mark.req("P9")
def test_the_trailers_attest_the_program(shell):
    job = shell.run("run", "--json", "--", "sh", "-c", "true").json["job"]
    trailers = shell.run("proof", job, "--trailers").out
    program = blake3(Path("/bin/sh").resolve().read_bytes()).hexdigest()
    assert f"Attest-Program: blake3:{program}" in trailers
    assert f"Job-Id: blake3:{job}" in trailers


@pytest.mark.req("P9")
def test_the_trailers_name_the_proof_and_who_signed_it_and_git_reads_them(shell):
    job = shell.run("submit", "example.add", "20", "3", "--json").json["job"]
    envelope = shell.run("proof", job, "--json").json
    said = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    canonical = json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode()
    typed = shell.run("proof", job, "--trailers").out
    parsed = subprocess.run(
        ["git", "interpret-trailers", "--parse"],
        input=f"A result\n\n{typed}",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = dict(line.split(": ", 1) for line in parsed.splitlines())
    assert found.pop("Job-Id") == f"blake3:{job}"
    assert found.pop("Proof-Of-Execution") == f"blake3:{blake3(canonical).hexdigest()}"
    assert found.pop("Worker-Id") == f"ed25519:{public_key_of(said['worker']).hex()}"
    signature = base64.b64decode(envelope["signatures"][0]["sig"]).hex()
    assert found.pop("Attest-Sig") == f"ed25519:{signature}"
    assert set(found) <= {"Attest-Program"}


@pytest.mark.req("P8")
def test_a_bundle_is_checked_and_run_again_where_there_is_nothing_else(shell, tmp_path):
    job = shell.run("run", "--output", "x", "--json", "--", "sh", "-c", "echo hello > x").json
    shell.export(job["job"], "-o", str(tmp_path / "bundle.json"))
    there = Shell(tmp_path)
    answer = there.run("verify", "bundle.json", "--rerun")
    assert (answer.code, "same bytes" in answer.out) == (0, True), answer
    assert "exit code: 0" in answer.out
