"""A machine that writes through an outbox in a simulated cluster: what it is told is so."""

import pytest

from simulator.actors.offline_writers import offline_as_guest
from simulator.seeds.seed_plan import Plan
from simulator.seeds.world import run
from tests.examples import size


@pytest.mark.slow
@pytest.mark.req("P12")
def test_what_waited_is_written_once_and_told_as_it_is_and_the_outbox_drains():
    guest, law = offline_as_guest()
    plan = Plan(seed=4, chaos_s=size(240.0, soak=1800.0), jobs_per_hour=30.0)
    outcome = run(plan, [guest])
    assert [f"{one.law}: {one.what}" for one in outcome.violations] == []
    assert law.told["held"] == len(law.accepted) > size(5, soak=50), "enough happened to speak of"
    assert law.told["dropped"] > 0
    assert sum(outcome.faults.values()) > 5
