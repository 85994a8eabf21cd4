"""`bench growth`, as small as it still shows something."""

import json
from xml.etree import ElementTree as ET

import pytest

from bench import growth


@pytest.mark.processes
def test_every_tenth_has_its_rate_and_its_costs_and_is_drawn(capsys, tmp_path):
    drawn = tmp_path / "growth.svg"
    assert growth.main(["--jobs", "200", "--plot", str(drawn)]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["jobs"], said["judged_ok"]) == (200, 20)
    for key in ("per_s", "worker_cpu_ms", "node_cpu_ms", "server_cpu_ms", "caller_cpu_ms"):
        assert len(said[key]) == 10
    curves = ET.parse(drawn).getroot().findall("{*}polyline")
    assert [len(one.get("points").split()) for one in curves] == [10] * 5
