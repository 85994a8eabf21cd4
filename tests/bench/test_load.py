"""`bench load`, as small as it still shows something."""

import json
from xml.etree import ElementTree as ET

import pytest

from bench.load import command as load
from bench.load.arrivals import Arrivals, Waits


@pytest.mark.processes
def test_it_finds_a_rate_holds_it_and_comes_back_from_twice_of_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(load, "RATES", (20,))
    monkeypatch.setattr(load, "LIMIT_MS", 60_000.0)  # how soon is not for a test to say
    assert load.main(["--quick", "--plot", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["held_per_s"], said["bare_held_per_s"], said["twice_refused"]) == (20, 20, 0)
    assert 0 < said["held_p50_ms"] <= said["held_p99_ms"]
    assert [words for _, words in said["phases"]] == ["20/s", "twice", "half"]
    assert len({len(values) for values in said["course"].values()}) == 1
    assert len(ET.parse(tmp_path / "load-1.svg").getroot().findall("{*}polyline")) == 5


def test_a_wait_is_known_to_one_per_cent():
    waits = Waits()
    for wait_ms in range(1, 1_001):
        waits.add(wait_ms)
    assert waits.percentile(0.5) == pytest.approx(500, rel=0.011)
    assert waits.percentile(0.99) == pytest.approx(990, rel=0.011)
    assert waits.later_than(900.0) == pytest.approx(100, abs=10)


def test_arrivals_are_read_once_and_half_a_line_is_read_when_it_is_whole(tmp_path):
    times = tmp_path / "times"
    arrivals = Arrivals(times, "start")
    arrivals.read()
    for number in range(3):
        arrivals.expect(str(number), 1_000_000)
    with times.open("ab") as file:
        file.write(b"start 0 3000000\nbare 1 5\nstart 1 40")
    arrivals.read()
    assert (arrivals.waiting, arrivals.waits.count) == (2, 1)
    with times.open("ab") as file:
        file.write(b"00000\n")
    arrivals.read()
    arrivals.refused("2")
    assert (arrivals.waiting, arrivals.waits.percentile(1)) == (0, pytest.approx(3, rel=0.011))
    assert (arrivals.recent().count, arrivals.recent().count) == (2, 0)
