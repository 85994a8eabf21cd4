"""Every requirement has its test, its explanation, or its place on the shrinking list."""

import importlib.machinery
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.requirements_table import EXPLAINED, PENDING, PENDING_CEILING, TITLES

ROOT = Path(__file__).resolve().parent.parent
HOW_MANY = {"M": 30, "S": 17, "G": 11, "P": 13, "B": 28}


def load_script():
    loader = importlib.machinery.SourceFileLoader("conformance", str(ROOT / "scripts/conformance"))
    spec = importlib.util.spec_from_loader("conformance", loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["conformance"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


conformance = load_script()


@pytest.fixture(scope="module")
def found():
    return conformance.survey(ROOT)


def test_no_row_is_unaccounted_for(found):
    assert found.faults == []


def test_the_page_is_what_the_marks_say(found):
    assert (ROOT / "docs/conformance.md").read_text() == conformance.page(found)


def test_the_table_is_complete():
    assert list(TITLES) == [f"{s}{n}" for s, last in HOW_MANY.items() for n in range(1, last + 1)]
    assert all(TITLES.values())


def test_what_is_pending_only_shrinks():
    assert len(PENDING) <= PENDING_CEILING
    assert not PENDING & EXPLAINED.keys()


def test_the_rows_are_those_that_were_asked_for():
    asked = ROOT.parent / "shared" / "REQUIREMENTS.md"
    if not asked.exists():
        pytest.skip("the source of the requirements is not beside this clone")
    ids = re.findall(r"^\| ([MSGPB]\d+) \|", asked.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(ids) == set(TITLES)
    rows = re.findall(
        r"^\| ([MSGPB]\d+) \| (.+) \|$", asked.read_text(encoding="utf-8"), re.MULTILINE
    )
    to_explain = {row for row, demand in rows if "explained" in demand}
    assert to_explain <= EXPLAINED.keys() | PENDING, "answered differently, and no reason given"


# --- the script on small trees ---------------------------------------------------------------


TABLE = """
from typing import Final
TITLES: Final = {titles!r}
EXPLAINED: Final = {explained!r}
PENDING_CEILING: Final = {ceiling}
PENDING: Final = frozenset(
    {{
{rows}    }}
)
"""


def tree(root, tests, *, pending=(), explained=None, ceiling=9):
    table = TABLE.format(
        titles=dict.fromkeys(("M1", "M2", "M3"), "a title"),
        explained=explained or {},
        ceiling=ceiling,
        rows="".join(f'        "{row}",\n' for row in pending),
    )
    (root / "tests").mkdir(exist_ok=True)
    (root / "tests/requirements_table.py").write_text(table)
    (root / "tests/test_story.py").write_text(tests)
    return conformance.survey(root)


ALL = 'import pytest\n@pytest.mark.req("M1", "M2", "M3")\n'


@pytest.mark.parametrize(
    "source",
    [
        ALL + "def test_a(): ...\n",
        ALL + "async def test_a(): ...\n",
        ALL + "class TestA:\n    def test_a(self): ...\n",
        ALL + "class TestA(Suite): ...\n",
        'pytestmark = pytest.mark.req("M1", "M2", "M3")\ndef test_a(): ...\n',
        'pytestmark = [pytest.mark.nats, pytest.mark.req("M1", "M2", "M3")]\ndef test_a(): ...\n',
        'TestA = pytest.mark.req("M1", "M2", "M3")(Machine.TestCase)\n',
        'pytestmark = pytest.mark.req("M1", "M2", "M3")\nTestA = Machine.TestCase\n',
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=mark.req("M1", "M2", "M3"))])\n'
        "def test_a(x): ...\n",
    ],
)
def test_a_mark_claims_its_rows_wherever_pytest_would_see_it(source, tmp_path):
    found = tree(tmp_path, source)
    assert found.faults == []
    assert found.counts() == {"total": 3, "tested": 3, "explained": 0, "pending": 0}
    assert all(place.startswith("tests/test_story.py::") for place in found.places["M1"])


@pytest.mark.parametrize(
    "source, complaint",
    [
        ("", "M1: has no test"),
        (ALL + "@pytest.mark.skip\ndef test_a(): ...\n", "M1: has no test"),
        (ALL + "@pytest.mark.soak\ndef test_a(): ...\n", "M1: has no test"),
        (ALL + "@pytest.mark.xfail(reason='')\ndef test_a(): ...\n", "M1: has no test"),
        (ALL + "def check_a(): ...\n", "is not on a test"),
        ("@pytest.mark.req(ROW)\ndef test_a(): ...\n", "plain string"),
        ('@pytest.mark.req("M4")\ndef test_a(): ...\n', "M4: no such row"),
    ],
)
def test_a_row_without_a_real_test_is_a_fault(source, complaint, tmp_path):
    assert any(complaint in fault for fault in tree(tmp_path, source).faults)


def test_a_pending_row_with_a_test_must_leave_the_list(tmp_path):
    found = tree(tmp_path, ALL + "def test_a(): ...\n", pending=["M2"])
    assert [fault[:3] for fault in found.faults] == ["M2:"]


def test_an_explanation_answers_a_row_but_not_an_empty_one(tmp_path):
    found = tree(tmp_path, "", explained={"M1": "because", "M2": " "}, pending=["M3"])
    assert [fault[:3] for fault in found.faults] == ["M2:"]


def test_a_row_may_be_tested_and_answered_differently(tmp_path):
    found = tree(tmp_path, ALL + "def test_a(): ...\n", explained={"M2": "because"})
    assert found.faults == []
    assert found.counts()["tested"] == 3
    rows = conformance.page(found).splitlines()
    assert "| M1 | a title | tested | `tests/test_story.py::test_a` |" in rows
    told = "| M2 | a title | tested, explained | because<br>`tests/test_story.py::test_a` |"
    assert told in rows


@pytest.mark.parametrize(
    "file, rows", [("core", ["M1", "M2", "M3"]), ("runtime", []), ("acceptance", [])]
)
def test_rows_with_tests_of_the_core_alone_are_told(file, rows, tmp_path):
    (tmp_path / "tests" / file).mkdir(parents=True)
    (tmp_path / "tests" / file / "test_rule.py").write_text(ALL + "def test_a(): ...\n")
    assert tree(tmp_path, "").core_only() == rows


def test_the_pending_list_cannot_grow_past_its_ceiling(tmp_path):
    found = tree(tmp_path, "", pending=["M1", "M2", "M3"], ceiling=2)
    assert found.faults == ["PENDING grew to 3; its ceiling is 2"]


@pytest.mark.parametrize("rows, left", [(["M1"], 2), (["M1", "M2", "M3"], 0)])
def test_writing_strikes_answered_rows_and_lowers_the_ceiling(rows, left, tmp_path):
    mark = f"@pytest.mark.req({', '.join(map(repr, rows))})\ndef test_a(): ...\n"
    found = tree(tmp_path, mark, pending=["M1", "M2", "M3"])
    conformance.strike_answered(tmp_path, found)
    again = conformance.survey(tmp_path)
    assert (again.faults, len(again.pending)) == ([], left)
    text = (tmp_path / "tests/requirements_table.py").read_text()
    assert f"PENDING_CEILING: Final = {left}\n" in text
