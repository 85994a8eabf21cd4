"""The examples run as they stand."""

import ast
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_quickstart_prints_a_result_in_at_most_fifteen_lines():
    path = EXAMPLES / "quickstart.py"
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout == "5\n"
    assert done.stderr == ""
    body = ast.parse(path.read_text()).body[1:]  # without the docstring
    text = path.read_text().splitlines()
    lines = [line for line in text[body[0].lineno - 1 :] if line.strip()]
    assert len(lines) <= 15
