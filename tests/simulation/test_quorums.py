"""Jobs with replicas in a simulated cluster: the truth is accepted although a worker lies."""

import pytest

from simulator.actors.workload import LIAR, REPLICATED_AT
from tests.simulation.cluster import call, ended, key_of, lane, play, submit, types_on, until


@pytest.mark.parametrize("seed", range(3))
def test_a_job_is_resolved_by_those_that_agree(tmp_path, seed):
    job = call(REPLICATED_AT, is_replicated=True)

    async def story(world):
        world.owner.boot()
        for machine in (*world.full, *world.workers[:3]):
            machine.boot()
        world.owner.coordinate(world.full[0].keyring.did)
        await submit(world, job)
        await until(ended(world, key_of(job)))

    world, outcome = play(tmp_path, story, seed=seed)
    assert not outcome.violations
    assert world.workers[2].name == LIAR
    assert lane(world, key_of(job)).state == "succeeded"
    assert types_on(world, key_of(job)) == [("schedule", "ok"), ("resolve", "ok")]
