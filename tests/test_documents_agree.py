"""Origins, the reasons in the conformance table, the specification and not-here-yet: one story.

What is missing is said on one page; the others link to it.
"""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from antiphon import settings
from antiphon.core.protocol import PROTOCOL
from antiphon.interfaces.cli.application import make_app
from tests.requirements_table import EXPLAINED, PENDING
from tests.test_not_here_yet import rows as missing

DOCS = Path(__file__).resolve().parent.parent / "docs"
SPECIFICATION = (DOCS / "reference/specification.md").read_text()
ORIGINS = (DOCS / "understand/origins.md").read_text()
MISSING = (DOCS / "understand/not-here-yet.md").read_text()
LETTERS = {"Mesh": "M", "Safety": "S", "Grid": "G", "Plane": "P", "Beat": "B"}
LINK = "not-here-yet.md"
UNNAMED = {"ucan.delegate", "ucan.revoke", "mesh.evidence", "mesh.readmit", "mesh.seal"}
"""Ops that the specification speaks of in words."""
HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", re.MULTILINE)


def sections(page):
    """Each numbered section of the specification, without those below it."""
    found = list(HEADING.finditer(page))
    ends = [*(one.start() for one in found[1:]), len(page)]
    return {one[1]: page[one.end() : end] for one, end in zip(found, ends, strict=True)}


def documents(page):
    """The parts of origins, one for each of the five documents."""
    parts = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part for part in parts}


def numbers(part, words):
    """The rows that a part lists after these words."""
    found = re.search(rf"{words}: ((?:[MSGPB]\d+(?:, )?)+)\.", part)
    return set(found[1].split(", ")) if found else set()


# --- what is not here ---------------------------------------------------------------------------


def test_sections_that_are_not_built_are_those_of_the_page_of_what_is_missing():
    linking = {number for number, text in sections(SPECIFICATION).items() if LINK in text}
    named = {number for what, _, _ in missing() for number in re.findall(r"§(\d+(?:\.\d+)?)", what)}
    assert linking == named


@pytest.mark.parametrize("document", LETTERS)
def test_origins_lists_the_rows_that_are_answered_differently_or_not_at_all(document):
    part, letter = documents(ORIGINS)[document], LETTERS[document]
    explained = {row for row in EXPLAINED if row[0] == letter}
    assert numbers(part, "Answered differently") == explained
    assert numbers(part, "Not here yet") == {row for row in PENDING if row[0] == letter}


# --- what is here -------------------------------------------------------------------------------


def test_every_op_is_in_the_specification_and_no_other_that_is_not_missing():
    families = "|".join(sorted({name.partition(".")[0] for name in PROTOCOL.ops}))
    told = set(re.findall(rf"`((?:{families})\.[a-z]+)(?:`| \{{)", SPECIFICATION)) - {"job.yaml"}
    listed = {name for name in told if f"op `{name}`" in MISSING}
    assert told - listed <= PROTOCOL.ops.keys()
    assert {name for name in PROTOCOL.ops if name not in SPECIFICATION} <= UNNAMED


@pytest.mark.parametrize("page", [SPECIFICATION, ORIGINS, MISSING])
def test_commands_and_settings_that_are_named_exist(page):
    known = get_command(make_app()).commands
    typed = set(re.findall(r"`antiphon ([a-z]+)\b", page))
    typed -= set(re.findall(r"(?:command|option) `antiphon ([a-z]+)", page))
    assert typed <= known.keys()
    variables = {f"ANTIPHON_{name.upper()}" for name in settings.Settings.__struct_fields__}
    assert set(re.findall(r"\bANTIPHON_[A-Z_]+", page)) <= variables
