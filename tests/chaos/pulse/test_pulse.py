"""`chaos pulse`, as small as it still shows something."""

import json

import pytest

from chaos.pulse.command import Run, execute


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.req("B7", "B24")
async def test_killed_leaders_are_followed_by_others_and_listeners_count_on(capsys):
    code = await execute(Run(kills=2, seed=3))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert (said["kills"], said["two_leaders"], said["off_downbeat_changes"]) == (2, 0, 0)
    assert said["gap_ms_max"] < 2 * said["beat_ms"]
