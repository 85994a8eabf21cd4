"""The simulator would notice: each deliberate bug is caught, and the system without it is not."""

import json

import pytest

from antiphon.core import lanes, records, transitions
from antiphon.core.ops import JobExpire
from antiphon.engines.memory.log import LogStore
from antiphon.runtime.worker import Worker
from antiphon.testing import mutants

CAUGHT_BY = {
    "no_fence_check": {"one_result", "final"},
    "early_ack": {"acks_are_true"},
    "no_compare_and_set": {"chained"},
    "expiry_by_local_time": {"not_early"},
    "subject_unchecked": {"own_subject"},
}


def patchable():
    return [
        transitions._holder_fault,
        Worker._end,
        LogStore.append,
        lanes._judge,
        dict(transitions.TRANSITIONS[JobExpire]),
        records.open_record,
    ]


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_mutant_is_caught_and_its_seed_passes_without_it(name):
    catch = mutants.hunt(name, range(mutants.SEEDS))
    assert catch is not None, f"{name} survived {mutants.SEEDS} seeds"
    assert catch.law in CAUGHT_BY[name], catch
    assert mutants.unmutated([catch.seed]) == []


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_mutant_leaves_nothing_behind(name):
    before = patchable()
    with mutants.MUTANTS[name]():
        assert patchable() != before
    assert patchable() == before


def test_a_survivor_fails_the_command(capsys, monkeypatch):
    harmless = {"harmless": mutants.MUTANTS["early_ack"]}
    monkeypatch.setattr(mutants, "MUTANTS", harmless)
    monkeypatch.setattr(mutants, "hunt", lambda *_: None)
    monkeypatch.setattr(mutants, "unmutated", lambda _: [])
    assert mutants.main(["--seeds", "2"]) == 1
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["mutants"], report["caught"], report["seeds_max"]) == (1, 0, 2)
