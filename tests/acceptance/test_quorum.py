"""Jobs that several workers have to agree on, as typed."""

from pathlib import Path

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats

TASKS = str(Path(__file__).resolve().parents[2] / "examples" / "tasks.py")


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev():
        yield typed


def test_a_result_by_quorum_and_the_record_of_who_agreed(shell):
    assert "no job was run as replicas yet" in shell.run("nodes", "--record").out
    with (
        shell.start("worker", TASKS, "--json") as one,
        shell.start("worker", TASKS, "--json") as two,
    ):
        one.line("ready")
        two.line("ready")
        answer = shell.run("submit", "text.count", "a b a", "--replicas", "2", "--quorum", "2")
        assert answer.code == 0, answer.err
        record = shell.run("nodes", "--record", "--json").json["record"]
        assert [(one["done"], one["agreed"], one["disagreed"]) for one in record] == [(1, 1, 0)] * 2
        assert "AGREED" in shell.run("nodes", "--record").out


def test_where_anybody_may_come_it_is_told_how_many_are_there(shell):
    with shell.start("worker", TASKS, "--json") as one:
        one.line("ready")
        call = ("submit", "text.count", "a", "--replicas", "2")
        seen = shell.on_screen(*call, columns=200, seeing="another member", ends=True)
        said = "2 independent parties have to agree on text.count, and workers of 1 are"
        assert said in " ".join(seen.split())
        answer = shell.run(*call, "--detach")
        assert "warning: 2 independent parties have to agree on text.count" in answer.err


def test_a_quorum_that_cannot_be_is_a_sentence(shell):
    answer = shell.run("submit", "text.count", "a", "--replicas", "2", "--quorum", "3")
    assert answer.code != 0
    assert "3 of 2 replicas cannot be a quorum" in answer.err
    answer = shell.run("submit", "text.count", "a", "--quorum", "2")
    assert answer.code != 0
    assert "no number of replicas is given" in answer.err
