"""Plans, as typed: `antiphon plan add`, `list` and `drop`."""

import re
import shlex
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, until
from tests.runtime.sandboxed import require_sandbox

pytestmark = [pytest.mark.nats, pytest.mark.req("P13")]


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev():
        yield typed


def listed(shell) -> dict[str, dict]:
    return {one["name"]: one for one in shell.run("plan", "list", "--json").json["plans"]}


def test_a_plan_runs_its_task_and_another_reacts_to_it(shell):
    assert "no plans" in shell.run("plan", "list").out
    when = ["--cron", "* * * * * *", "--tz", "Europe/Berlin"]
    added = shell.run("plan", "add", "adding", *when, "--task", "example.add", "--", "2", "3")
    assert added.code == 0, added.err
    assert "✓ plan adding: example.add at '* * * * * *' in Europe/Berlin" in added.out
    assert added.err.count("next ") == 3
    again = shell.run("plan", "add", "adding", *when, "--task", "example.add", "--", "2", "3")
    assert "nothing to do" in again.out
    how = ["--on", "example.add", "--task", "example.echo"]
    assert shell.run("plan", "add", "echo", *how, "--", '"added"').code == 0
    until(lambda: listed(shell)["echo"]["newest"])
    plans = listed(shell)
    told = shell.run("show", plans["adding"]["newest"]).out
    assert "by a plan's cron" in told
    assert "by a plan, since example.add" in shell.run("show", plans["echo"]["newest"]).out
    about = shell.run("show", "adding").out
    assert "at '* * * * * *' in Europe/Berlin" in about
    assert about.count("  next ") == 3
    assert "antiphon plan drop adding ends it" in about
    assert "None" not in about
    why = shell.run("why", "adding")
    assert why.code == 0, why.err
    assert why.out.startswith("plan adding  example.add\n")
    assert re.search("antiphon why [0-9a-f]{8} explains its newest job", why.out)
    assert shell.run("why", "adding", "--json").json["name"] == "adding"
    text = shell.run("plan", "list").out
    assert "whenever example.add has succeeded" in text
    assert text.count("next ") == 3
    assert "CET" in text or "CEST" in text
    assert shell.run("plan", "drop", "adding").out.strip() == (
        "✓ dropped the plan adding for example.add"
    )
    assert shell.run("plan", "drop", "echo").code == 0
    assert "put the plan adding" in shell.run("show", "adding").out
    assert "no plans" in shell.run("plan", "list").out


PAGES = Path(__file__).parents[2]
ADD = re.compile(r"antiphon plan add nightly --cron [^`\n]*backup\.sh")


def test_the_backup_of_the_pages_runs_as_typed(shell):
    """Only the hour is another one: nobody waits for three in the night."""
    require_sandbox()
    pages = [
        (PAGES / name).read_text() for name in ("docs/learn/how-it-works.md", "docs/do/plans.md")
    ]
    pages.append(shell.run("plan", "add", "--help").out)
    (line,) = {ADD.search(" ".join(text.split()))[0] for text in pages}
    line = line.replace("0 3 * * *", "* * * * * *")
    script = shell.directory / "backup.sh"
    script.write_text("#!/bin/sh\necho backed up\n")
    script.chmod(0o755)
    added = shell.run(*shlex.split(line)[1:])
    assert added.code == 0, added.err
    assert "backup.sh is sent along as an input, as it is now" in added.err
    until(lambda: listed(shell)["nightly"]["newest"])
    job = listed(shell)["nightly"]["newest"]
    assert shell.run("plan", "drop", "nightly").code == 0
    assert shell.ended(job)["state"] == "succeeded"
    assert shell.run("get", job, "stdout", "-o", "-").out == "backed up\n"


def test_a_plan_without_the_file_that_it_names_is_refused_when_it_is_added(shell):
    (shell.directory / "rows.csv").write_text("1\n")
    when = ["plan", "add", "counting", "--cron", "@daily", "--"]
    answer = shell.run(*when, "wc", "-l", "rows.csv")
    assert answer.code == 2
    assert "rows.csv is a file here, but not an input" in answer.err
    assert "--input rows.csv" in answer.err
    gone = shell.run(*when, "./gone.sh")
    assert gone.code != 0
    assert "there is no file gone.sh" in gone.err
    assert "counting" not in listed(shell)


@pytest.mark.parametrize(
    "words, says",
    [
        (["--cron", "0 3 * *", "--", "ls"], "hour 0-23"),
        (["--cron", "@daily", "--tz", "Berlin", "--", "ls"], "Europe/Berlin"),
        (["--", "ls"], "either --cron or --on"),
        (["--cron", "@daily"], "nothing to run"),
        (["--cron", "@daily", "example.add", "1", "2"], "try: --task example.add -- 1 2"),
        (["--on", "failed", "--", "ls"], "needs --of"),
        (["--on", "sucess", "--of", "a.b", "--", "ls"], "'sucess' is not how a job ends"),
        (["--on", "sucess", "--", "ls"], "or a kind: --on build.app"),
        (["--cron", "@daily", "--with-output", "a.tar", "--", "ls"], "results belong to --on"),
        (["--on", "failed", "--of", "command", "--", "ls"], "would trigger itself"),
        (["--cron", "@daily", "--task", "a.b", "--network"], "--network is for commands"),
    ],
)
def test_a_mistake_is_a_sentence_and_what_to_type(shell, words, says):
    answer = shell.run("plan", "add", "nightly", *words)
    assert answer.code != 0
    assert says in answer.err
    assert "Traceback" not in answer.err


def test_a_plan_that_does_not_stand_cannot_be_dropped(shell):
    answer = shell.run("plan", "drop", "gone")
    assert answer.code != 0
    assert "there is no plan named gone" in answer.err


def test_who_has_more_plans_than_run_is_told_when_it_adds_one_and_in_the_list(shell):
    assert shell.run("rules", "plans_max=1").code == 0
    when = ["--cron", "@daily", "--", "ls"]
    assert "does not run" not in shell.run("plan", "add", "first", *when).err
    assert "does not run: " in shell.run("plan", "add", "second", *when).err
    assert "drop some, or ask the owner" in shell.run("plan", "list").out
    assert shell.run("plan", "drop", "first").code == 0
    assert "does not run" not in shell.run("plan", "list").out
