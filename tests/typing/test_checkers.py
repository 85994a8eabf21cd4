"""What mypy and pyright, both strict, say of a program that uses the package as it is installed."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import antiphon
from tests.typing import right_uses

pytestmark = [pytest.mark.processes, pytest.mark.slow]

HERE = Path(__file__).parent
RIGHT, WRONG = HERE / "right_uses.py", HERE / "wrong_uses.py"
BIN = Path(sys.executable).parent
MYPY_ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<words>.*)$", re.MULTILINE)
EXPECTED = re.compile(r"^ *# E: (?P<mypy>.+) \| (?P<pyright>.+)$")


def run(tmp_path, *words):
    # Elsewhere, so that no configuration of ours counts: what a user of the package has.
    done = subprocess.run(
        [BIN / words[0], *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.stdout


def mypy(tmp_path):
    """Errors by file and line."""
    out = run(tmp_path, "mypy", "--strict", "--config-file=", "--no-error-summary", RIGHT, WRONG)
    errors = defaultdict(list)
    for found in MYPY_ERROR.finditer(out):
        errors[Path(found["file"]).name, int(found["line"])].append(found["words"])
    return errors


def pyright(tmp_path):
    """The same. It is basedpyright in pyright's strict mode: its wheel needs no download to run."""
    config = {"include": [str(RIGHT), str(WRONG)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    out = run(tmp_path, "basedpyright", "--outputjson", "--pythonpath", sys.executable)
    report = json.loads(out)
    assert report["summary"]["filesAnalyzed"] == 2
    errors = defaultdict(list)
    for one in report["generalDiagnostics"]:
        line = one["range"]["start"]["line"] + 1
        errors[Path(one["file"]).name, line].append(one["message"])
    return errors


def expected(checker):
    """What a checker should say, by the line after each `# E:`."""
    found = {}
    for number, line in enumerate(WRONG.read_text().splitlines(), start=1):
        if match := EXPECTED.match(line):
            found[WRONG.name, number + 1] = match[checker.__name__]
    return found


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_uses_are_accepted_and_each_wrong_use_has_its_message(checker, tmp_path):
    said, wanted = checker(tmp_path), expected(checker)
    assert len(wanted) > 30
    unexpected = {where: words for where, words in said.items() if where not in wanted}
    assert unexpected == {}
    missed = {
        where: (words, said.get(where))
        for where, words in wanted.items()
        if not any(words in one for one in said.get(where, []))
    }
    assert missed == {}


async def test_the_right_uses_do_what_the_checkers_think():
    await right_uses.main()


def test_the_package_says_that_it_is_typed():
    assert Path(antiphon.__file__).with_name("py.typed").exists()
