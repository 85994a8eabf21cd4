"""`chaos gitface`, as small as it still shows something."""

import json

import pytest

from chaos.gitface.command import Plan, holds, run
from tests.interfaces.git.signed_commits import require_ssh_keygen

pytestmark = [pytest.mark.nats, pytest.mark.long]


async def test_pushed_commits_are_one_job_each_although_the_bridge_is_killed(capsys):
    require_ssh_keygen()
    plan = Plan(jobs=2, writers=1, kills=1, size=2, seed=2)
    code = await run(plan)
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert (said["jobs"], said["verified_from_clone"], said["trailers_agree"]) == (2, 2, 2)
    assert (said["lost"], said["twice"], said["wrong"]) == (0, 0, 0)
    assert (said["noted"], said["notes_verified"]) == (2, 2)
    assert said["size_jobs"] == 2
    worse = {"lost": 1, "twice": 1, "verified_from_clone": 1, "killed": 0, "noted": 1}
    for key, value in worse.items():
        assert not holds({**said, key: value}, plan), key
