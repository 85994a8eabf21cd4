"""Simulated beats: every law holds, and would notice if one did not."""

import json
import re
import shlex

import pytest

from simulator.checks.laws import Violation
from simulator.tempo import command, tempo_laws
from simulator.tempo.tempo_mutants import MUTANTS
from simulator.tempo.tempo_world import TempoPlan, run
from tests.examples import size

CAUGHT_BY = {
    "leads_after_its_lease": {"one_leader"},
    "changes_within_a_bar": {"on_downbeats"},
    "forgets_the_tempo": {"on_downbeats"},
    "any_term_is_followed": {"followed_once"},
    "the_last_to_arrive_counts": {"equal_reports"},
    "late_claims_are_left_out": {"equal_reports"},
}
SEEDS = range(6)
KNOWN_TO_CATCH = {"leads_after_its_lease": 5, "any_term_is_followed": 3}
"""Where the first seed catches nothing; the table only saves time."""


def small(seed: int) -> TempoPlan:
    return TempoPlan(seed=seed, minutes=10, agents=12, faults_per_minute=4)


@pytest.mark.long
@pytest.mark.req("B7", "B8", "B9", "B10", "B24")
def test_half_an_hour_of_many_agents_breaks_no_law(capsys):
    # 200 agents, as the command has by default, take eight times as long.
    agents = size(25, soak=200)
    assert command.main(["--seed", "1", "--agents", str(agents)]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["agents"], report["violations"]) == (agents, 0)
    assert report["minutes"] >= 30
    assert report["kills"] > 5
    assert report["takeover_beats_max"] <= 2
    assert report["tempo_changes"] > 5
    assert report["drift_pct"] <= 1
    assert report["bars"] > 30
    assert report["bars_changed"] > 10, "claims that came late changed reports, and alike"


@pytest.mark.req("B7", "B9")
@pytest.mark.parametrize("seed", SEEDS[: size(2, soak=6)])
def test_the_worlds_in_which_mutants_are_hunted_are_fine_without_one(seed):
    assert run(small(seed)).violations == []


@pytest.mark.req("B7", "B9", "B10")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
def test_each_deliberate_bug_is_caught(mutant):
    for seed in (KNOWN_TO_CATCH.get(mutant.__name__, 0), *SEEDS):
        with mutant():
            broken = {one.law for one in run(small(seed)).violations}
        if broken & CAUGHT_BY[mutant.__name__]:
            return
    pytest.fail(f"{mutant.__name__} was not caught")


def test_the_same_seed_is_the_same_world():
    first, second = (run(TempoPlan(seed=5, minutes=5, agents=6)) for _ in range(2))
    assert first == second


def test_the_command_printed_at_a_broken_law_replays_that_world_alone(monkeypatch, capsys):
    monkeypatch.setattr(tempo_laws, "one_leader", lambda _: [Violation("one_leader", "")])

    def broken(*arguments):
        assert command.main(list(arguments)) == 1
        out = capsys.readouterr()
        printed = re.findall(r"replay it alone: +python -m simulator.tempo (.+)", out.err)
        found = json.loads(out.out.splitlines()[-1])["broken"]
        return list(zip(found.items(), printed, strict=True))

    worlds = broken("--seed", "3", "--seeds", "3", "--minutes", "0.7", "--agents", "6")
    assert len({digest for (_, digest), _ in worlds}) == 3
    assert all(broken(*shlex.split(printed)) == [(one, printed)] for one, printed in worlds)
