"""`chaos questions`, as small as it still shows something."""

import json

import pytest

from antiphon.runtime.caller.answers import answer
from chaos.questions import command
from chaos.questions.command import Plan, ask_alone, compare, run
from chaos.questions.people import Tried, open_questions
from tests.runtime.meshes import a_mesh, eventually

SMALL = Plan(jobs=3, kills=3, workers=2, seed=3, selves=1, bundles=1)


@pytest.mark.nats
@pytest.mark.long
async def test_answers_outlast_what_is_killed_and_none_is_made_up(capsys):
    code = await run(SMALL)
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert said["asked"] == said["answered"] == 6 + said["asked_alone"]
    assert (said["lost"], said["twice"], said["believed"]) == (0, 0, 0)
    assert said["shown_offline"] == 2, "the bundle says who answered"


@pytest.mark.virtual_time
async def test_a_question_that_somebody_answered_first_is_no_question_of_a_job(monkeypatch):
    really, given = command.submitted, {}

    async def overtaken(session, body):
        key = await really(session, body)
        if not given:  # before its author could try
            await answer(person, *key, "yes")
            given[key] = "yes"
        return key

    monkeypatch.setattr(command, "submitted", overtaken)
    async with a_mesh("memory") as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(connection=owner)
        person = (await mesh.connection()).session
        tried = Tried()
        alone = await ask_alone(owner.session, SMALL, tried)
        assert (len(alone), tried.refused, tried.accepted) == (2, 1, 0), "it asks another"
        await answer(person, *alone[1], "no")
        await eventually(lambda: not open_questions(node.session, node.replica))
        found = compare(node.replica, [], alone, given)
        assert (found.asked, found.asked_alone, found.answered) == (2, 2, 2)
        assert (found.twice, found.lost) == (0, 0)
