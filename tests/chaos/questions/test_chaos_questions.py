"""`chaos questions`, as small as it still shows something."""

import json

import pytest

from chaos.questions.command import Plan, run


@pytest.mark.nats
@pytest.mark.slow
async def test_answers_outlast_what_is_killed_and_none_is_made_up(capsys):
    code = await run(Plan(jobs=3, kills=3, workers=2, seed=3, selves=1, bundles=1))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert said["asked"] == said["answered"] >= 7
    assert (said["lost"], said["twice"], said["believed"]) == (0, 0, 0)
    assert said["shown_offline"] == 2, "the bundle says who answered"
