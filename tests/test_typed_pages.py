"""Every block of commands in the documentation is typed by a test, or says why it is not."""

import re

import pytest

from tests.acceptance.typed_page import ROOT, blocks

TYPED = {
    "README.md": "tests/acceptance/test_readme.py",
    "docs/tutorial.md": "tests/acceptance/test_pages.py",
    "docs/testing.md": "tests/testing/test_tested_mesh.py",
}
"""Pages of which every block is typed, and where."""
NOT_YET = {
    "docs/artifacts.md": 3,
    "docs/chaos.md": 8,
    "docs/commands.md": 3,
    "docs/cost.md": 2,
    "docs/graphs.md": 2,
    "docs/http.md": 3,
    "docs/locks.md": 1,
    "docs/manifest.md": 2,
    "docs/memory.md": 1,
    "docs/messages.md": 1,
    "docs/observability.md": 2,
    "docs/plans.md": 1,
    "docs/presence.md": 1,
    "docs/proofs.md": 1,
    "docs/reports.md": 1,
    "docs/scores.md": 1,
    "docs/selection.md": 3,
    "docs/simulator.md": 1,
    "docs/tasks.md": 2,
    "docs/three-agents.md": 1,
    "docs/who-may-do-what.md": 4,
    "examples/fastapi_app/README.md": 1,
    "examples/flask_app/README.md": 1,
    "examples/map/README.md": 1,
    "examples/pipeline/README.md": 2,
    "examples/testing/README.md": 1,
    "examples/three_agents/README.md": 1,
}
"""How many blocks of other pages nobody types. Numbers here only go down."""
COMMAND = re.compile(r"^\w*(?:\$ |(?:pip|antiphon|curl|python|uv) \S)", re.MULTILINE)


def pages():
    found = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
    found += [*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/README.md")]
    return {str(page.relative_to(ROOT)): page.read_text() for page in found}


def untyped(text):
    """Blocks of commands that do not say why they are not run."""
    return [
        block
        for block in blocks(text)
        if block.reason is None
        and (
            block.language in {"console", "sh", "bash", "shell"}
            or (not block.language and COMMAND.search(block.text))
        )
    ]


def test_every_block_of_commands_is_typed_or_says_why_not_or_is_counted():
    counted = {page: len(untyped(text)) for page, text in pages().items() if page not in TYPED}
    assert {page: count for page, count in counted.items() if count} == NOT_YET


@pytest.mark.parametrize("page, test", TYPED.items())
def test_the_test_that_types_a_page_names_it(page, test):
    assert page.rpartition("/")[2] in (ROOT / test).read_text()


def test_a_block_that_nobody_types_is_seen():
    block = "```{}\n{}\n```\n"
    for language, text in (("console", "$ ls"), ("", "antiphon up"), ("sh", "x"), ("", "box$ x")):
        assert len(untyped(block.format(language, text))) == 1
        assert untyped("<!-- not run: it is long -->\n" + block.format(language, text)) == []
    assert untyped(block.format("python", "import antiphon")) == []
    assert untyped(block.format("", "antiphon_jobs_total 3")) == []
