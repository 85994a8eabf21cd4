"""The whole way, on a hosted mesh with a gate: in a process whose protocol has polls."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.core.protocol import PROTOCOL

ROOT = Path(__file__).parents[2]


def registered(*words) -> str:
    """What a program says whose protocol has polls."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.families.registered", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("mesh")


@pytest.fixture(scope="module")
def found(place):
    return json.loads(registered("tests.families.hosted", str(place)).splitlines()[-1])


pytestmark = pytest.mark.nats


def test_this_process_knows_no_polls():
    assert "poll.open" not in PROTOCOL.ops


def test_members_write_what_their_scope_admits_and_nothing_else(found):
    assert found["walls"] == {
        "vote on another kind": "server",
        "open without the right": "server",
        "close without the right": "command",
    }


def test_the_gate_relays_what_goes_through_it_and_the_rules_refuse_what_comes_too_late(found):
    assert found["verdicts"] == ["ok", "ok", "ok", "finished"]
    assert found["after the end"] == "finished"


def test_full_scoped_and_light_readers_agree(found):
    assert found["light readers agree"]
    assert found["full and scoped agree"]
    assert found["whole sees it"]
    assert not found["scoped sees the other kind"]


def test_it_is_found_told_and_proved(found):
    assert found["found"] == [["polls", "team.lunch", "pizza"]]
    assert found["facts"] == {"state": "closed", "ayes": 1}
    assert found["words"][:3] == ["asked 'Pizza?'", "voted yes", "closed the poll"]
    assert found["bundle"] == ["polls", 1, False]


def test_the_bundle_is_verified_on_the_command_line(found, place):
    assert found["bundle"]
    told = registered("antiphon", "verify", str(place / "poll.json"))
    assert "this bundle is valid: team.lunch pizza, of polls" in told
    assert "closed the poll" in told
