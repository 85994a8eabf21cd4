"""Every block of commands in the documentation is typed by a test, or says why it is not."""

import re

import pytest

from tests.acceptance.test_pages import PAGES, SANDBOXED
from tests.acceptance.typed_page import ROOT, blocks, page_named

BY_PAGES = "tests/acceptance/test_pages.py"
TYPED = {
    "README.md": "tests/acceptance/test_readme.py",
    "docs/do/backup.md": "tests/acceptance/test_backup.py",
    "examples/verified_ci/README.md": "tests/acceptance/test_verified_ci.py",
    "docs/do/testing.md": "tests/testing/test_tested_mesh.py",
    "docs/learn/tutorial.md": BY_PAGES,
    "docs/do/offline.md": BY_PAGES,
    "docs/do/webhooks.md": "tests/acceptance/test_webhooks.py",
    **{str(page_named(page).relative_to(ROOT)): BY_PAGES for page in (*PAGES, *SANDBOXED)},
}
"""Pages of which every block that does not say why not is typed, and where."""
NAMED = re.compile(r"\b(?:tests|docs|examples)/[\w./-]*\w")
COMMAND = re.compile(r"^\w*(?:\$ |(?:pip|antiphon|curl|python|uv) \S)", re.MULTILINE)


def pages():
    found = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
    found += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]
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


def test_every_block_of_commands_is_typed_or_says_why_not():
    left = {page: len(untyped(text)) for page, text in pages().items() if page not in TYPED}
    assert {page: count for page, count in left.items() if count} == {}


def test_a_test_that_does_the_same_as_a_block_exists():
    reasons = [block.reason or "" for text in pages().values() for block in blocks(text)]
    named = {name for reason in reasons for name in NAMED.findall(reason)}
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page, test", TYPED.items())
def test_the_test_that_types_a_page_names_it(page, test):
    assert page.rpartition("/")[2].removesuffix(".md") in (ROOT / test).read_text()


def test_a_block_that_nobody_types_is_seen():
    block = "```{}\n{}\n```\n"
    for language, text in (("console", "$ ls"), ("", "antiphon up"), ("sh", "x"), ("", "box$ x")):
        assert len(untyped(block.format(language, text))) == 1
        assert untyped("<!-- not run: it is long -->\n" + block.format(language, text)) == []
    assert untyped(block.format("python", "import antiphon")) == []
    assert untyped(block.format("", "antiphon_jobs_total 3")) == []
