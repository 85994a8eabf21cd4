"""`chaos partition`, as small as it still shows something."""

import json

import pytest

from chaos.partition import proxy_faults
from chaos.partition.trial import Plan

pytestmark = [pytest.mark.nats, pytest.mark.long]


async def test_sites_that_are_late_half_open_or_cut_off_lose_nothing(capsys):
    plan = Plan(workers=3, jobs=40, faults=6, seed=2)
    code = await proxy_faults.run(plan)
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert said["faults"] >= 6
    assert (said["jobs"], said["lost"], said["accepted_twice"]) == (40, 0, 0)
