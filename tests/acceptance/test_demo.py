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
    assert 0 < shown["seconds_to_first_verified"] < shown["seconds_total"]
    assert shown["takeover"] > 0
    assert shown["stale_refused"] == "fence"
    assert shown["revoked_refused"]
    assert "is not what was sealed" in shown["tamper_refused"]
    assert list(scratch.iterdir()) == []
