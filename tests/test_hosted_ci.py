""".github: what workflows may do, and that they only run programs of this repository."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
WORD_OF_SHELL = re.compile(r"[|;&`]|\$\(|\n|\b(if|for|while)\b")
GRANTED = {"contents": "read"}
KEEPS_NOTHING = {"persist-credentials": False}


def faults(text):
    """What is wrong with a workflow."""
    workflow = yaml.safe_load(text)
    if "secrets." in text or "pull_request_target" in text:
        yield "uses a secret, or runs a stranger's change with rights"
    if workflow.get("permissions") != {}:
        yield "does not begin with no permissions"
    if "group" not in workflow.get("concurrency", {}):
        yield "has no concurrency group"
    for line in text.splitlines():
        if "uses:" in line and not PINNED.search(line):
            yield f"not pinned by a commit: {line.strip()}"
    for name, job in workflow["jobs"].items():
        if job.get("permissions") != GRANTED:
            yield f"{name}: may do more than read the code"
        if not isinstance(job.get("timeout-minutes"), int):
            yield f"{name}: has no limit of time"
        for step in job["steps"]:
            if "/checkout@" in step.get("uses", "") and step.get("with", {}) != KEEPS_NOTHING:
                yield f"{name}: leaves the token in the checkout"
            yield from (f"{name}: {fault}" for fault in faults_of_command(step.get("run")))


def faults_of_command(command):
    """What is wrong with a step's command: it has to be one program of ours, without logic."""
    if command is None:
        return
    words = shlex.split(command)
    ours = [word for word in words if (ROOT / word).is_file()]
    if WORD_OF_SHELL.search(command) or "${{" in command:
        yield f"has logic of its own: {command}"
    if not ours and words[:2] != [".venv/bin/python", "-m"]:
        yield f"runs no program of the repository: {command}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_the_code_and_runs_our_programs(path):
    assert list(faults(path.read_text())) == []


def test_every_supported_python_is_checked():
    check = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    checked = check["jobs"]["linux"]["strategy"]["matrix"]["python"]
    project = (ROOT / "pyproject.toml").read_text()
    declared = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert set(declared) <= set(checked)


GOOD = f"""\
permissions: {{}}
concurrency: {{group: a}}
jobs:
  one:
    timeout-minutes: 5
    permissions: {{contents: read}}
    steps:
      - uses: actions/checkout@{"0" * 40} # v1.0.0
        with:
          persist-credentials: false
      - run: scripts/setup
"""


@pytest.mark.parametrize(
    "old, new",
    [
        ("permissions: {}\n", ""),
        ("contents: read", "contents: write"),
        ("0000 # v1.0.0", " # v1.0.0"),
        ("timeout-minutes: 5", "name: x"),
        ("{group: a}", "{}"),
        ("persist-credentials: false", "persist-credentials: true"),
        ("scripts/setup", "scripts/setup || true"),
        ("scripts/setup", "pytest"),
        ("scripts/setup", "scripts/setup ${{ github.head_ref }}"),
        ("scripts/setup", "scripts/setup ${{ secrets.KEY }}"),
    ],
)
def test_a_workflow_that_breaks_a_rule_is_seen(old, new):
    assert list(faults(GOOD)) == []
    assert old in GOOD
    assert list(faults(GOOD.replace(old, new))) != []
