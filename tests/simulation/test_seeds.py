"""Seeds: the same one is the same run, and none of them breaks a law."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from simulator.seeds import command
from simulator.seeds.final_audit import Auditor
from simulator.seeds.seed_plan import plan_of
from simulator.seeds.world import Plan, run
from tests.examples import size

SHORT = {
    "chaos_s": size(60.0, soak=420.0),
    "faults_per_hour": size(1_500.0, soak=500.0),
    "jobs_per_hour": size(1_000.0, soak=400.0),
}
MINUTES = size(3, soak=15)
LENGTH = size(["--minutes", "0.2"], soak=[])
FIRST = 101
MOST_WORLDS = 12


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize("seed", size([7], soak=[5, 6, 7]))
def test_the_same_seed_is_the_same_run_in_another_process(seed, capsys):
    """Whatever its hashes of strings are."""
    given = ["--seeds", "1", "--seed", str(seed), "--minutes", size("1", soak="7")]
    assert command.main([*given, "--faults", "1500"]) == 0
    here = capsys.readouterr()
    for salt in size(("77",), soak=("1", "77")):
        there = subprocess.run(
            [sys.executable, "-m", "simulator", *given, "--faults", "1500"],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        assert facts(there.stdout) == facts(here.out)
        assert "digest " in here.err
        assert there.stderr.partition("[")[0] == here.err.partition("[")[0]


def facts(out):
    """What the last line says, except how long it took."""
    report = json.loads(out.splitlines()[-1])
    assert report["ops"] > 50
    return report | {"seconds": 0, "hours_per_second": 0}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, size(202, soak=208)))
def test_handlers_that_take_steps_compute_none_again(seed):
    outcome = run(Plan(seed=seed, **SHORT, has_steps=True))
    assert not outcome.violations, "\n".join([*map(str, outcome.violations), *outcome.stories])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(300, size(302, soak=308)))
def test_audited_handlers_leave_out_no_model_call(seed):
    outcome = run(Plan(seed=seed, **SHORT, is_audited=True, stress=("false_account",)))
    assert not outcome.violations, "\n".join([*map(str, outcome.violations), *outcome.stories])
    assert "honest audit" not in outcome.verdicts


@pytest.mark.long
@pytest.mark.parametrize("seed", range(300, size(302, soak=312)))
def test_jobs_ask_people_who_are_as_fallible_as_machines(seed):
    outcome = run(Plan(seed=seed, **SHORT, has_questions=True, has_steps=seed % 2 == 1))
    assert not outcome.violations, "\n".join([*map(str, outcome.violations), *outcome.stories])


def failing(*arguments):
    """Run the command while every world breaks a law: its report, and the commands it printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Auditor, "seals_are_true", lambda self: self.cluster.referee.accuse("a law", "")
        )
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command.main([*arguments, "--processes", "1"])
    assert code == 1
    printed = re.findall(r"replay it alone: +python -m simulator (.+)", err.getvalue())
    return json.loads(out.getvalue().splitlines()[-1]), [shlex.split(one) for one in printed]


@pytest.fixture(scope="module")
def sweep():
    report, commands = failing("--seed", str(FIRST), "--seeds", "10", *LENGTH)
    assert len(set(report["broken"].values())) == 10, "another seed is another world"
    assert report["violations"] == 10, "only what was planted"
    return list(report["broken"].items()), commands


@pytest.mark.parametrize("place", range(10))
def test_the_command_printed_at_a_failure_replays_that_world_wherever_it_was(sweep, place):
    worlds, commands = sweep
    report, _ = failing(*commands[place])
    assert list(report["broken"].items()) == [worlds[place]]


@pytest.mark.parametrize("first", [0, 2, 8, 101, 1_000_003])
def test_an_hour_of_consecutive_seeds_has_every_feature(first):
    plans = command.plans_of(command.parse(["--hours", "1", "--seed", str(first)]))
    assert sum(plan.chaos_s for plan in plans) >= 3600
    for feature in ("is_chained", "has_plans", "has_steps", "is_audited", "has_questions"):
        assert {getattr(plan, feature) for plan in plans} == {False, True}
    assert {bool(plan.rules.selection) for plan in plans} == {False, True}
    assert plans == [plan_of(plan.seed) for plan in plans]


def test_in_time_every_sort_of_world_is_long():
    long = [plan for plan in map(plan_of, range(72)) if plan.chaos_s > 300]
    assert {plan.seed % 8 for plan in long} == set(range(8))


@pytest.mark.long
@pytest.mark.req("M12", "M23")
@pytest.mark.parametrize("seed", range(101, size(103, soak=107)))
def test_every_law_holds_under_fire(seed, capsys):
    """Among the laws: no honest worker claims what it could know to be held (`no_racing`)."""
    given = ["--seeds", "1", "--seed", str(seed), "--minutes", str(MINUTES), "--faults", "360"]
    assert command.main([*given, "--processes", "1"]) == 0, "what is printed says how to replay it"
    out = capsys.readouterr()
    report = json.loads(out.out.splitlines()[-1])
    assert (report["seeds"], report["violations"], report["broken"]) == (1, 0, {})
    assert report["hours"] >= MINUTES / 60
    assert report["jobs"] >= 4 * MINUTES
    assert report["faults"] >= 4 * MINUTES
    assert report["chained_worlds"] == seed % 2
    assert (report["grants"] > 5) == (seed % 2 == 1)
    assert {"revocations", "left_open", "healing_s_max"} <= report.keys()
    assert f"seed {seed}:" in out.err


@pytest.mark.long
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


def test_a_broken_law_is_told_with_its_story_and_the_command_that_replays_it(capsys, monkeypatch):
    from simulator.mutants.runtime import early_ack

    with early_ack():
        code = command.main(["--seeds", "1", "--minutes", "1", "--seed", "0"])
    out = capsys.readouterr()
    assert code == 1
    assert json.loads(out.out.splitlines()[-1])["violations"] > 0
    assert "acks_are_true" in out.err
    assert "schedule" in out.err
    assert "python -m simulator --seeds 1 --seed 0 --minutes 1" in out.err
