"""`chaos partition --how namespaces`, small; and that nothing is left of it when it is killed."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.network.namespace_skip import leave_out
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.long, pytest.mark.nats]

COMMAND = [sys.executable, "-m", "chaos", "partition", "--how", "namespaces"]


def partition(*options):
    ended = subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.stdout, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    if ended.returncode == 2:
        leave_out(said["skipped"])
    return ended, said


def test_sites_on_networks_that_fail_lose_nothing():
    ended, said = partition("--faults", "4", "--jobs", "40", "--workers", "3", "--seed", "4")
    assert ended.returncode == 0, (said, ended.stderr)
    assert (said["jobs"], said["succeeded"]) == (40, 40)
    assert (said["lost"], said["accepted_twice"]) == (0, 0)
    assert said["faults"] >= 4
    assert said["packets_lost"] > 0


def test_nothing_is_left_of_a_run_that_was_killed(tmp_path):
    with subprocess.Popen(
        [*COMMAND, "--faults", "100", "--workers", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as running:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while count_workers(tmp_path) < 3 and running.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if running.poll() == 2:
                leave_out(json.loads(running.stdout.read())["skipped"])
            assert processes_with(tmp_path)
        finally:
            running.kill()
    deadline = time.monotonic() + PATIENCE_S
    while processes_with(tmp_path):
        assert time.monotonic() < deadline, processes_with(tmp_path)
        time.sleep(0.05)


def count_workers(directory):
    return len(list(directory.glob("antiphon-chaos-*/logs/worker-*.log")))


def processes_with(directory):
    """Processes that have a file below the directory open."""
    found = set()
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(handle.readlink()).startswith(str(directory)):
                found.add(int(handle.parts[2]))
    return found
