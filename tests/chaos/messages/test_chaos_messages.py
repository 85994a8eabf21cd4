"""`chaos messages`, small: real processes are killed, and every message arrives once, in order."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.messages.command import Run, is_right, trial

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.nats
SMALL = Run(
    messages=180,
    agents=3,
    kill_every_s=3600.0,
    kill_at=(0.1, 0.4, 0.7),
    most_kills=3,
    probes=0,
    rate=60.0,
    seed=1,
    lease_s=4.0,
)
"""One kill each of agents, gate and server, in the midst of it however slow the machine is."""


@pytest.mark.long
@pytest.mark.req("S9")
async def test_agents_gate_and_server_are_killed_and_no_message_is_lost_doubled_or_reordered(
    tmp_path,
):
    told = await trial(tmp_path, SMALL)
    assert told["kills_of"] == {"agents": 1, "gate": 1, "server": 1}
    assert (told["sent"], told["lost"], told["unconfirmed"]) == (180, 0, 0)
    assert (told["delivered_twice"], told["reordered"]) == (0, 0)
    assert is_right(SMALL, told)


@pytest.mark.parametrize("broken", ["lost", "delivered_twice", "reordered", "unconfirmed"])
def test_a_broken_promise_fails_the_command(broken):
    told = dict.fromkeys(("lost", "delivered_twice", "reordered", "unconfirmed"), 0)
    assert is_right(SMALL, {**told, "sent": 180})
    assert not is_right(SMALL, {**told, "sent": 180, broken: 1})
    assert not is_right(SMALL, {**told, "sent": 179}), "and so does a message that was never sent"


@pytest.mark.soak
def test_the_quick_form_with_a_flood():
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "messages", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=dict(os.environ),
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["lost"], told["delivered_twice"], told["reordered"]) == (0, 0, 0)
    assert told["flooder_told"] > 0
    assert done.returncode == 0, done.stderr
