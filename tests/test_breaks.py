"""Features that `scripts/conformance --break` takes out: all can be, and it is noticed."""

import importlib
import sys

import msgspec
import pytest

from tests.breaks import run
from tests.breaks.replacement import (
    Break,
    around,
    becomes,
    calls,
    does_nothing,
    gives,
    install,
    result_with,
    with_,
)
from tests.breaks.table import BREAKS
from tests.test_requirements import ROOT, conformance

EACH = [
    pytest.param(each, id=f"{row}-{each.where}") for row, some in BREAKS.items() for each in some
]


def test_every_row_with_tests_has_a_feature_that_can_be_taken_out():
    assert BREAKS.keys() == conformance.survey(ROOT).places.keys()
    assert all(BREAKS.values())


@pytest.mark.parametrize("each", EACH)
def test_every_feature_of_the_table_is_there(each):
    *owners, name = each.where.partition(":")[2].split(".")
    owner = importlib.import_module(each.module)
    for one in owners:
        owner = getattr(owner, one)
    old = each.found(owner, name)
    assert each.change(old) is not old
    assert each.what


def test_what_is_not_there_cannot_be_taken_out():
    here = Break("tests.breaks.run:Found.nothing", does_nothing, "")
    with pytest.raises(LookupError, match="no such attribute"):
        here.apply(run)


# --- what takes a feature's place -------------------------------------------------------------


class Kept:
    """What features look like."""

    size = 3

    class Struct(msgspec.Struct):
        beats: int

    def method(self, more=1):
        return self.size + more

    async def waits(self):
        return self.size

    @property
    def shown(self):
        return self.size

    @classmethod
    def made(cls):
        return cls.size

    @staticmethod
    def alone(more):
        return more


def broken(name, change):
    """The class with one attribute replaced."""
    return type("Broken", (Kept,), {name: change(vars(Kept)[name])})()


async def test_a_replacement_has_the_form_of_what_it_replaces():
    assert broken("size", becomes(5)).method() == 6
    assert broken("method", gives(7)).method(more=2) == 7
    assert broken("method", calls(lambda self, more=1: self.size * more)).method(4) == 12
    assert broken("method", with_(more=10)).method(more=2) == 13
    assert broken("method", around(lambda old, *given: -old(*given))).method(2) == -5
    assert await broken("waits", gives(7)).waits() == 7
    assert await broken("waits", around(lambda old, self: old(self))).waits() == 3
    assert broken("shown", gives(7)).shown == 7
    assert broken("shown", around(lambda old, self: -old(self))).shown == -3
    assert type(broken("made", gives(7))).made() == 7
    assert broken("alone", does_nothing).alone(1) is None
    assert result_with(beats=2)(lambda: Kept.Struct(1))().beats == 2


# --- taking out -------------------------------------------------------------------------------

SMALL = "tests/core/policy/test_claim_delay.py"


@pytest.mark.processes
async def test_a_feature_that_is_missing_is_noticed_by_its_tests_and_not_by_others():
    noticed = await run.take_out("G8", 0, ["tests/core/policy/test_selection.py"])
    assert "test_of_two_claims_the_earlier_wins" in noticed.noticed_by
    assert not noticed.is_survivor
    survives = await run.take_out("G8", 0, [SMALL])
    assert survives.is_survivor
    assert survives.sentence().startswith("SURVIVES G8: antiphon.core.policy.selection:is_earlier")
    assert run.figures([noticed, survives]) == {"rows": 1, "broken": 2, "survivors": 1, "faults": 0}


@pytest.mark.parametrize(
    "code, said, failed",
    [
        (1, "FAILED tests/a.py::test_b[x y] - AssertionError: no\n", "tests/a.py::test_b[x y]"),
        (1, "tests/a.py::test_b ++++++ Timeout ++++++\n", "tests/a.py::test_b"),
        (0, "tests/a.py::test_b PASSED\n", ""),
        (4, "ERROR: file or directory not found: tests/a.py\n", ""),
    ],
)
def test_what_noticed_is_read_from_what_pytest_said(code, said, failed):
    assert run.Ran(code, said).failed == failed


async def test_tests_that_cannot_be_run_or_fail_anyway_have_noticed_nothing(monkeypatch):
    answers = [run.Ran(4, "no such file"), run.Ran(1, "FAILED tests/a.py::t\n"), run.Ran(1, "")]

    async def answer(*_: object) -> run.Ran:
        return answers.pop(0)

    monkeypatch.setattr(run, "run_tests", answer)
    for why in ("no such file", "fails with the feature, too"):
        lost = await run.take_out("G8", 0, [])
        assert not lost.noticed_by
        assert not lost.is_survivor
        assert why in lost.sentence()


def test_a_module_is_changed_when_it_is_imported(monkeypatch, tmp_path):
    (tmp_path / "feature.py").write_text("def answer():\n    return 42\n")
    (tmp_path / "user.py").write_text("from feature import answer\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.meta_path", [*sys.meta_path])
    for name in ("feature", "user"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    install([Break("feature:answer", gives(7), "")])
    assert importlib.import_module("user").answer() == 7
    for name in ("feature", "user"):
        del sys.modules[name]
