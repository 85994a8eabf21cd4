"""Locks, as typed: `antiphon lock take`, `ls` and `break`."""

import json

import pytest

from tests.acceptance.shell import Shell
from tests.acceptance.warm_cli import ANTIPHON

pytestmark = [pytest.mark.nats, pytest.mark.req("S4")]
TAKE = ["lock", "take", "deploy", "--scope", "prod.web"]
WHILE_HELD = f"""
echo $LOCK_FENCE > fence
{ANTIPHON} lock ls --json > held
{ANTIPHON} lock take deploy --scope prod.web --wait 0 -- true 2> late
{ANTIPHON} lock break deploy --scope prod.web > broken
exec sleep 60
"""


def test_a_lock_is_held_while_a_command_runs_listed_broken_and_free_again(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        lost = shell.run(*TAKE, "--", "sh", "-c", WHILE_HELD)
        assert lost.code != 0
        assert "was lost: somebody else ended the hold" in lost.err
        [held] = json.loads((tmp_path / "held").read_text())["locks"]
        assert (held["key"], held["scope"], held["agent"]) == ("deploy", "prod.web", "main")
        assert held["acquired"] < held["expires"]
        assert held["fence"] == (tmp_path / "fence").read_text().strip()
        assert "holds it until" in (tmp_path / "late").read_text()
        assert "✓ nobody holds deploy in prod.web any more" in (tmp_path / "broken").read_text()
        done = shell.run(*TAKE, "--json", "--", "false")
        assert done.code == 1
        assert done.json["fence"] > held["fence"]
        assert "no locks are held" in shell.run("lock", "ls").out
        assert "no command to run while the lock is held" in shell.run("lock", "take", "x").err
