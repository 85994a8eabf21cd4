"""The README's first minute, typed as it stands there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.nats


def typed_commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_every_antiphon_command_of_the_readme_works_as_typed(tmp_path):
    commands = [line.split() for line in typed_commands() if line.startswith("antiphon ")]
    assert commands[0] == ["antiphon", "dev"]
    shell = Shell(tmp_path)
    job = ""
    with shell.dev():
        for _, *words in commands[1:]:
            # The README's job is another one than ours.
            given = [job if re.fullmatch("[0-9a-f]{8}", word) else word for word in words]
            answer = shell.run(*given)
            assert answer.code == 0, (given, answer)
            if given[0] == "submit":
                assert answer.out == "5\n"
                job = re.search("example.add ([0-9a-f]{8})", answer.err)[1]
            if given[0] == "show":
                assert "completed it, succeeded" in answer.out


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
