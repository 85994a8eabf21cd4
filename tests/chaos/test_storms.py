"""The chaos commands, as small as they still show something."""

import json

import pytest
from msgspec import structs

from bench import latency
from chaos import drain, hostile, hostile_reader, partition, workers
from chaos.workers import Storm

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.timeout(400)]

STORM = Storm(workers=3, jobs=40, kills=8, server_kills=1, replicas=1, seed=3)


def told(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


async def test_killed_workers_and_a_killed_server_lose_nothing_and_nothing_counts_twice(capsys):
    code = await workers.run(STORM)
    said = told(capsys)
    assert code == 0, said
    assert (said["jobs"], said["kills"], said["server_kills"]) == (40, 8, 1)
    assert (said["lost"], said["accepted_twice"]) == (0, 0)
    assert said["executions"] >= 40


async def test_a_cluster_that_loses_servers_in_turn_loses_no_job(capsys):
    storm = Storm(workers=3, jobs=40, kills=8, server_kills=2, replicas=3, seed=5)
    code = await workers.run(storm)
    said = told(capsys)
    assert code == 0, said
    assert (said["jobs"], said["replicas"], said["server_kills"]) == (40, 3, 2)
    assert (said["succeeded"], said["lost"], said["accepted_twice"]) == (40, 0, 0)


@pytest.mark.timeout(600)
async def test_a_long_storm_over_twelve_workers(capsys):
    """2,000 jobs of 20 to 200 ms, 300 strikes against workers, 20 against the server."""
    storm = Storm(workers=12, jobs=2_000, kills=300, server_kills=20, replicas=1, seed=11)
    code = await workers.run(storm)
    said = told(capsys)
    assert code == 0, said
    assert (said["jobs"], said["lost"], said["accepted_twice"]) == (2_000, 0, 0)
    assert said["kills"] >= 300
    assert said["server_kills"] >= 20


async def test_sites_that_are_late_half_open_or_cut_off_lose_nothing(capsys):
    weather = partition.Weather(workers=3, jobs=40, faults=6, seed=2)
    code = await partition.run(weather)
    said = told(capsys)
    assert code == 0, said
    assert said["faults"] >= 6
    assert (said["jobs"], said["lost"], said["accepted_twice"]) == (40, 0, 0)


async def test_a_worker_that_is_told_to_stop_finishes_or_gives_back(capsys):
    plan = drain.Plan(jobs=10, drain_s=2.0)
    code = await drain.run(plan)
    said = told(capsys)
    assert code == 0, said
    assert (said["finished"], said["yielded"]) == (5, 5)
    assert said["waited_for_expiry"] == 0
    assert said["handover_max_s"] < 3 < said["lease_s"]


@pytest.mark.parametrize("mode", hostile.MODES, ids=lambda mode: mode.name)
async def test_a_hostile_worker_delays_and_loses_nothing(mode):
    said = await hostile.trial(structs.replace(mode, stays_s=mode.stays_s / 4), 3)
    assert hostile.holds(said), said
    assert said["jobs"] == 3
    if mode.name == "buries":
        assert said["records"] > hostile.BURIED_UNDER
        assert said["expiries"] >= 1, "the buried job was claimed by an honest one afterwards"


HELD_OFF = {"jobs": 3, "lost": 0, "accepted_twice": 0, "delayed_max_s": 9.0, "bound_s": 9.0}


@pytest.mark.parametrize("change", [{"lost": 1}, {"accepted_twice": 1}, {"delayed_max_s": 9.1}])
def test_a_hostile_worker_that_achieved_anything_does_not_pass(change):
    assert hostile.holds(HELD_OFF)
    assert not hostile.holds({**HELD_OFF, **change})


async def test_a_member_that_may_only_read_stops_nobody():
    """How much later jobs are is measured by the command; this is too short for numbers."""
    plan = hostile_reader.Plan(flood_s=0.1, beside_s=0.1, rounds=1)
    said = await hostile_reader.trial(plan)
    assert hostile_reader.holds({**said, "latency_ratio": 1.0}), said
    assert said["sent"] > 10_000
    assert said["jobs"] >= len(said["floods"]) * 2


UNHARMED = {
    "lost": 0,
    "accepted_twice": 0,
    "latency_ratio": 2.0,
    "node_mb_growth": 50.0,
    "revoked_s": 5.0,
}


@pytest.mark.parametrize("name", UNHARMED)
def test_a_reader_that_achieved_anything_does_not_pass(name):
    assert hostile_reader.holds(UNHARMED)
    assert not hostile_reader.holds({**UNHARMED, name: UNHARMED[name] + 0.1})


async def test_latency_is_measured_from_the_call_to_the_handlers_first_line():
    async with latency.ground() as on:
        starts, deliveries, acks = await latency.measure(on, 0, 5)
    assert len(starts) == len(deliveries) == len(acks) == 5
    assert 0 < min(starts) <= max(starts) < 5_000
    assert 0 < min(deliveries) <= max(deliveries) < 5_000


FINE = {
    "jobs": 9,
    "succeeded": 9,
    "lost": 0,
    "accepted_twice": 0,
    "unwitnessed": 0,
    "same_fence": 0,
    "broken_laws": 0,
    "crashed": 0,
}


@pytest.mark.parametrize("name", [name for name in FINE if name != "jobs"])
def test_a_storm_that_left_anything_behind_does_not_pass(name):
    assert workers.holds(FINE)
    assert not workers.holds({**FINE, name: FINE[name] + 1})
