"""`antiphon recover`, typed: what is shown, in which order, and what is left to look at."""

import json

import pytest

from antiphon.interfaces.cli.screen.recovery_key import recovery_text
from antiphon.runtime.identity import key_files
from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats

THIEF = key_files.SeedKeyring(bytes([9]) * 32).did


@pytest.mark.slow
def test_a_recovery_shows_the_new_key_first_and_what_the_old_one_left_behind(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        written = recovery_text(key_files.load_seed(shell.home / "keys" / "recovery.key"))
        for line in (f"coordinator {THIEF}", f"route render.video {THIEF}", "rules attempts=7"):
            assert shell.run(*line.split()).code == 0
        answer = shell.run("recover", typed=f"{written}\n")
        assert answer.code == 0, answer
        lines = [line.strip() for line in answer.out.splitlines()]
        (key,) = (line for line in lines if line.count("-") == 12)
        (done,) = (line for line in lines if "owns the mesh now" in line)
        assert lines.index(key) < lines.index(done)
        assert f"coordinator  {THIEF[-8:]} until now (set by" in answer.out
        assert f"only {THIEF[-8:]} may claim render.video (set by" in answer.out
        assert "attempts is 7, was 3 at first (set by" in answer.out
        again = shell.run("recover", "--json", typed=f"{written}\n")
        assert "not the recovery key" in again.out
        first, last = map(
            json.loads, shell.run("recover", "--json", typed=f"{key}\n").out.splitlines()
        )
        assert first == {"event": "recovery_key", "recovery": last["recovery"]}
        assert last["event"] == "recovered"
        assert [one["name"] for one in last["routes"]] == ["render.video"]
        assert not list((shell.home / "keys").glob("*-next.key"))
