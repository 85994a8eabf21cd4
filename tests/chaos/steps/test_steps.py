"""`chaos steps`, as small as it still shows something, and what it would notice."""

import json

import pytest

from chaos.audit.execution_journal import ExecutionTally, JournalEvent
from chaos.audit.final_check import Accepted, FinalCheck
from chaos.steps.command import Plan, compare, run
from simulator.checks.law_state import StepFacts

KEY = ("chaos.steps.await", "a" * 64)
FIRST, SECOND = "1" * 16, "2" * 16


def found(*computed, stored=("0", "1"), returned=("0", "1")):
    """What is found where these steps were computed, each under a fence."""
    check = FinalCheck("abcdefghijklmnop")
    for number, value in enumerate(stored):
        if value is not None:
            check.steps(KEY)[f"step {number}"] = StepFacts(FIRST, json.dumps(value))
    check.accepted[KEY].append(Accepted(9, SECOND, "w", "succeeded", json.dumps(returned)))
    events = [JournalEvent(0, 1, "step", KEY[1], fence, step) for step, fence in computed]
    return compare(check, ExecutionTally(events), [KEY], steps=2)


def test_a_step_that_was_stored_and_computed_once_is_neither_repeated_nor_lost():
    one = found((0, FIRST), (1, FIRST))
    assert (one.stored, one.computed, one.repeated, one.lost) == (2, 2, 0, 0)


def test_a_step_of_an_earlier_tenure_may_be_computed_later_and_never_the_other_way():
    earlier = "0" * 16
    assert found((0, FIRST), (1, FIRST), (1, earlier)).repeated == 0
    assert found((0, FIRST), (1, FIRST), (1, SECOND)).repeated == 1
    assert found((0, FIRST), (1, FIRST), (1, FIRST)).repeated == 1


def test_a_step_that_is_not_stored_or_was_not_returned_is_lost():
    assert found((0, FIRST), stored=("0", None)).lost == 1
    assert found((0, FIRST), (1, FIRST), returned=("0", "2")).lost == 1
    assert found((0, FIRST), (1, FIRST), returned=("0",)).lost == 1


@pytest.mark.nats
@pytest.mark.long
async def test_killed_workers_repeat_and_lose_no_step(capsys):
    code = await run(Plan(kills=6, jobs=6, workers=4, seed=1))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert (said["steps"], said["repeated"], said["lost"]) == (120, 0, 0)
