"""`chaos drain`, as small as it still shows something."""

import json

import pytest

from chaos.drain.command import Plan, run

pytestmark = [pytest.mark.nats, pytest.mark.slow]


async def test_a_worker_that_is_told_to_stop_finishes_or_gives_back(capsys):
    code = await run(Plan(jobs=10, drain_s=2.0))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert (said["finished"], said["yielded"]) == (5, 5)
    assert said["waited_for_expiry"] == 0
    assert said["handover_max_s"] < said["lease_s"]
