"""A process that is killed while it keeps items: whatever it promised is there, and whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.runtime.outbox.outbox_store import OutboxStore

ROOT = Path(__file__).resolve().parents[3]


pytestmark = [pytest.mark.processes, pytest.mark.req("P12")]


@pytest.mark.parametrize("promised", [1, 7])
def test_what_was_promised_before_a_kill_is_there(tmp_path, promised):
    words = [sys.executable, "-m", "tests.runtime.outbox.killed_keeper", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as keeper:
        try:
            seen = [keeper.stdout.readline().strip() for _ in range(promised)]
        finally:
            keeper.kill()
        seen += keeper.stdout.read().split()
    found = [one.id for one in OutboxStore(tmp_path).items()]
    assert found[: len(seen)] == seen, "all of them, in order"
    assert len(found) <= len(seen) + 1, "and at most the one that it was about to promise"
