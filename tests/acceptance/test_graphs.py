"""`antiphon graph FILE` and what `antiphon show` draws."""

import pytest

from tests.acceptance.shell import Shell

FILE = """\
kind: ci
steps:
  release:
    command: [sh, -c, "cat app.txt size.txt > release.txt"]
    inputs: {app.txt: {step: build}, size.txt: {step: test, output: stdout}}
    outputs: [release.txt]
  build:
    command: [sh, -c, "tr a-z A-Z < source.txt > app.txt"]
    inputs: {source.txt: source.txt}
    outputs: [app.txt]
  test:
    command: [sh, -c, "wc -c < app.txt"]
    inputs: {app.txt: {step: build}}
  notify:
    command: [echo, done]
    needs: [release]
    any_outcome: true
"""


@pytest.mark.nats
def test_a_file_of_steps_is_submitted_waited_for_and_drawn(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "release.yaml").write_text(FILE)
    (tmp_path / "source.txt").write_text("hello\n")
    with shell.dev("--commands", "ci", "--unsafe-no-sandbox"):
        done = shell.run("graph", "release.yaml", "--json")
        assert done.code == 0, done.err
        jobs = {one["step"]: one for one in done.json["steps"]}
        assert {one["outcome"] for one in jobs.values()} == {"succeeded"}
        assert jobs["release"]["after"] == ["build", "test"]
        shown = shell.run("show", jobs["test"]["job"], "--json").json
        assert [one["job"] for one in shown["after"]] == [jobs["build"]["job"]]
        assert [one["job"] for one in shown["then"]] == [jobs["release"]["job"]]
        drawn = shell.run("show", jobs["build"]["job"]).out
        assert "a step of a graph: it comes first; 2 jobs come after it" in drawn
        told = shell.run("show", jobs["test"]["job"]).out
        assert f"it comes after ci {jobs['build']['job'][:8]} (succeeded)" in told
        assert "'antiphon graph' prints those of its steps" in shell.run("show", "test").err
        short = {name: one["job"][:8] for name, one in jobs.items()}
        lines = [line.strip() for line in drawn.splitlines() if "─ " in line]
        assert lines == [
            f"then    ├─ ✓ succeeded  ci {short['test']}",
            f"│  └─ ✓ succeeded  ci {short['release']}",
            f"│     └─ ✓ succeeded  ci {short['notify']}",
            f"└─ ✓ succeeded  ci {short['release']}  shown above",
        ]
        got = shell.run("get", jobs["release"]["job"], "release.txt", "-o", "-")
        assert got.out == "HELLO\n6\n"

        (tmp_path / "bad.yaml").write_text(FILE.replace("wc -c < app.txt", "exit 3"))
        failed = shell.run("graph", "bad.yaml")
        assert failed.code == 1
        assert "release" in failed.out
        assert "because test ended as failed" in failed.out
        assert "2 of 4 steps did not succeed" in failed.err
        (tmp_path / "own.yaml").write_text("steps:\n  one:\n    command: [./own.sh, source.txt]\n")
        (tmp_path / "own.sh").write_text("#!/bin/sh\ncat source.txt")
        (tmp_path / "sub").mkdir()
        refused = Shell(tmp_path / "sub").run("graph", "../own.yaml")
        assert "source.txt is a file here, but not an input of the step" in refused.err
        assert "inputs: {source.txt: source.txt}" in refused.err
        wrong = shell.run("graph", "missing.yaml")
        assert wrong.code == 3

        detached = shell.run("graph", "release.yaml", "--detach")
        assert detached.code == 0
        assert "draws it" in detached.err
        assert "after build, test" in detached.out


@pytest.mark.nats
def test_a_graph_that_nobody_runs_says_so_and_can_be_left(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "alone.yaml").write_text("kind: nobody\nsteps:\n  one: {command: [echo]}\n")
    with shell.dev():
        seen = shell.on_screen("graph", "alone.yaml", seeing="waiting: ", ends=True)
        assert "no worker that is online runs nobody" in " ".join(seen.split())
        assert "the steps stay on the mesh and go on" in seen
        detached = shell.run("graph", "alone.yaml", "--detach")
        assert (detached.code, "waiting: " in detached.err) == (0, False)
