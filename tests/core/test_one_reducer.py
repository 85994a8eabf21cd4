"""Every record is judged by one function, and what all ops share is checked at one place."""

from pathlib import Path

import pytest

import antiphon
from tests.source_tree import facts, read

SRC = Path(antiphon.__file__).parent
REDUCER = "core/reducer.py"


def calls(name: str, *, skip: tuple[str, ...] = ("testing/",)) -> list[str]:
    """The files in which something of that name is called, once for each call."""
    found = []
    for path in sorted(SRC.rglob("*.py")):
        where = path.relative_to(SRC).as_posix()
        if where.startswith(skip):
            continue
        found += [where for called, _, _ in facts(path).calls if called == name]
    return found


def giving(reason: str) -> list[str]:
    """The files that give this verdict."""
    return [
        path.relative_to(SRC).as_posix()
        for path in sorted(SRC.rglob("*.py"))
        if f"return Verdict.{reason}\n" in read(path)
    ]


@pytest.mark.parametrize("check", ["time_fault", "_order_fault"])
def test_time_and_order_are_checked_at_one_call_site(check):
    assert calls(check) == [REDUCER]


@pytest.mark.parametrize("verdict", ["PREV", "QUARANTINED"])
def test_predecessor_and_quarantine_are_checked_at_one_place(verdict):
    assert giving(verdict) == [REDUCER]


def test_authority_and_deps_are_checked_at_one_call_site():
    text = (SRC / REDUCER).read_text()
    assert text.count("chain_check.fault(") == text.count("read_set.fault(") == 1
    elsewhere = [
        path.relative_to(SRC).as_posix()
        for path in sorted(SRC.rglob("*.py"))
        if "chain_check.fault(" in read(path) or "read_set.fault(" in read(path)
    ]
    assert elsewhere == [REDUCER]


def test_every_reader_calls_the_reducer_and_no_other_verdict_function():
    assert set(calls("step")) <= {REDUCER}
    readers = {
        "core/history/control_history.py",  # control, and records judged in their own place
        "runtime/log/session.py",  # light readers, and what an author foresees
    }
    own = [where for where in calls("judge") if where in readers]
    assert set(own) == readers
