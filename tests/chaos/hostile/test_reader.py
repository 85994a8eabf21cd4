"""`chaos hostile --only reader`, as small as it still shows something."""

import pytest

from chaos.hostile.reader.trial import Plan, holds, trial


@pytest.mark.nats
@pytest.mark.long
async def test_a_member_that_may_only_read_stops_nobody():
    """How much later jobs are is measured by the command; this is too short for numbers."""
    plan = Plan(flood_s=0.0, beside_s=0.0, rounds=1, settle_s=0.0, warm_s=0.0)
    said = await trial(plan)
    slack = {"latency_ratio": 1.0, "revoked_s": 0.0}
    assert holds({**said, **slack}), said
    assert said["sent"] > 1_000
    assert said["jobs"] >= len(said["floods"]) * 2


UNHARMED = {
    "lost": 0,
    "accepted_twice": 0,
    "latency_ratio": 2.0,
    "node_mb_growth": 50.0,
    "revoked_s": 5.0,
    "services_ended": 0,
    "healthz_s_max": 1.0,
}


@pytest.mark.parametrize("name", UNHARMED)
def test_a_reader_that_achieved_anything_does_not_pass(name):
    assert holds(UNHARMED)
    assert not holds({**UNHARMED, name: UNHARMED[name] + 0.1})
