"""Processes that end with their owner, also if it is killed, and otherwise are as any other."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antiphon.processes import procfs
from antiphon.processes.owned_process import OwnedPopen, start_owned
from tests.left_processes import VARIABLE, left_of, run_within_this
from tests.patience import NEVER_S, PATIENCE_S

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
OWNER = f"""
import os, subprocess, sys, threading, time
from antiphon.processes.owned_process import OwnedPopen
held = [os.dup(0) for _ in range(20)]  # numbers with two digits: not every shell takes them
def start():
    held.append(OwnedPopen(sys.argv[2:], grace_s=float(sys.argv[1])))
in_thread = threading.Thread(target=start)  # it ends before the owner
in_thread.start()
in_thread.join()
time.sleep({NEVER_S})
"""
WRITES_AT_SIGTERM = 'trap "echo ended; exit" TERM; echo ready; while :; do sleep 0.05; done'
IGNORES_SIGTERM = 'trap "" TERM; echo ready; while :; do sleep 0.05; done'
WITH_A_CHILD = f"sleep {NEVER_S} & echo ready; wait"


def until(holds) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "nothing came of it"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "grace_s, program, rest",
    [
        (NEVER_S, WRITES_AT_SIGTERM, "ended\n"),
        (0.3, IGNORES_SIGTERM, ""),
        (0, WITH_A_CHILD, ""),
    ],
    ids=["gently", "in the end", "as a group"],
)
def test_a_process_ends_when_its_owner_is_killed(grace_s, program, rest):
    run = run_within_this()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(grace_s), "/bin/sh", "-c", program],
        cwd=ROOT / "src",
        env={**os.environ, VARIABLE: run},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout
    with owner, owner.stdout:
        assert owner.stdout.readline() == "ready\n"
        owner.kill()
        assert owner.stdout.read() == rest, "it has an end: nobody holds it any more"
    until(lambda: left_of(run) == [])


def test_a_process_that_ended_leaves_nothing_that_waits_for_the_owner():
    run = run_within_this()
    with OwnedPopen(["/bin/sh", "-c", "exit 7"], env={VARIABLE: run}) as process:
        pass
    assert process.returncode == 7
    del process
    until(lambda: left_of(run) == [])


async def test_it_has_the_process_id_the_streams_and_the_signals_that_it_would_have():
    process = await start_owned("/bin/cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(b"word\n")
    assert process.stdout
    assert await process.stdout.readline() == b"word\n"
    status = procfs.status(process.pid)
    assert status["Name"] == "cat"
    assert int(status["SigIgn"], 16) & 1 << signal.SIGTERM - 1 == 0
    assert os.getpgid(process.pid) == process.pid
    process.stdin.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await process.stdout.read() == b""
        assert await process.wait() == 0
