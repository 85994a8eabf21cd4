"""Steps 5 and 6 of the recipe: `mesh.polls` by its own command, and what is no job is shown."""

import sys
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats

ROOT = Path(__file__).parents[2]


@pytest.fixture
def typed(tmp_path):
    """A terminal in which `antiphon` is the one with the line that registers polls."""
    program = tmp_path / "antiphon"
    registered = f"{sys.executable} -m tests.families.registered antiphon"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {registered} "$@"\n')
    program.chmod(0o700)
    place = tmp_path / "place"
    place.mkdir()
    return Shell(place, program=program)


def test_a_poll_has_a_command_and_watch_and_show_tell_of_it(typed):
    with typed.dev(), typed.start("watch") as watching:
        assert "watching mesh" in watching.process.stderr.readline()
        for words in (("ask", "team.lunch", "pizza", "Pizza?"), ("close", "team.lunch", "pizza")):
            done = typed.run("poll", *words)
            assert done.code == 0, done.err
        assert "team.lunch" in watching.line("asked 'Pizza?'")
        watching.line("closed the poll")
        shown = typed.run("show", "pizza")
        assert shown.code == 0, shown.err
        assert "polls  team.lunch pizza" in shown.out
        assert "state closed" in shown.out
        assert "asked 'Pizza?'" in shown.out
        facts = typed.run("show", "piz", "--json").json
        assert (facts["family"], facts["name"], facts["facts"]["ayes"]) == ("polls", "pizza", 0)
        assert typed.run("poll", "ls", "--json").json == {
            "poll": "pizza", "question": "Pizza?", "ayes": 0, "is_open": False,
        }  # fmt: skip
        missing = typed.run("show", "nobody-asked")
        assert missing.code != 0
        assert "antiphon jobs lists them" in missing.err
