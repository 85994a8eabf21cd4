"""A person with a manifest: submits it, submits it again, and gets it wrong."""

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from antiphon.interfaces.cli import application
from tests.acceptance.shell import Shell

ADD = """\
# two and three
command: ["@example.add"]
args: ['{"args":[2,3],"kwargs":{}}']
timeout: 3600
"""
FAIL = """\
command: ["@example.fail"]
args: ['{"args":["no luck"],"kwargs":{}}']
timeout: PT1M
"""
COMMAND = "command: [echo, hello]\ntimeout: 30\n"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev("--name", "manifests"):
        yield typed


class Said(NamedTuple):
    """What the command line answered, with its lines joined."""

    code: int
    out: str
    err: str


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """The command line in this process, where there is no mesh: nothing here gets to need one."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ANTIPHON")]:
        monkeypatch.delenv(name)

    def run(*words):
        monkeypatch.setattr("sys.argv", ["antiphon", *words])
        code = application.run()
        told = capsys.readouterr()
        return Said(code, told.out, " ".join(told.err.split()))

    return run


def ops_of(shell, job):
    """What happened to a job, op by op."""
    return [line["op"] for line in shell.run("show", job, "--json").json["story"]]


@pytest.mark.nats
@pytest.mark.req("P2", "P3")
def test_the_same_manifest_runs_once_however_it_is_spelt(shell):
    (shell.directory / "job.yaml").write_text(ADD)
    first = shell.run("submit", "job.yaml")
    assert (first.code, first.out) == (0, "5\n"), first.err
    assert "already done" not in first.err

    again = shell.run("submit", "job.yaml")
    assert (again.code, again.out) == (0, "5\n")
    assert "✓ already done  example.add " in again.err

    args = ['{"args":[2,3],"kwargs":{}}']
    other = json.dumps({"timeout": "PT1H", "args": args, "command": ["@example.add"]}, indent=1)
    as_json = shell.run("submit", "-", "--json", typed=other).json
    assert as_json["result"] == 5
    assert not as_json["is_new"]
    assert ops_of(shell, as_json["job"]) == ["job.schedule", "job.claim", "job.complete"]


@pytest.mark.nats
def test_again_runs_it_again(shell):
    (shell.directory / "again.yaml").write_text(ADD.replace("3600", "60"))
    first = shell.run("submit", "again.yaml", "--json").json
    second = shell.run("submit", "again.yaml", "--again", "--json").json
    assert first["is_new"]
    assert second["is_new"]
    assert first["job"] != second["job"]
    assert second["result"] == 5


@pytest.mark.nats
def test_what_failed_says_so_and_offers_to_run_it_again(shell):
    (shell.directory / "fail.yaml").write_text(FAIL)
    words = ("submit", "fail.yaml", "--attempts", "1")
    first = shell.run(*words, "--json")
    assert first.code == 1
    assert first.json["is_new"]
    assert "already ran" not in first.json["error"]["message"]

    second = shell.run(*words)
    assert second.code == 1
    assert second.out == ""
    told = " ".join(second.err.split())
    assert "this job already ran and is not run again" in told
    assert "RuntimeError: no luck" in told
    assert "try: antiphon submit fail.yaml --again, which runs it as a new job" in told

    third = shell.run(*words, "--json")
    assert third.code == 1
    assert not third.json["is_new"]
    assert "--again" in third.json["error"]["hint"]


@pytest.mark.nats
@pytest.mark.req("P4")
def test_a_command_needs_its_kind_and_one_kind_does_not_answer_for_another(shell):
    (shell.directory / "command.yaml").write_text(COMMAND)
    words = ("submit", "command.yaml", "--detach", "--kind")
    build = shell.run(*words, "build.docs", "--alias")
    assert build.code == 0, build.err
    alias = re.search("^alias ([0-9A-Z]{26})$", build.err, re.MULTILINE)[1]
    job = build.out.strip()
    for typed in (alias, alias.lower()):
        assert shell.run("show", typed, "--json").json["job"] == job
    unknown = shell.run("show", alias[:-1] + ("0" if alias[-1] != "0" else "1"))
    assert unknown.code != 0
    assert "or that alias" in unknown.err

    known = shell.run(*words, "build.docs", "--alias")
    assert known.out.strip() == job
    assert "already submitted, and pending" in known.err
    assert "alias" not in known.err, "the first call stands, and it had another"

    junk = shell.run(*words, "junk", "--json").json
    assert (junk["job"], junk["kind"], junk["is_new"]) == (job, "junk", True)


MISTAKES = [
    ("command: [echo]\ntimeot: 30\n", "line 2, column 1: there is no field 'timeot'", "'timeout'?"),
    ("command: [echo]\ntimeout: 30 seconds\n", "line 2, column 10: '30 seconds'", "timeout: 30,"),
    ("command: echo hello\ntimeout: 30\n", "line 1, column 10", 'command: ["echo", "hello"]'),
    ("command:\n\t- echo\n", "line 2, column 1: this line is indented with a tab", "two spaces"),
    ("command: [echo, 1]\ntimeout: 30\n", "line 1, column 17", 'put it in quotes: "1"'),
    ("command: [@example.add]\ntimeout: 30\n", "line 1, column 11", "put it in quotes: '@"),
    ("command: [echo]\n", "there is no 'timeout'", "timeout: 30"),
    ("command: [echo]\nkind: build\ntimeout: 30\n", "there is no field 'kind'", "--kind"),
    ("command: ['@example.add']\nargs: ['2', '3']\ntimeout: 30\n", "one JSON text", "[2,3]"),
]


@pytest.mark.parametrize("text, sentence, hint", MISTAKES)
def test_a_beginners_mistake_is_explained_before_a_mesh_is_needed(typed, text, sentence, hint):
    Path("job.yaml").write_text(text)
    answer = typed("submit", "job.yaml")
    assert answer.code == 5
    assert answer.out == ""
    assert answer.err.startswith("✗ job.yaml" if "line" in sentence else "✗ ")
    assert sentence in answer.err
    assert hint in answer.err.partition("try: ")[2]


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("command.yaml", 2, "antiphon submit command.yaml --kind build"),
        ("add.yaml --kind build", 2, "leave out --kind"),
        ("add.yaml 2 3", 2, "ARGS cannot be combined with a manifest"),
        ("add.yaml --kw a=2", 2, "--kw cannot be combined with a manifest"),
        ("add.yaml --attempt-timeout 5", 2, "--attempt-timeout cannot be combined with a manifest"),
        ("add.yaml --once", 2, "--once cannot be combined with a manifest"),
        ("example.add --again", 2, "--again is for manifests"),
        ("example.add --kind build", 2, "--kind is for manifests"),
        ("example.add --alias", 2, "--alias is for manifests"),
        ("./job", 2, "neither a kind nor a manifest"),
        ("missing.yaml --kind build", 3, "there is no file missing.yaml"),
        ("add.yaml", 3, "antiphon dev"),
    ],
)
def test_a_mixture_is_explained(typed, words, code, said):
    Path("command.yaml").write_text(COMMAND)
    Path("add.yaml").write_text(ADD)
    answer = typed("submit", *words.split())
    assert answer.code == code
    assert said in answer.err


def test_a_mistake_in_a_manifest_for_programs(tmp_path):
    answer = Shell(tmp_path).run("submit", "-", "--json", "--kind", "build", typed="command: a\n")
    assert answer.code == 5
    told = answer.json["error"]
    assert told["kind"] == "Malformed"
    assert told["reason"] == "manifest"
    assert told["message"].startswith("line 1, column 1: ")
    assert answer.err == ""
