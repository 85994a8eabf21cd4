"""`antiphon demo`, as somebody types it who has just installed it."""

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats


def test_it_shows_what_the_first_page_promises_and_leaves_nothing_behind(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    answer = Shell(tmp_path).run("demo", "--json")
    assert answer.code == 0, answer
    shown = answer.json
    assert shown["machines"] == 3
    assert 0 < shown["first_verified_s"] < shown["seconds"]
    assert shown["takeover_s"] > 0
    assert shown["late_verdict"] == "fence"
    assert shown["revoked"]
    assert "is not what was sealed" in shown["tampered"]
    assert list(scratch.iterdir()) == []
