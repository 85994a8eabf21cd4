"""Delayed jobs in a simulated cluster: they begin on time, and it is noticed if they do not."""

import asyncio

import pytest

from simulator.mutants.runtime import delays_unheeded
from simulator.seeds.punctuality import BEGINS_WITHIN_S, Punctuality
from tests.simulation.cluster import call, ended, key_of, lane, play, submit, until

DAY_MS = 24 * 3_600_000


def test_a_day_later_a_job_begins_without_the_coordinator_and_the_node_that_saw_the_call(tmp_path):
    late = call(delay_ms=DAY_MS)

    async def story(world):
        coordinator, other = world.full
        world.owner.boot()
        coordinator.boot()
        world.owner.coordinate(coordinator.keyring.did)
        model = world.cluster.referee.ledger.authority_model
        await until(lambda: model.coordinator == coordinator.keyring.did)
        await submit(world, late)
        await asyncio.sleep(5)
        for machine in (coordinator, world.owner, *world.submitters):
            machine.kill()
        not_before_ms = lane(world, key_of(late)).not_before_ms
        ahead_s = (not_before_ms - world.cluster.clock.now_ms()) / 1000
        await asyncio.sleep(ahead_s - 60)
        for machine in (other, world.workers[0]):
            machine.clock.correct()  # in a day a crystal is seconds off
            machine.boot()
        await until(ended(world, key_of(late)))
        job = lane(world, key_of(late))
        assert job.outcome == "succeeded"
        assert 0 <= job.called_ms - not_before_ms < 50

    _, outcome = play(tmp_path, story)
    assert not outcome.violations


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_job_that_nobody_offers_is_noticed_while_a_node_could(tmp_path, is_frozen):
    late = call(delay_ms=5_000)

    async def story(world):
        watch = asyncio.ensure_future(Punctuality(world.cluster, world.full).run())
        node = world.full[0]
        node.boot()
        await submit(world, late)
        if is_frozen:
            await asyncio.sleep(3)
            node.host.freeze()
        await asyncio.sleep(BEGINS_WITHIN_S + 10)
        watch.cancel()
        if is_frozen:
            node.host.thaw()

    with delays_unheeded():
        _, outcome = play(tmp_path, story)
    laws = [violation.law for violation in outcome.violations]
    assert laws == ([] if is_frozen else ["begins_on_time"])
