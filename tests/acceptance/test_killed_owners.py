"""Whatever starts servers and workers is killed in the middle: no process of it is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, until
from tests.acceptance.warm_cli import ANTIPHON
from tests.left_processes import VARIABLE, left_of, run_within_this

pytestmark = [
    pytest.mark.nats,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import subprocess, time
import pytest
from tests.acceptance.shell import Shell
from tests.local_server import shared_server

@pytest.mark.parametrize("number", range(2))
def test_that_never_ends(tmp_path, number):
    shared_server()
    subprocess.Popen(["sleep", "3600"], start_new_session=True)
    with Shell(tmp_path).start("dev"):
        time.sleep(3600)
"""
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest", "-c", "/dev/null")
STARTERS = {
    "dev": ((str(ANTIPHON), "dev", "--json"), {"nats-server": 1}),
    "up": ((str(ANTIPHON), "init", "--json"), {"nats-server": 1}),
    "demo": ((str(ANTIPHON), "demo", "--json"), {"nats-server": 1, "worker example": 3}),
    "bench": (
        (sys.executable, "-m", "bench", "many", "--jobs", "1000000"),
        {"nats-server": 1, "bench.many.worker": 2},
    ),
    "chaos": (
        (sys.executable, "-m", "chaos", "documents", "--writes", "1000000"),
        {"nats-server": 1, "forkserver": 1},
    ),
    "tests": (
        (sys.executable, *PYTEST, "-n", "2", "test_it.py"),
        {"shared": 4},
    ),
}


@pytest.mark.parametrize("name", STARTERS)
def test_a_starter_is_killed_and_nothing_of_it_is_left(name, tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    words, expected = STARTERS[name]
    run = run_within_this()
    starter = subprocess.Popen(
        words,
        cwd=tmp_path,
        env={**os.environ, VARIABLE: run, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with starter:
        for text, times in expected.items():
            until(lambda: sum(text in one.line for one in left_of(run)) >= times)
        b = time.monotonic()
        before = left_of(run)
        starter.kill()
    until(lambda: left_of(run) == [])
    print(name, len(before), time.monotonic() - b, *before, sep="\n")
