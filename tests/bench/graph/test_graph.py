"""`bench graph` counts what it says."""

import json

import pytest

from bench.graph import command


def test_the_witness_counts_what_runs_at_one_time(tmp_path):
    witness = tmp_path / "witness"
    witness.write_text("10 1\n20 1\n30 -1\n25 1\n40 -1\n50 -1\n50 1\n60 -1\n")
    assert command.most_at_once(witness) == 3


@pytest.mark.exact_times
@pytest.mark.nats
def test_a_small_graph_keeps_to_its_order_and_its_limit(capsys):
    assert command.main(["--steps", "120", "--width", "4", "--workers", "1"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["is_right"]
    assert report["over_limit"] == 0
    assert 0 < report["engine_p50_ms"] < report["hop_p50_ms"]
