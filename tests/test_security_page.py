"""SECURITY.md: its table of interfaces is compared with what answers requests."""

import re
from pathlib import Path

from antiphon.core.bus import subjects as bus
from tests.guard.test_everything_passes import TOKENLESS, all_routes, callers, node_routes

PAGE = Path(__file__).parents[1] / "SECURITY.md"


def interfaces() -> list[str]:
    """The first column of the table of what answers requests."""
    section = PAGE.read_text().partition("### Whatever answers requests")[2]
    rows = re.findall(r"^\| ([^|]+) \|", section.partition("\nEvery check")[0], re.MULTILINE)
    return [row.strip() for row in rows if row.strip() not in {"interface", "---"}]


def row_about(what: str) -> str:
    found = [row for row in interfaces() if what in row]
    assert len(found) == 1, f"{what} has no row of its own in the table of interfaces"
    return found[0]


def test_every_path_that_a_token_does_not_open_has_a_row():
    for path in TOKENLESS:
        word = path.removeprefix("/v1/").partition("/{")[0]
        assert [row for row in interfaces() if word in row], path
    row_about("`/v1` with a token or a link")


def test_every_sort_of_asker_has_a_row():
    sorts = {type(one.asker).__name__ for one in all_routes()}
    rows = {
        "Anybody": "/v1/openapi.json",
        "Probe": "/healthz",
        "Token": "`/v1` with a token",
        "Signed": "/v1/offers",
        "Hook": "/v1/hooks",
        "Letter": "/v1/a2a/deliver",
        "Browser": "browser pages",
        "Secret": "verify --open",
    }
    assert sorts == set(rows), "a sort of asker without a row, or a row without one"
    for words in rows.values():
        row_about(words)


def test_what_else_answers_or_reaches_out_has_a_row():
    assert "interfaces/git/push_service.py" in callers("start_unix_server")
    assert {bus.JOIN, bus.LOGIN} <= set(bus.BUS)
    for words in ("git serve", "joining and logins", "archive readers", "http.post"):
        row_about(words)
    assert node_routes()
