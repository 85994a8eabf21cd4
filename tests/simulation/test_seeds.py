"""Seeds: the same one is the same run, and none of them breaks a law."""

import json
import os
import subprocess
import sys

import pytest

from antiphon.testing import simulate
from antiphon.testing.simulation.world import Plan, run

SHORT = {"chaos_s": 420.0, "faults_per_hour": 500.0, "jobs_per_hour": 400.0}

DIGEST = """
from antiphon.testing.simulation.world import Plan, run
print(run(Plan(seed=5, chaos_s=420.0, faults_per_hour=500.0, jobs_per_hour=400.0)).digest)
"""


@pytest.mark.processes
def test_the_same_seed_is_the_same_run_byte_for_byte():
    first, second = (run(Plan(seed=5, **SHORT)) for _ in range(2))
    assert first.ops > 100
    assert first == second
    # In other processes, whatever their hashes of strings are.
    for salt in ("1", "77"):
        found = subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == first.digest


def test_another_seed_is_another_run():
    assert run(Plan(seed=4, chaos_s=60)).digest != run(Plan(seed=5, chaos_s=60)).digest


@pytest.mark.req("M12", "M23")
@pytest.mark.parametrize("seed", range(100, 106))
def test_every_law_holds_under_fire(seed, monkeypatch):
    """Among the laws: no honest worker claims what it could know to be held (`no_racing`)."""
    outcome = run(Plan(seed=seed, chaos_s=900, faults_per_hour=360))
    replay = (
        f"python -m antiphon.testing.simulate --seed {seed} --minutes 15 --faults 360 --hours 0.1"
    )
    told = "\n".join([*map(str, outcome.violations), *outcome.stories, replay])
    assert not outcome.violations, told
    assert outcome.jobs >= 60
    assert sum(outcome.faults.values()) >= 60


def test_the_faults_that_are_promised_happen():
    outcomes = [run(Plan(seed=seed, chaos_s=900, faults_per_hour=900)) for seed in (18, 19)]
    kinds = " ".join(kind for outcome in outcomes for kind in outcome.faults)
    for wanted in (
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
    ):
        assert wanted in kinds, wanted
    verdicts = " ".join(verdict for outcome in outcomes for verdict in outcome.verdicts)
    for wanted in ("subject", "signature", "prev", "early", "drift", "not_owner", "held"):
        assert f"hostile {wanted}" in verdicts, wanted


def test_the_command_reports_in_one_line_and_by_its_exit_code(capsys):
    assert simulate.main(["--hours", "0.05", "--minutes", "3", "--seed", "1"]) == 0
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
    from antiphon.testing.mutations.runtime import early_ack

    with early_ack():
        code = simulate.main(["--hours", "0.01", "--minutes", "2", "--seed", "0"])
    out = capsys.readouterr()
    assert code == 1
    assert json.loads(out.out.splitlines()[-1])["violations"] > 0
    assert "acks_are_true" in out.err
    assert "schedule" in out.err
    assert "--hours 0.1 --seed 0 --minutes 2" in out.err
