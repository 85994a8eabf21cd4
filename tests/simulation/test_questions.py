"""Questions that are open for days in a simulated cluster, while its machines come and go."""

import asyncio

import pytest

from antiphon.core.families.jobs.state import State
from simulator.actors import workload
from simulator.actors.people import ASKED_AT, QUESTION_KIND
from tests.simulation.cluster import call, ended, key_of, lane, play, submit, until

DAY_S = 24 * 3_600
OPEN_S = 3 * DAY_S
ON_EVERY_S = 8 * 3_600
"""Between two minutes in which node and worker are on."""


def questions(world):
    lanes = world.cluster.referee.lanes.items()
    return [one.job for (kind, _), one in lanes if kind == QUESTION_KIND and one.job is not None]


@pytest.mark.parametrize("days", [2, 4])
def test_a_question_is_open_for_days_while_machines_come_and_go(days, tmp_path, monkeypatch):
    monkeypatch.setattr(workload, "OPEN_S", (OPEN_S, OPEN_S))
    asks = call(ASKED_AT, kind="render.slow")

    async def story(world):
        node, worker, person = world.full[0], world.workers[0], world.people[0]

        async def switch_on(*machines):
            for machine in machines:
                machine.clock.correct()  # in a day a crystal is seconds off
                machine.boot()
            await asyncio.sleep(60)

        world.owner.boot()
        await switch_on(node, worker)
        world.owner.coordinate(node.keyring.did)
        await submit(world, asks)
        await until(lambda: questions(world))
        (first,) = questions(world)
        for passed_s in range(0, days * DAY_S, ON_EVERY_S):
            for machine in (world.owner, node, worker):
                machine.kill()
            await asyncio.sleep(ON_EVERY_S)
            await switch_on(node, worker)
            if passed_s + ON_EVERY_S < OPEN_S:
                assert lane(world, key_of(asks)).state is State.WAITING, "no worker is busy with it"
        runs = world.workload.runs
        if days * DAY_S < OPEN_S:
            assert [one.id for one in questions(world)] == [first.id]
            assert runs == 1
            await switch_on(person)
        await until(ended(world, key_of(asks)))
        asked, *then = questions(world)
        assert lane(world, key_of(asks)).outcome == "succeeded"
        assert asked.outcome == ("succeeded" if then else "expired")
        assert len(then) == (1 if days * DAY_S < OPEN_S else 0)

    _, outcome = play(tmp_path, story, has_questions=True)
    assert not outcome.violations
