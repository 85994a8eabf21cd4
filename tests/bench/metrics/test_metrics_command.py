"""`bench metrics`, as small as it still shows something."""

from collections import Counter

import pytest

from bench.metrics.calls import LATER, NOBODY, SHAKY, STEADY
from bench.metrics.command import compared, differences, overheads_pct
from bench.metrics.cost import HOWS, costs


@pytest.mark.nats
@pytest.mark.processes
async def test_metrics_of_node_and_worker_are_what_the_log_says():
    found, told = await compared(40)
    assert found == []
    assert told.jobs_ended_total == {
        (STEADY, "succeeded"): 28,
        (SHAKY, "succeeded"): 4,
        (SHAKY, "failed"): 2,
        (LATER, "succeeded"): 4,
        (NOBODY, "cancelled"): 1,
    }
    assert told.runs_total[LATER, "retries"] == 4
    assert told.jobs[NOBODY, "pending"] == 1


def test_a_metric_that_is_not_what_the_log_says_is_named():
    scraped = {("jobs", "a", "failed"): 2.0, ("jobs", "b", "failed"): 0.0}
    assert differences("node", scraped, "jobs", Counter({("a", "failed"): 2})) == []
    (said,) = differences("node", scraped, "jobs", Counter({("a", "failed"): 3}))
    assert said == "node: jobs['a', 'failed'] is 2, the log says 3"
    assert len(differences("node", scraped, "jobs", Counter({("c", "failed"): 1}))) == 2


@pytest.mark.processes
async def test_every_turn_runs_its_jobs_and_is_compared_within_its_round():
    found = await costs(5, 2)
    assert {how: len(values) for how, values in found.items()} == dict.fromkeys(HOWS, 2)
    assert all(value > 0 for values in found.values() for value in values)
    assert overheads_pct({"plain": [2.0], "traces": [2.2]}, "traces") == [pytest.approx(10.0)]
