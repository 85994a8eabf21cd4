"""Locks, as typed: `antiphon lock take`, `ls` and `break`."""

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = [pytest.mark.nats, pytest.mark.req("S4")]


def test_a_lock_is_held_while_a_command_runs_listed_broken_and_free_again(tmp_path):
    shell = Shell(tmp_path, is_warm=False)
    with shell.dev():
        take = ["lock", "take", "deploy", "--scope", "prod.web"]
        with shell.start(*take, "--", "sh", "-c", "echo $LOCK_FENCE > fence; exec sleep 600"):
            [held] = until(lambda: shell.run("lock", "ls", "--json").json["locks"])
            assert (held["key"], held["scope"], held["agent"]) == ("deploy", "prod.web", "main")
            assert held["acquired"] < held["expires"]
            until(lambda: (tmp_path / "fence").exists() and (tmp_path / "fence").read_text())
            assert (tmp_path / "fence").read_text().strip() == held["fence"]
            late = shell.run(*take, "--wait", "0", "--", "true")
            assert late.code != 0
            assert "holds it until" in late.err
            broken = shell.run("lock", "break", "deploy", "--scope", "prod.web")
            assert "✓ nobody holds deploy in prod.web any more" in broken.out
            done = shell.run(*take, "--json", "--", "false")
            assert done.code == 1
            assert done.json["fence"] > held["fence"]
        assert "no locks are held" in shell.run("lock", "ls").out
        assert "nothing to do while the lock is held" in shell.run("lock", "take", "x").err
