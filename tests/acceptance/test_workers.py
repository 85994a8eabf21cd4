"""Workers and nodes in processes of their own: joining, draining, dying, taking over."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats

TASKS = str(Path(__file__).resolve().parents[2] / "examples" / "tasks.py")


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev():
        yield typed


def call(shell, *words):
    answer = shell.run("submit", "--detach", *words)
    assert answer.code == 0, answer.err
    return answer.out.strip()


def story(shell, job):
    return [line["words"] for line in shell.run("show", job, "--json").json["story"]]


def runs(shell, job):
    return lambda: shell.run("show", job, "--json").json["state"] == "running"


def test_a_worker_answers_the_tasks_of_a_module_by_path_and_by_name(shell):
    shutil.copy(TASKS, shell.directory / "my_tasks.py")
    with shell.start("worker", "my_tasks") as worker:
        greeting = worker.line("runs")
        assert "text.count" in greeting
        answer = shell.run("submit", "text.count", "the quick brown fox")
        assert json.loads(answer.out) == {"letters": 16, "words": 4}
        assert shell.run("submit", "math.primes", "12").out == "[2, 3, 5, 7, 11]\n"
        assert "with fence" in shell.run("submit", "example.stubborn", "2").out
        assert worker.stop(signal.SIGINT) == 0
        worker.line("stopped after 3 jobs")
        assert "Traceback" not in worker.err


def test_a_job_has_the_options_that_its_task_declares_if_the_module_is_named(shell):
    (shell.directory / "orders.py").write_text(
        "from antiphon import Mesh\nmesh = Mesh.open()\n"
        "@mesh.task('shop.order', attempts=7, priority='high')\ndef order(number): ...\n"
    )

    def submitted(*words):
        told = shell.run("show", call(shell, "shop.order", "1", *words), "--json").json
        return told["attempts_max"], told["priority"]

    assert submitted() == (3, "normal")
    assert submitted("--module", "orders") == (7, "high")
    typed = ("--module", "orders.py", "--attempts", "2", "--priority", "normal")
    assert submitted(*typed) == (2, "normal"), "what is typed comes first"
    answer = shell.run("submit", "shop.oder", "1", "--module", "orders")
    assert answer.code == 2
    assert "orders has no task of kind 'shop.oder': it has shop.order" in answer.err


def test_a_stopping_worker_finishes_what_it_has_in_hand(shell):
    (shell.directory / "gated.py").write_text(
        "import pathlib, time\nfrom antiphon import Mesh\nmesh = Mesh.open()\n"
        "@mesh.task('example.gated')\ndef gated(path):\n"
        "    while not pathlib.Path(path).exists():\n        time.sleep(0.1)\n    return 8\n"
    )
    gate = shell.directory / "open"
    with shell.start("worker", "gated", "--json", ANTIPHON_DRAIN_S="600") as worker:
        worker.line("ready")
        job = call(shell, "example.gated", str(gate))
        until(runs(shell, job))
        worker.send()
        assert runs(shell, job)(), "it is asked to stop, and goes on"
        gate.touch()
        assert worker.wait() == 0
        assert json.loads(worker.line("stopped"))["done"] == 1
    told = shell.run("show", job, "--json").json
    assert told["state"] == "succeeded"
    assert told["result"] == 8


def test_a_stopping_worker_gives_back_what_it_cannot_finish(shell):
    with shell.start("worker", TASKS, "--json", ANTIPHON_DRAIN_S="0.2") as worker:
        worker.line("ready")
        job = call(shell, "example.patience", "600")
        until(runs(shell, job))
        assert worker.stop() == 0, "a blocked thread does not hold the process"
    assert "gave it back, reason drain" in story(shell, job)[-1]
    assert shell.run("show", job, "--json").json["state"] == "pending"
    assert shell.run("cancel", job).code == 0


def test_a_second_signal_ends_a_worker_at_once(shell):
    with shell.start("worker", TASKS, "--json", ANTIPHON_DRAIN_S="600") as worker:
        worker.line("ready")
        job = call(shell, "example.patience", "600")
        until(runs(shell, job))
        assert worker.insist(signal.SIGINT) == 130
    assert shell.run("cancel", job).code == 0


def test_a_second_full_node_in_one_directory_is_explained(shell):
    answer = shell.run("node")
    assert answer.code == 6
    assert "antiphon nodes" in answer.err


def test_a_coroutine_that_blocks_the_loop_loses_its_lease_with_a_hint(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "tasks.py").write_text(
        "import time\nfrom antiphon import Mesh\nmesh = Mesh.open()\n"
        "@mesh.task('blocks.it')\nasync def block(seconds):\n    time.sleep(seconds)\n"
    )
    with shell.dev(), shell.start("worker", "tasks") as worker:
        worker.line("runs")
        answer = shell.run("submit", "blocks.it", "9", "--lease", "5s", "--attempts", "1")
        assert answer.code == 1
        assert "gave up after 1 attempt" in answer.err
        assert worker.stop() == 0
        told = worker.err
    assert "end_rejected" in told
    assert "the worker's event loop was blocked" in told
    assert "asyncio.to_thread" in told


@pytest.mark.req("S2")
@pytest.mark.slow
def test_processes_share_one_state_and_none_is_special(tmp_path):
    """Two full nodes and two workers; one process of each is killed, and the work goes on.

    The second pair has a state directory of its own, with its own keys and its own replica. After
    it is killed, the first expires what the dead one held, runs it, and tells the same story.
    """
    one, two = Shell(tmp_path / "one"), Shell(tmp_path / "two")
    for shell, words in ((one, "by the first"), (two, "by the second")):
        shell.directory.mkdir()
        (shell.directory / "tasks.py").write_text(
            "import asyncio\nfrom antiphon import Mesh\nmesh = Mesh.open()\n"
            "@mesh.task('shop.sleep')\nasync def sleep(seconds):\n"
            f"    await asyncio.sleep(seconds if {shell is two} else 0)\n    return '{words}'\n"
        )
    with one.dev():
        assert one.run("rules", "offer_after_ms=1s").code == 0, "called again soon after an expiry"
        shutil.copytree(one.home, two.home, ignore=shutil.ignore_patterns("keys", "server", "rep*"))
        before = one.run("submit", "example.add", "1", "2", "--json").json["job"]
        with two.start("node", "--json") as node, two.start("worker", "tasks", "--json") as worker:
            node.line("ready")
            worker.line("ready")
            until(lambda: len(two.run("nodes", "--json").json["nodes"]) == 4)
            assert story(one, before) == story(two, before)
            held = call(two, "shop.sleep", "600", "--lease", "5")
            until(runs(one, held))
            for process in (node.process, worker.process):
                process.kill()
                process.wait()
        with one.start("worker", "tasks", "--json"):
            told = one.ended(held)
        assert told["result"] == "by the first"
        assert any("expired the lease" in line["words"] for line in told["story"])
        with two.start("node", "--json") as again:  # the dead one comes back, and knows it all
            again.line("ready")
            assert story(two, held) == [line["words"] for line in told["story"]]
            assert again.stop() == 0
