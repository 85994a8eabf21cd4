"""`bench presence`, as small as it still shows something."""

import json

from bench import presence


def test_the_cost_of_heartbeats_is_told_in_one_line(capsys):
    assert presence.main(["--nodes", "20", "--rounds", "2"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["nodes"], said["heartbeats_per_s"], said["answer_pages"]) == (20, 3.3, 1)
    assert 300 < said["bytes"] < 2_000
    assert said["cpu_us_per_heartbeat"] > 0
    assert said["answer_bytes"] > 20 * said["bytes"]
