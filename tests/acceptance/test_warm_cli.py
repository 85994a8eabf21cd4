"""A command that is forked warm is the command that a person starts."""

import signal
import sys

import pytest

from tests.acceptance import warm_cli
from tests.acceptance.shell import Shell, is_alive
from tests.acceptance.warm_cli import WarmProcess


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "--help"),
        ("--version",),
        ("frobnicate",),
        ("jobs",),
        ("jobs", "--json"),
        ("worker", "nosuch.py"),
    ],
    ids=" ".join,
)
def test_it_says_and_returns_the_same(tmp_path, words):
    warm, cold = Shell(tmp_path).run(*words), Shell(tmp_path, is_warm=False).run(*words)
    assert warm[:3] == cold[:3]


def test_a_module_sees_its_own_directory_environment_and_streams(tmp_path):
    """And nothing of the tests: it would find what a person's program does not find."""
    (tmp_path / "looks.py").write_text(
        "import os, sys\n"
        "print(os.getcwd(), os.environ['SEEN'], 'pytest' in sys.modules, sys.path[0])\n"
        "print(sys.stdin.read(), sys.argv, os.getpid() == os.getsid(0), sorted(os.environ))\n"
        "print(sorted(int(number) for number in os.listdir('/proc/self/fd'))[:3])\n"
        "print(sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering)\n"
        "print('told', file=sys.stderr)\n"
        "raise SystemExit(7)\n"
    )
    answers = [
        Shell(tmp_path, is_warm=is_warm, SEEN="yes").run("worker", "looks.py", typed="typed")
        for is_warm in (True, False)
    ]
    assert answers[0][:3] == answers[1][:3]
    assert "typed" in answers[0].out


def test_it_is_ended_by_signals(tmp_path):
    (tmp_path / "waits.py").write_text("import time\nprint('waits', flush=True)\ntime.sleep(600)\n")
    for number, code in ((signal.SIGKILL, -9), (signal.SIGUSR1, -10)):
        with Shell(tmp_path).start("worker", "waits.py") as running:
            assert isinstance(running.process, WarmProcess)
            running.line("waits")
            assert is_alive(running.pid)
            assert running.process.poll() is None
            assert running.stop(number) == code
            assert not is_alive(running.pid)


def test_what_python_reads_at_its_start_starts_it_cold(tmp_path):
    shell = Shell(tmp_path)
    assert warm_cli.can_start(shell.env)
    assert not warm_cli.can_start(shell.env | {"LC_ALL": "C"})
    assert not warm_cli.can_start(shell.env | {"PYTHONPATH": "somewhere"})
    with shell.start("--version", LC_ALL="C") as running:
        assert not isinstance(running.process, WarmProcess)
    other = Shell(tmp_path, program=sys.executable)
    assert other.run("-c", "print(5)").out == "5\n"
