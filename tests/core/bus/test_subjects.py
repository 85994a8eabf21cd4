"""The bus's subjects: each stands in the table once, and literals nowhere else."""

import re
from pathlib import Path

import pytest

from antiphon.core.bus.subjects import BUS, INBOX, JOIN, LIVE, LOGIN, ROLL, WORK
from antiphon.core.record import subjects

SOURCE = Path(__file__).resolve().parents[3] / "src" / "antiphon"


@pytest.mark.parametrize(
    "subject, parts, where",
    [
        (ROLL, {}, "roll"),
        (WORK, {"kind": "render.video"}, "work.render.video"),
        (LIVE, {"kind": "render.video", "job": "1"}, "live.render.video.1"),
        (INBOX, {"user": "U", "place": 7}, "inbox.U.7"),
        (JOIN, {"user": "T"}, "gate.T.join"),
        (LOGIN, {"user": "*"}, "gate.*.login"),
    ],
)
def test_subjects_are_built_from_the_table(subject, parts, where):
    assert subject.at(**parts) == where
    assert subject in BUS


def test_no_message_belongs_to_two_subjects():
    patterns = [re.sub(r"\{(\w+)\}", "*", one.pattern) for one in BUS]
    for at, pattern in enumerate(patterns):
        assert not any(subjects.matches(other, pattern) for other in patterns[:at])


SPELLED = {("bus", "subjects.py"), ("gate", "tickets.py")}
"""The table itself; and what tickets are packed with: a sample of a login, which nobody parses."""


def test_the_table_is_the_only_place_that_spells_a_subject_of_the_bus():
    """Outside it and the tests' own code, nobody writes one down; docstrings may speak of them."""
    heads = "|".join(one.pattern.split(".")[0].split("{")[0] for one in BUS)
    literal = re.compile(
        rf"""["'](?:apb\b|(?:{heads})\.[^"' ])|\b(?:publish|subscribe|Service)\(f?["']"""
    )
    found = [
        f"{path.relative_to(SOURCE)}: {one}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.parts[-2:] not in SPELLED and "testing" not in path.parts
        for one in literal.findall(path.read_text())
    ]
    assert found == []
