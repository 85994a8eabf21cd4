"""`antiphon why`, and jobs that only some workers can do, as typed."""

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


def test_a_job_waits_for_a_label_says_so_and_goes_to_the_worker_that_has_it(shell):
    with shell.start("worker", TASKS, "--json") as plain:
        plain.line("ready")
        job = shell.run("submit", "--detach", "--requires", "gpu", "text.count", "a b").out.strip()
        told = shell.run("why", job, "--json").json
        assert (told["selection"], told["because"]) == ("rendezvous", "requires")
        assert [wait["what"] for wait in told["waits_for"]] == ["labels"]
        assert "gpu" in shell.run("why", job).out
        with shell.start("worker", TASKS, "--json", "--label", "gpu=a100") as able:
            able.line("ready")
            assert shell.ended(job)["state"] == "succeeded"
            told = shell.run("why", job, "--json").json
            first = told["lots"][0]
            assert (first["rank"], first["labels"]) == (0, ["gpu=a100"])
            assert [tenure["node"] for tenure in told["tenures"]] == [first["node"]]
            assert {lot["unfit"] for lot in told["lots"][1:]} <= {"labels", "other_kinds"}
            assert "lacks a label" in shell.run("why", job).out


def test_an_impossible_label_is_a_sentence(shell):
    answer = shell.run("submit", "--requires", "GPU!", "text.count", "a")
    assert answer.code != 0
    assert "is not a label" in answer.err
    answer = shell.run("worker", TASKS, "--label", "GPU!")
    assert answer.code != 0
    assert "is not a label" in answer.err
