"""`bench peers` compares like with like, and says what is missing."""

import importlib.util
import json
import shutil

import pytest

from bench.peers import command, redis_server
from bench.peers.antiphon_side import antiphon_round
from bench.peers.side import PeerLoad

HAS_PEERS = all(importlib.util.find_spec(name) for name in ("dramatiq", "redis")) and (
    shutil.which("redis-server") is not None
)


def test_without_the_peer_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"dramatiq is missing[^ ]*(.|\n)*--group peers"):
        command.main(["--quick"])


def test_without_redis_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"redis-server is missing(.|\n)*apt install"):
        redis_server.find_redis()


@pytest.mark.nats
@pytest.mark.slow
async def test_our_side_runs_every_job():
    load = PeerLoad(jobs=40, processes=1, slots=8, threads=8, work_ms=1, replicas=1)
    found = await antiphon_round(load)
    assert 0 < found.per_s <= 8 * 1000
    assert found.worker_cpu_ms > 0


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.skipif(not HAS_PEERS, reason="needs a redis-server and the dependency group peers")
def test_both_sides_are_measured_in_turn(capsys):
    command.main(["--jobs", "60", "--rounds", "1", "--processes", "1", "--work-ms", "1"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["best_peer"] == "dramatiq"
    assert set(report["peers"]) == {"antiphon", "dramatiq"}
    assert report["lead"] == pytest.approx(
        report["antiphon_per_s"] / report["best_peer_per_s"], rel=0.1
    )
    for one in report["peers"].values():
        assert one["of_ideal"] > 0
        assert one["worker_cpu_ms"] > 0
