"""Folders of tests have budgets of processor time: the table, the measure and what is said."""

import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from tests import cpu_budgets
from tests.cpu_budgets import (
    BUDGETS,
    LOOP_S,
    LOOSE,
    TESTS,
    CpuMeter,
    Measured,
    count_up,
    folder_of,
    over_budget,
    spent_s,
)

BURN = "import time\nwhile time.process_time() < 0.2: pass"


def test_every_folder_of_tests_has_a_budget_and_no_other():
    folders = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    assert BUDGETS.keys() == folders | {LOOSE}


def test_a_folder_over_its_budget_is_told_with_what_to_do():
    [said] = over_budget({"chaos": 61.0, "core": 50.0}, [LOOP_S], {"chaos": 50, "core": 50})
    assert "tests/chaos took 61 s of processor, its budget is 50" in said
    assert "pytest --durations=20 tests/chaos" in said
    assert "tests/cpu_budgets.py" in said
    assert over_budget({"new": 1.0}, [LOOP_S], {}) != []


def test_a_slower_machine_has_more_and_a_faster_one_not_less():
    assert over_budget({"chaos": 61.0}, [LOOP_S * 2] * 3, {"chaos": 50}) == []
    assert over_budget({"chaos": 49.0}, [LOOP_S / 2] * 3, {"chaos": 50}) == []
    assert over_budget({"chaos": 101.0}, [LOOP_S * 2] * 3, {"chaos": 50}) != []


def test_files_belong_to_the_folder_below_tests():
    assert folder_of(TESTS / "chaos/clock/test_clock.py") == "chaos"
    assert folder_of(TESTS / "test_tidy.py") == LOOSE


@pytest.mark.parametrize(
    "ci, keyword, ends", [("1", "", 1), ("1", "fence", 0), ("", "", 0)], ids=str
)
def test_a_whole_run_in_ci_that_took_too_much_fails(monkeypatch, ci, keyword, ends):
    monkeypatch.setenv("CI", ci)
    for size in ("IS_FAST", "IS_LONG", "IS_SOAK"):
        monkeypatch.setattr(cpu_budgets, size, False)
    option = SimpleNamespace(keyword=keyword, markexpr="")
    source = pytest.Config.ArgsSource.TESTPATHS
    meter = CpuMeter(SimpleNamespace(option=option, args_source=source))
    for name in ("one", "two"):  # two files, of which neither is over it
        meter.add(Measured(Counter({f"core/{name}.py": BUDGETS["core"] * 0.6}), [LOOP_S]))
    session = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    meter.pytest_sessionfinish(session)
    assert session.exitstatus == ends


@pytest.mark.processes
def test_what_running_and_ended_processes_spent_is_counted():
    before_s = spent_s()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    ended_s = spent_s()
    assert ended_s - before_s >= 0.15
    burning = f"{BURN}\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", burning], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        running.stdout.readline()
        assert spent_s() - ended_s >= 0.15
        running.communicate("\n")
    assert count_up() > 0
