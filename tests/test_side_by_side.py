"""Files of tests run side by side: each in one process, and a process that dies is told of."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.side_by_side import grouped

pytestmark = pytest.mark.processes
ROOT = Path(__file__).resolve().parent.parent
OPTIONS = (
    "-q",
    "-c",
    "/dev/null",
    "-p",
    "tests.conftest",
    "-p",
    "no:cacheprovider",
    "--processes=2",
)
NOTED = """
import os, time
from pathlib import Path
def note():
    with Path("pids").open("a") as pids:
        print(Path(__file__).stem, os.getpid(), file=pids)
    return {line.split()[1] for line in Path("pids").read_text().splitlines()}
def test_with_another_beside_it():
    while len(note()) < 2: time.sleep(0.1)
def test_behind_it(tmp_path): note()
"""
DYING = """
import os
def test_before(): pass
def test_that_dies(): os._exit(7)
def test_after(): print("printed by it"); assert 0
"""


def run(folder: Path, **files: str) -> str:
    """What pytest says of these files."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *OPTIONS,
            "--processes=2",
            "--rootdir",
            str(folder),
            str(folder),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_file_stays_in_one_process_and_files_are_in_several(tmp_path):
    assert "8 passed" in run(tmp_path, a=NOTED, b=NOTED, c=NOTED, d=NOTED)
    seen = {tuple(line.split()) for line in (tmp_path / "pids").read_text().splitlines()}
    assert sorted(file for file, _ in seen) == ["test_a", "test_b", "test_c", "test_d"]
    assert len({pid for _, pid in seen}) == 2, "the first two would wait for each other in one"


def test_a_process_that_dies_fails_its_test_and_another_goes_on_with_the_file(tmp_path):
    told = run(tmp_path, dying=DYING, well="def test_it(): pass")
    assert "2 failed, 2 passed" in told
    assert "the process of this test ended (exit code 7) while it ran" in told
    assert "printed by it" in told


def test_files_that_belong_together_are_one_group():
    files = ["a", "b", "a", "c", "d"]
    assert list(grouped(files, frozenset({"b", "d"}))) == [[0, 2], [1, 4], [3]]
