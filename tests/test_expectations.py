"""docs/understand/expectations.md: every row names a test that exists, or says what is planned."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ANSWERS = ("yes", "partly", "no")


def rows(page):
    return [match.groups() for match in ROW.finditer(page)]


def faults(page, root=ROOT):
    """What is wrong with a table."""
    for number, expectation, before, now, shown in rows(page):
        row = f"{number}. {expectation}"
        if not before.startswith(ANSWERS) or not now.startswith(ANSWERS):
            yield f"{row}: begins with none of {ANSWERS}"
        tests = TEST.findall(shown)
        for path, name in tests:
            file = root / path
            if not file.is_file() or f"def {name}(" not in file.read_text():
                yield f"{row}: there is no {path}::{name}"
        if now.startswith("no"):
            if not shown.startswith("planned: "):
                yield f"{row}: does not say what is planned"
        elif not tests:
            yield f"{row}: names no test"


def test_every_row_names_a_test_that_exists_or_says_what_is_planned():
    page = (ROOT / "docs/understand/expectations.md").read_text()
    assert [int(row[0]) for row in rows(page)] == list(range(1, 49))
    assert list(faults(page)) == []


def test_a_row_without_its_test_is_seen(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("def test_there():\n    pass\n")
    good = "| 1 | it works | no | yes | `tests/test_a.py::test_there` |"
    assert list(faults(good, tmp_path)) == []
    for bad in (
        good.replace("test_there", "test_her"),
        good.replace("test_a.py", "test_b.py"),
        good.replace("`tests/test_a.py::test_there`", "soon"),
        good.replace("| yes |", "| no |"),
        good.replace("| yes |", "| perhaps |"),
    ):
        assert list(faults(bad, tmp_path)) != [], bad
