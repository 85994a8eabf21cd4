"""What a run leaves is told apart from other processes, listed without secrets, and ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import left_processes
from tests.left_processes import VARIABLE, left_of, run_within_this

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc"),
]

SLEEPS = (sys.executable, "-c", "input()", "--token=of-mine", "nats://u:of-mine@host")


def sleeper(run: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(SLEEPS, stdin=subprocess.PIPE, env={**os.environ, VARIABLE: run})


def test_what_is_left_of_a_run_is_listed_and_ended_and_a_failure():
    run = run_within_this()
    with sleeper(run) as left, sleeper(f"{run}/inner") as below, sleeper(f"{run}0") as other:
        checked = subprocess.run(
            [sys.executable, left_processes.__file__, "--after-owner", run],
            input="",
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 1
        assert checked.stderr.startswith("2 processes of this run were left")
        assert f"(process {left.pid}, " in checked.stderr
        assert f"(process {below.pid}, " in checked.stderr
        assert "input()" in checked.stderr
        assert "of-mine" not in checked.stderr
        assert left.wait() == below.wait() == -9
        assert other.poll() is None
    assert left_of(run) == []


def test_nothing_left_is_no_failure_and_a_word_of_the_owner_is_the_end():
    run = run_within_this()
    asked = [sys.executable, left_processes.__file__]
    assert subprocess.run([*asked, run], check=False).returncode == 0
    with sleeper(run) as left:
        told = subprocess.run([*asked, "--after-owner", run], input=b"ended\n", check=False)
        assert told.returncode == 0
        assert left.poll() is None
