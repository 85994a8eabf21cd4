"""Whatever starts servers and workers is killed in the middle: no process of it is left."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, until
from tests.left_processes import VARIABLE, left_of, run_within_this
from tests.patience import NEVER_S

pytestmark = [
    pytest.mark.nats,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
TEST_FILE = f"""
import subprocess
import pytest
from tests.local_server import shared_server

@pytest.mark.nats
def test_that_never_ends():
    shared_server()
    subprocess.run(["sleep", "{NEVER_S}"])
"""
PYTEST = ("-m", "pytest", "-c", "/dev/null", "-p", "tests.conftest", "--assert", "plain")
TESTS = (
    *PYTEST,
    "-p",
    "no:schemathesis",
    "-p",
    "no:cacheprovider",
    "--processes",
    "2",
    "test_it.py",
)
WARM = f"""
import os, subprocess, sys, time
from pathlib import Path
from tests.acceptance.warm_cli import WarmProcess
silent = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
held = WarmProcess(["dev"], cwd=Path(sys.argv[1]), env=os.environ, **silent)
time.sleep({NEVER_S})
"""


@pytest.mark.parametrize(
    "command, expected",
    [("dev", "nats-server"), ("init", "nats-server"), ("demo", "antiphon worker example")],
)
def test_a_command_that_hosts_is_killed_and_nothing_of_it_is_left(command, expected, tmp_path):
    run = run_within_this()
    shell = Shell(tmp_path, **{VARIABLE: run, "TMPDIR": str(tmp_path)})
    with Path(os.devnull).open("w") as nowhere:
        hosting = shell.typed_into(nowhere.fileno(), command, "--json")
    kill_in_the_middle(hosting.kill, run, {expected: 1})
    hosting.wait()
    assert hosting.stderr
    hosting.stderr.close()


@pytest.mark.parametrize(
    "words, expected",
    [
        (("-m", "bench", "latency", "--quick"), {"nats-server": 1, "bench.meshes": 1}),
        (("-m", "chaos", "documents", "--writes", "1000000"), {"nats-server": 1, "forkserver": 3}),
        (TESTS, {"nats-server": 1, "sleep": 1}),
        (("-c", WARM, "."), {"nats-server": 1}),
    ],
    ids=["bench", "chaos", "pytest", "warm"],
)
def test_a_program_of_ours_is_killed_and_nothing_of_it_is_left(words, expected, tmp_path):
    (tmp_path / "test_it.py").write_text(TEST_FILE)
    run = run_within_this()
    program = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, VARIABLE: run, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with program:
        try:
            kill_in_the_middle(program.kill, run, expected)
        finally:
            program.kill()


def kill_in_the_middle(kill: Callable[[], None], run: str, expected: dict[str, int]) -> None:
    """Kill a starter when so many processes with these words are there; wait for none at all."""

    def are_there() -> bool:
        lines = [process.line for process in left_of(run)]
        return all(
            sum(words in line for line in lines) >= times for words, times in expected.items()
        )

    until(are_there)
    kill()
    until(lambda: left_of(run) == [])
