"""Pages for people who come from elsewhere: what they name exists, and what is missing is so."""

import re
from pathlib import Path

import pytest

import antiphon
from antiphon.interfaces.cli.application import COMMANDS
from antiphon.sdk.call_options import TaskOptions
from tests.test_expectations import rows

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


def test_what_is_not_here_yet_is_what_the_table_of_expectations_lacks():
    page = (DOCS / "learn/coming-from.md").read_text().partition("## Not here yet")[2]
    listed = re.findall(r"^- (\d+): (.+)$", page, re.MULTILINE)
    found = rows((DOCS / "understand/expectations.md").read_text())
    assert listed == [(row[0], row[1]) for row in found if row[3].startswith("no")]


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_links_of_the_page_exist(name):
    text = (DOCS / name).read_text()
    typed = set(re.findall(r"`(?:\$ )?antiphon ([a-z]+)", text))
    assert typed <= set(COMMANDS), typed - set(COMMANDS)
    for link, anchor in re.findall(r"\]\(([\w/.-]+\.md)(#[\w-]+)?\)", text):
        target = (DOCS / name).parent / link
        assert target.is_file(), link
        heads = [
            "#" + re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-")
            for head in re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
        ]
        assert not anchor or anchor in heads, f"{link}{anchor}"


def test_options_and_names_of_the_tables_exist():
    ours = THEIRS.sub("", (DOCS / "learn/coming-from.md").read_text())
    options = set(re.findall(r"[`(, ](\w+)=", ours))
    known = {*TaskOptions.__annotations__, *antiphon.Retry.__struct_fields__}
    assert options <= known, options - known
    for name in ("GiveUp", "RetryLater", "After", "Retry", "Mesh", "JobFailed"):
        assert hasattr(antiphon, name)
