"""Step 7 of the recipe: the family in a simulated cluster, with its own machine and its own law."""

import pytest
from msgspec.structs import replace

from antiphon.core.record.verdict import Verdict
from simulator.seeds.seed_plan import Plan
from simulator.seeds.world import run
from tests.examples import size
from tests.families.guest import polls_as_guest
from tests.families.polls import POLLS, table

PLAN = Plan(seed=4, chaos_s=size(180.0, soak=900.0), jobs_per_hour=60.0)


@pytest.mark.slow
def test_it_is_simulated_with_faults_and_every_reader_agrees():
    guest, law = polls_as_guest()
    outcome = run(PLAN, [guest])
    assert [f"{one.law}: {one.what}" for one in outcome.violations] == []
    assert law.seen > size(10, soak=20), "enough happened to speak of"
    assert len(law.closed) > size(0, soak=3)
    assert sum(outcome.faults.values()) > 10


def test_its_law_finds_a_table_that_forgets():
    guest, _ = polls_as_guest()

    def forgetful(poll, op, at):
        found = table.step(poll, op, at)
        if found is Verdict.ALREADY:
            return replace(poll, hlc=op.hlc, hlc_author=op.author)
        return found

    broken = replace(guest, family=replace(guest.family, step=forgetful))
    outcome = run(replace(PLAN, stop_at_first=True), [broken])
    assert {one.law for one in outcome.violations} == {"one_vote_each"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"enter": lambda op, seq, op_id: POLLS.enter(op, seq + 1, op_id)},
        {"entry": lambda poll: POLLS.entry(poll) + 1},
    ],
    ids=["another state", "another place"],
)
def test_a_lane_that_is_entered_as_something_else_is_found(wrong):
    guest, _ = polls_as_guest()
    broken = replace(guest, family=replace(guest.family, **wrong))
    outcome = run(replace(PLAN, stop_at_first=True), [broken])
    assert {one.law for one in outcome.violations} == {"entered_as_read"}
