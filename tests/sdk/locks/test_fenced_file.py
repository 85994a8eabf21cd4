"""A file, and a table, that refuse what a former holder writes."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.errors import Malformed, StaleFence
from antiphon.sdk.locks.fenced_file import FencedFile
from tests.sdk.locks.killed_writer import NEW, OLD

LOW, MIDDLE, HIGH = (f"{number:016x}" for number in (1, 2, 3))
ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/do/locks.md"


def test_a_lower_fence_is_refused_and_an_equal_one_is_not(tmp_path):
    file = FencedFile(tmp_path / "notes.txt")
    assert file.fence == ""
    file.write_text("one", fence=MIDDLE)
    file.append_text(" and more", fence=MIDDLE)
    with pytest.raises(StaleFence, match=r"notes\.txt was already written with the fence"):
        file.write_text("late", fence=LOW)
    with pytest.raises(StaleFence):
        file.append_text("late", fence=LOW)
    assert file.read_text() == "one and more"
    again = FencedFile(tmp_path / "notes.txt")
    again.write_bytes(b"two", fence=HIGH)
    with pytest.raises(StaleFence):
        file.write_text("late", fence=MIDDLE)
    assert (file.read_text(), file.fence) == ("two", HIGH)


@pytest.mark.parametrize("fence", ["", "12", "g" * 16, "0" * 17])
def test_what_is_no_fence_is_refused(tmp_path, fence):
    with pytest.raises(Malformed):
        FencedFile(tmp_path / "a").write_text("x", fence=fence)
    assert not (tmp_path / "a").exists()


@pytest.mark.req("S6", "S12")
def test_the_sql_in_the_docs_refuses_a_lower_fence():
    [table, statement] = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    db = sqlite3.connect(":memory:")
    db.executescript(table)
    rows = [("a", "first", MIDDLE), ("a", "late", LOW), ("a", "same", MIDDLE), ("a", "new", HIGH)]
    counts = [
        db.execute(statement, {"name": name, "text": text, "fence": fence}).rowcount
        for name, text, fence in rows
    ]
    assert counts == [1, 0, 1, 1]
    assert db.execute("select text, fence from documents").fetchall() == [("new", HIGH)]


@pytest.mark.processes
def test_a_writer_that_is_killed_at_any_step_leaves_a_fence_that_is_no_lower(tmp_path):
    """What was refused before stays refused, and what was written has its fence beside it."""
    command = [sys.executable, "-m", "tests.sdk.locks.killed_writer", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    steps = {name: int(count) for name, count in map(str.split, ended.stdout.splitlines())}
    assert min(steps.values()) > 10
    for name, count in steps.items():
        for step in range(1, count + 1):
            file = FencedFile(tmp_path / name / str(step) / "notes")
            text = file.read_text() if file.path.exists() else ""
            assert (text, file.fence) in LEFT_BY_A_KILL[name], f"{name}, step {step}"
            if name == "again":
                with pytest.raises(StaleFence):
                    file.write_text("late", fence=LOW)
            file.write_text("next", fence=NEW)
            assert (file.read_text(), file.fence) == ("next", NEW)


LEFT_BY_A_KILL = {
    "first": {("", ""), ("", NEW), ("new", NEW)},
    "again": {("old", OLD), ("old", NEW), ("new", NEW)},
}
