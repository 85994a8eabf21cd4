"""`python -m bench pages`, small: pages are opened in a browser, and the report has its keys."""

import json

import pytest

from bench.pages import command
from bench.pages.chromium import program

pytestmark = [
    pytest.mark.nats,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.skipif(program() is None, reason="chromium is not installed"),
]


def test_pages_are_opened_and_the_report_says_how_large_and_how_soon(capsys, monkeypatch):
    async def none():
        return None

    monkeypatch.setattr(command, "axe", none)  # it would be fetched
    monkeypatch.setattr(command, "QUICK", 200)
    monkeypatch.setattr(command, "FIRST_PAINT_MS_MOST", 1e9)  # a busy machine draws late
    assert command.main(["--quick"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["jobs"], report["pages"]) == (200, len(command.QUICK_PATHS))
    assert 0 < report["page_kb"] <= command.PAGE_KB_MOST
    assert report["console_errors"] == report["axe_violations"] == 0
    assert report["first_paint_ms"] > 0
