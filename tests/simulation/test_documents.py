"""Documents in a simulated cluster: faults, and every reader agrees."""

import pytest

from simulator.actors.document_writers import documents_as_guest
from simulator.seeds.seed_plan import Plan
from simulator.seeds.world import run
from tests.examples import size


@pytest.mark.slow
@pytest.mark.req("S13")
def test_documents_are_simulated_with_faults_and_nothing_is_overwritten():
    guest, law = documents_as_guest()
    plan = Plan(seed=4, chaos_s=size(240.0, soak=1800.0), jobs_per_hour=30.0)
    outcome = run(plan, [guest])
    assert [f"{one.law}: {one.what}" for one in outcome.violations] == []
    assert law.seen > size(10, soak=100), "enough happened to speak of"
    assert len(law.revisions) > 1
    assert law.deferred > size(0, soak=5)
    assert sum(outcome.faults.values()) > 5
