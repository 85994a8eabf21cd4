"""`chaos workers`, as small as it still shows something."""

import json

import pytest

from chaos.workers.command import Plan, run

pytestmark = [pytest.mark.nats, pytest.mark.long]

PLAN = Plan(workers=3, jobs=40, kills=8, server_kills=1, replicas=1, seed=3)


def report(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


async def test_killed_workers_and_a_killed_server_lose_nothing_and_nothing_counts_twice(capsys):
    code = await run(PLAN)
    said = report(capsys)
    assert code == 0, said
    assert (said["jobs"], said["kills"], said["server_kills"]) == (40, 8, 1)
    assert (said["lost"], said["accepted_twice"]) == (0, 0)
    assert said["executions"] >= 40


async def test_a_cluster_that_loses_servers_in_turn_loses_no_job(capsys):
    plan = Plan(workers=3, jobs=40, kills=8, server_kills=2, replicas=3, seed=5)
    code = await run(plan)
    said = report(capsys)
    assert code == 0, said
    assert (said["jobs"], said["replicas"], said["server_kills"]) == (40, 3, 2)
    assert (said["succeeded"], said["lost"], said["accepted_twice"]) == (40, 0, 0)


@pytest.mark.soak
async def test_a_long_run_with_twelve_workers(capsys):
    """2,000 jobs of 20 to 200 ms, 300 strikes against workers, 20 against the server."""
    plan = Plan(workers=12, jobs=2_000, kills=300, server_kills=20, replicas=1, seed=11)
    code = await run(plan)
    said = report(capsys)
    assert code == 0, said
    assert (said["jobs"], said["lost"], said["accepted_twice"]) == (2_000, 0, 0)
    assert said["kills"] >= 300
    assert said["server_kills"] >= 20
