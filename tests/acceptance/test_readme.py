"""The README's first minute, typed as it stands there."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell
from tests.runtime.sandboxed import require_sandbox

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.nats


def typed_in(section: str) -> list[list[str]]:
    """The antiphon commands that stand in a section, as a shell splits them."""
    text = re.search(rf"^## {section}$(.*?)^## ", README, re.DOTALL | re.MULTILINE)[1]
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [shlex.split(line)[1:] for line in lines if line.startswith("antiphon ")]


def test_the_first_minute_works_as_typed(tmp_path):
    first, *commands = typed_in("Ninety seconds")
    assert first == ["dev"]
    shell = Shell(tmp_path)
    job = ""
    with shell.dev():
        for words in commands:
            # The README's job is another one than ours.
            given = [job if re.fullmatch("[0-9a-f]{8}", word) else word for word in words]
            answer = shell.run(*given)
            assert answer.code == 0, (given, answer)
            if given[0] == "submit":
                assert answer.out == "5\n"
                job = re.search("example.add ([0-9a-f]{8})", answer.err)[1]
            if given[0] == "show":
                assert "completed it, succeeded" in answer.out


def test_a_command_is_run_and_run_again_as_typed(tmp_path):
    require_sandbox()
    run, *others = typed_in("Run a command")
    shell = Shell(tmp_path)
    with shell.dev():
        answer = shell.run(*run)
        assert (answer.code, answer.out) == (0, ""), answer
        job = shell.run("jobs", "--json").json["jobs"][0]["job"][:8]
        for words in others:
            given = [job if re.fullmatch("[0-9a-f]{8}", word) else word for word in words]
            answer = shell.run(*given)
            assert answer.code == 0, (given, answer)
            if given[0] == "get":
                assert answer.out == "hello\n"
    assert "the same bytes as the worker's: stdout, stderr, out.txt" in answer.out


def test_a_bundle_is_checked_elsewhere_as_typed(tmp_path):
    export, verify = typed_in("Check it elsewhere")
    here, there = Shell(tmp_path / "here"), Shell(tmp_path / "there")
    for shell in (here, there):
        shell.directory.mkdir()
    with here.dev():
        job = here.run("submit", "example.add", "2", "3").err
        given = re.search("example.add ([0-9a-f]{8})", job)[1]
        words = [given if re.fullmatch("[0-9a-f]{8}", word) else word for word in export]
        answer = here.run(*words)
        assert answer.code == 0, answer.err
        shutil.copy(here.directory / "bundle.json", there.directory / "bundle.json")
    checked = there.run(*verify)
    assert checked.code == 0, checked.err
    assert "every signature holds" in checked.out
    assert "told the truth" in checked.out


def test_two_machines_work_as_typed(tmp_path):
    init, invite, join = typed_in("Two machines")
    here, there = Shell(tmp_path / "farm"), Shell(tmp_path / "box")
    for shell in (here, there):
        shell.directory.mkdir()
    with here.start(*init) as host:
        host.line("Recovery key: write it down now")
        host.line("up, 0 jobs on it")
        ticket = here.run(*invite).out.strip()
        given = [ticket if word == "TICKET" else word for word in join]
        with there.start(*given) as worker:
            worker.line("joined mesh 'farm'")
            worker.line("may      claim example.*; until")
            worker.line("answers example.add")
            assert here.run("submit", "example.add", "2", "3").out == "5\n"
            assert worker.stop() == 0
        assert host.stop() == 0


def test_the_readmes_program_is_the_quickstart_and_prints_its_result(tmp_path):
    program = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    quickstart = (ROOT / "examples" / "quickstart.py").read_text()
    assert quickstart.endswith(program)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "5\n"


def test_the_readmes_chaos_is_refused_with_the_fence():
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "stale"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    shown = json.loads(re.search(r"^\{.*\}$", README, re.MULTILINE)[0])
    assert set(told) == set(shown)
    assert (told["stale_verdict"], told["accepted"], told["killed_accepted"]) == ("fence", 1, 1)
