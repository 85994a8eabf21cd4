"""`bench growth`, as small as it still shows something."""

import json
from contextlib import AsyncExitStack
from xml.etree import ElementTree as ET

import pytest

from antiphon.assembly import hosted_mesh
from antiphon.engines.nats import LocalServer
from antiphon.runtime.identity.state_directory import StateDirectory
from bench.growth import axes, workers
from bench.growth import command as growth
from bench.meshes.idle_fleet import Fleet, Watched
from bench.meshes.idle_worker import RULES


@pytest.mark.processes
def test_every_tenth_has_its_costs_and_all_jobs_what_the_archive_keeps_of_them(capsys, tmp_path):
    args = ["--axis", "jobs", "--jobs", "200", "--hour", "1", "--plot", str(tmp_path)]
    assert growth.main(args) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["jobs"], said["judged"], said["judged_ok"]) == (200, 100, 100)
    for key in ("per_s", "worker_cpu_ms", "node_cpu_ms", "server_cpu_ms", "caller_cpu_ms"):
        assert len(said[key]) == 10
    assert said["snapshot_start_s"] > 0
    assert said["mb_per_million"] > 0
    curves = ET.parse(tmp_path / "growth-jobs.svg").getroot().findall("{*}polyline")
    assert [len(one.get("points").split()) for one in curves] == [10] * 9


@pytest.mark.processes
def test_an_axis_has_what_each_pays_with_none_a_tenth_and_all(capsys, monkeypatch):
    monkeypatch.setattr(axes, "JOBS", 5)
    monkeypatch.setattr(axes, "SETTLE_S", 0.0)
    assert growth.main(["--axis", "plans", "--quick"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = said["axes"]["plans"]
    assert found["count"] == [0, 2, 20]
    assert said["light_worker_slope"] == found["worker_slope"]
    assert all(len(found[key]) == 3 for key in ("worker_cpu_ms", "node_mb", "server_mb"))


@pytest.mark.processes
async def test_a_fleet_of_idle_workers_is_counted_by_what_each_part_sends(tmp_path):
    home = StateDirectory(tmp_path / "home")
    async with LocalServer(tmp_path / "server") as server, AsyncExitStack() as stack:
        await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
        fleet = Fleet(stack, home)
        await fleet.add(3)
        seen = await fleet.watch(server, 0.1)
        assert (fleet.count, len(fleet.pids), seen.connections) == (3, 1, 4)
        parts = await fleet.parts(server, 0.1)
        assert set(parts) <= {"pulls", "reads", "heartbeats", "beats", "answers", "others"}


def test_what_a_connection_costs_by_itself_is_not_counted_for_messages():
    empty, full = (
        Watched(
            connections=count,
            in_per_s=0.05 * count,
            out_per_s=0.05 * count,
            server_cpu_pct=1.0 + 0.004 * count,
            server_mb=20.0 + 0.1 * count,
            fleet_cpu_pct=0.0,
            fleet_mb=0.0,
            watched_s=60.0,
        )
        for count in (0, 1_000)
    )
    looks = [workers.Idle(up_s=1.0, seen=full, parts={}, node_cpu_pct=1.0)]
    found = workers.costs(1_000, empty, looks, workers.Bare(kb=30.0, us_per_s=20.0))
    assert found["idle_msgs_per_worker"] == 0.05
    assert found["server_kb_per_worker"] == 102.4
    assert found["server_us_per_worker_s"] == 40.0
    assert found["server_us_per_message"] == 400
