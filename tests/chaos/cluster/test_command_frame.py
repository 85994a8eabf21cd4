"""The frame of the chaos commands: whatever ends one, it leaves nothing behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.__main__ import COMMANDS, FOLDERS
from chaos.cluster.child_process import ChildProcess
from chaos.cluster.command_frame import ENDED, parser_for, report, run_to_end, timed
from tests.patience import NEVER_S, PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]


def started_by(pid: int) -> dict[int, str]:
    """The processes below one, by what they are called."""
    found: dict[int, str] = {}
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, children):
            found[child] = Path(f"/proc/{child}/comm").read_text().strip()
            found |= started_by(child)
    except FileNotFoundError:
        pass
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def until(holds) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "nothing came of it"
        time.sleep(0.02)


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_command_that_is_ended_takes_its_server_its_processes_and_its_files_with_it(
    tmp_path, number
):
    command = subprocess.Popen(
        [sys.executable, "-m", "chaos", "documents", "--writes", "1000000"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: list(tmp_path.glob("antiphon-chaos-*/agent-*.journal")))
        below = started_by(command.pid)
        assert "nats-server" in below.values()
        command.send_signal(number)
        _, said = command.communicate(timeout=PATIENCE_S)
    finally:
        command.kill()
        command.wait()
    if number is signal.SIGTERM:
        assert command.returncode == ENDED
        assert "ended by SIGTERM" in said
    until(lambda: all(is_gone(pid) for pid in below))
    assert list(tmp_path.glob("antiphon-chaos-*")) == []


def test_what_a_command_was_doing_is_cancelled_and_cleaned_up():
    cleaned = []

    async def work():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(NEVER_S)
        finally:
            await asyncio.sleep(0)  # a server is stopped so
            cleaned.append(True)

    with pytest.raises(SystemExit) as ended:
        run_to_end(work())
    assert (ended.value.code, cleaned) == (ENDED, [True])
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the next one is nobody's"


def test_a_result_and_an_error_come_through():
    async def good():
        return 7

    async def bad():
        raise LookupError("what it was about")

    assert run_to_end(good()) == 7
    with pytest.raises(LookupError):
        run_to_end(bad())


async def test_a_run_has_a_directory_of_its_own_and_says_how_long_it_took(capsys):
    async def trial(directory):
        (directory / "file").write_text("x")
        return {"where": str(directory)}

    told = await timed(trial)
    assert not Path(told["where"]).exists()
    assert told["seconds"] >= 0
    assert report(told, holds=False) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == told
    assert report(told, holds=True) == 0


def test_options_that_all_have():
    args = parser_for("x", "less").parse_args(["--quick", "--seed", "3"])
    assert (args.quick, args.seed) == (True, 3)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_runs_in_the_frame(name):
    text = (ROOT / "chaos" / FOLDERS.get(name, name) / "command.py").read_text()
    assert "run_to_end(" in text
    assert "parser_for(" in text
    assert "asyncio.run(" not in text
    assert "TemporaryDirectory" not in text


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.processes
async def test_a_child_is_killed_while_it_stands_still_and_started_again():
    child = ChildProcess(_sleep, NEVER_S)
    assert child.running is None
    child.start()
    standing = asyncio.ensure_future(child.stand_still(NEVER_S))
    await asyncio.sleep(0)
    child.kill()
    assert child.running is None
    assert child.exitcode == -signal.SIGKILL
    standing.cancel()
    await asyncio.wait([standing])
    child.start()
    assert child.running is not None
    child.kill()
    child.kill()
