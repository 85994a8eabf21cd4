"""Pages for people who come from elsewhere: what they name exists."""

import re
from pathlib import Path

import pytest

import antiphon
from antiphon.interfaces.cli.application import COMMANDS
from antiphon.sdk.call_options import TaskOptions

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (
    "learn/coming-from.md",
    "do/observability.md",
    "do/testing.md",
    "do/troubleshooting.md",
    "learn/tutorial.md",
)
THEIRS = re.compile(r"^\| .+? \| ", re.MULTILINE)
"""The left column of a table, which has other people's words."""


@pytest.mark.parametrize("name", PAGES)
def test_commands_of_the_page_exist(name):
    text = (DOCS / name).read_text()
    typed = set(re.findall(r"`(?:\$ )?antiphon ([a-z]+)", text))
    assert typed <= set(COMMANDS), typed - set(COMMANDS)


def test_options_and_names_of_the_tables_exist():
    ours = THEIRS.sub("", (DOCS / "learn/coming-from.md").read_text())
    options = set(re.findall(r"[`(, ](\w+)=", ours))
    known = {*TaskOptions.__annotations__, *antiphon.Retry.__struct_fields__}
    assert options <= known, options - known
    for name in ("GiveUp", "RetryLater", "After", "Retry", "Mesh", "JobFailed"):
        assert hasattr(antiphon, name)
