"""Seeds: the same one is the same run, and none of them breaks a law."""

import json
import os
import subprocess
import sys

import pytest

from simulator.seeds import command
from simulator.seeds.world import Plan, run
from tests.examples import size

SHORT = {
    "chaos_s": size(60.0, soak=420.0),
    "faults_per_hour": size(1_500.0, soak=500.0),
    "jobs_per_hour": size(1_000.0, soak=400.0),
}
MINUTES = size(3, soak=15)
MOST_WORLDS = 12

DIGEST = f"""
from simulator.seeds.world import Plan, run
print(run(Plan(seed=5, **{SHORT})).digest)
"""


@pytest.mark.processes
def test_the_same_seed_is_the_same_run_byte_for_byte():
    first, second = (run(Plan(seed=5, **SHORT)) for _ in range(2))
    assert first.ops > 100
    assert first == second
    # In other processes, whatever their hashes of strings are.
    for salt in size(("77",), soak=("1", "77")):
        found = subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == first.digest


@pytest.mark.parametrize("seed", range(200, size(202, soak=208)))
def test_handlers_that_take_steps_compute_none_again(seed):
    outcome = run(Plan(seed=seed, **SHORT, has_steps=True))
    assert not outcome.violations, "\n".join([*map(str, outcome.violations), *outcome.stories])


@pytest.mark.parametrize("seed", range(300, size(302, soak=308)))
def test_audited_handlers_leave_out_no_model_call(seed):
    outcome = run(Plan(seed=seed, **SHORT, is_audited=True, stress=("false_account",)))
    assert not outcome.violations, "\n".join([*map(str, outcome.violations), *outcome.stories])
    assert "honest audit" not in outcome.verdicts


@pytest.mark.parametrize("seed", range(300, size(302, soak=312)))
def test_jobs_ask_people_who_are_as_fallible_as_machines(seed):
    outcome = run(Plan(seed=seed, **SHORT, has_questions=True, has_steps=seed % 2 == 1))
    assert not outcome.violations, "\n".join([*map(str, outcome.violations), *outcome.stories])


def test_another_seed_is_another_run():
    assert run(Plan(seed=4, chaos_s=60)).digest != run(Plan(seed=5, chaos_s=60)).digest


@pytest.mark.req("M12", "M23")
@pytest.mark.parametrize("seed", range(100, size(103, soak=106)))
def test_every_law_holds_under_fire(seed, monkeypatch):
    """Among the laws: no honest worker claims what it could know to be held (`no_racing`)."""
    outcome = run(Plan(seed=seed, chaos_s=60 * MINUTES, faults_per_hour=360))
    replay = f"python -m simulator --seed {seed} --minutes {MINUTES} --faults 360 --hours 0.1"
    told = "\n".join([*map(str, outcome.violations), *outcome.stories, replay])
    assert not outcome.violations, told
    assert outcome.jobs >= 4 * MINUTES
    assert sum(outcome.faults.values()) >= 4 * MINUTES


def test_the_faults_that_are_promised_happen():
    """In a world or in the next one: each is as short as it can be with that many in it."""
    faults = {
        "request lost",
        "answer lost",
        "request late",
        "request doubled",
        "lagging read",
        "notice lost",
        "announcement lost",
        "crash of worker",
        "crash of full node",
        "pause of worker",
        "ambush",
        "cut off",
        "split",
        "outage",
        "failover",
        "small step",
        "large step",
        "drain",
        "hostile",
        "control",
    }
    verdicts = {"subject", "signature", "prev", "early", "drift", "not_owner", "held"}
    for seed in range(18, 18 + MOST_WORLDS):
        outcome = run(Plan(seed=seed, chaos_s=300, faults_per_hour=3_000))
        assert not outcome.violations, f"seed {seed}: {outcome.violations}"
        kinds, told = " ".join(outcome.faults), " ".join(outcome.verdicts)
        faults = {wanted for wanted in faults if wanted not in kinds}
        verdicts = {wanted for wanted in verdicts if f"hostile {wanted}" not in told}
        if not faults | verdicts:
            return
    pytest.fail(f"not seen in {MOST_WORLDS} worlds: {sorted(faults | verdicts)}")


def test_the_command_reports_in_one_line_and_by_its_exit_code(capsys):
    assert command.main(["--hours", "0.05", "--minutes", "3", "--seed", "1"]) == 0
    out = capsys.readouterr()
    report = json.loads(out.out.splitlines()[-1])
    assert report["violations"] == 0
    assert report["hours"] >= 0.05
    assert report["seeds"] == report["chained_worlds"] == 1
    assert report["grants"] > 5
    assert {"revocations", "left_open", "healing_s_max"} <= report.keys()
    assert report["faults"] > 0
    assert "seed 1:" in out.err


def test_a_broken_law_is_told_with_its_story_and_the_command_that_replays_it(capsys, monkeypatch):
    from simulator.mutants.runtime import early_ack

    with early_ack():
        code = command.main(["--hours", "0.01", "--minutes", "2", "--seed", "0"])
    out = capsys.readouterr()
    assert code == 1
    assert json.loads(out.out.splitlines()[-1])["violations"] > 0
    assert "acks_are_true" in out.err
    assert "schedule" in out.err
    assert "--hours 0.1 --seed 0 --minutes 2" in out.err
