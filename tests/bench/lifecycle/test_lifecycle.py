"""`bench lifecycle` measures what it says, in each of its modes and on each sort of mesh."""

import json

import pytest

from bench.lifecycle import command
from bench.lifecycle.round import Load, one_round

pytestmark = [pytest.mark.nats, pytest.mark.slow]

JOBS = 30
SIZES = (500, 900)


@pytest.mark.parametrize(
    "side, load",
    [
        ("ours", Load(mode="drain", mesh="members", jobs=JOBS, workers=1, slots=8)),
        ("ours", Load(mode="both", mesh="chain", jobs=JOBS, workers=1)),
        ("ours", Load(mode="submit", mesh="open", replicas=3, jobs=JOBS, workers=1)),
        ("bare", Load(mode="drain", mesh="members", jobs=JOBS, workers=1)),
        ("batched", Load(mode="drain", mesh="open", jobs=JOBS, workers=1)),
    ],
)
async def test_every_job_of_a_round_is_counted_on_the_log(side, load):
    found = await one_round(side, load, SIZES)
    assert found.per_s > 0
    assert found.caller_cpu_ms > 0
    if load.mode == "submit":
        assert found.worker_cpu_ms == 0
    elif side == "ours":
        assert 0 < found.sizes[0] < found.sizes[1]
    else:
        assert found.sizes == SIZES


def test_members_have_one_server(capsys):
    with pytest.raises(SystemExit, match="--replicas 1"):
        command.main(["--mesh", "members", "--replicas", "3", "--quick"])


def test_the_report_has_its_keys(capsys):
    arguments = [
        "--mode",
        "submit",
        "--jobs",
        "40",
        "--rounds",
        "1",
        "--latency-jobs",
        "0",
        "--processes",
        "1",
    ]
    assert command.main(arguments) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    wanted = "ours_per_s bare_per_s ratio workers replicas sync worker_cpu_ms server_cpu_ms"
    wanted += " caller_cpu_ms gate_cpu_ms batched_bare_per_s batched_ratio account"
    assert set(wanted.split()) <= set(report)
    assert (report["account"], report["replicas"], report["sync"]) == ("open", 1, "always")
