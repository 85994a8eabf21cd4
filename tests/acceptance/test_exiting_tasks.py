"""Tasks that call sys.exit or end their process, as a person meets them; and a worker's own end."""

import json
import re
import signal
from contextlib import ExitStack

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats

MODULE = """
import argparse, asyncio, time
from antiphon import Mesh

mesh = Mesh.open()


def parse() -> None:
    argparse.ArgumentParser(prog="render").parse_args(["--wrong"])


@mesh.task("exits.loop")
async def in_loop() -> None:
    parse()


@mesh.task("exits.thread")
def in_thread() -> None:
    parse()


@mesh.task("exits.process", run_in="process")
def in_process() -> None:
    parse()


@mesh.task("stays.loop")
async def stays_in_loop() -> None:
    await asyncio.sleep(600)


@mesh.task("stays.thread")
def stays_in_thread() -> None:
    time.sleep(600)


@mesh.task("stays.process", run_in="process")
def stays_in_process() -> None:
    time.sleep(600)
"""
PLACES = ("loop", "thread", "process")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
)
def test_a_task_cannot_end_its_worker_and_a_signal_can(tmp_path, number):
    shell = Shell(tmp_path, ANTIPHON_DRAIN_S="0.2")
    (tmp_path / "exits.py").write_text(MODULE)
    with shell.dev(), shell.start("worker", "exits.py", "--json") as worker:
        worker.line("ready")
        for place in PLACES:
            failed = shell.run("submit", f"exits.{place}", "--attempts", "1")
            assert failed.code == 1, failed
            assert "SystemExit: 2" in failed.err
            assert "called sys.exit" in failed.err
        jobs = [shell.run("submit", f"stays.{place}", "--detach").out.strip() for place in PLACES]

        def states() -> list[str]:
            listed = shell.run("jobs", "--kind", "stays", "--json").json["jobs"]
            return [one["state"] for one in listed if one["job"] in jobs]

        until(lambda: states() == ["running"] * 3)
        assert worker.stop(number) == 0
        assert json.loads(worker.line("stopped")) == {"event": "stopped", "done": 3}
        assert states() == ["pending"] * 3
        logged = [json.loads(line) for line in worker.err.splitlines() if line.startswith("{")]
        problems = [(one["kind"], one["problem"]) for one in logged if one.get("problem")]
        assert problems == [(f"exits.{place}", "SystemExit: 2") for place in PLACES]


POISON = """
import os
from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("poison.exit")
async def ends_the_process() -> None:
    os._exit(9)
"""


@pytest.mark.slow
def test_a_job_that_ends_its_workers_says_which_and_the_third_does_not_run_it(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "poison.py").write_text(POISON)
    with shell.dev(), ExitStack() as stack:
        workers = [stack.enter_context(shell.start("worker", "poison.py")) for _ in range(3)]
        for worker in workers:
            worker.line("runs")
        called = shell.run("submit", "poison.exit", "--lease", "5s")
        assert called.code == 1
        named = r"worker-[234] \(\d\d:\d\d UTC\)"
        said = rf"2 workers were lost while running it: {named}, {named}"
        job = re.search(r"job (\w{8}) ", called.err)[1]
        assert f"antiphon retry {job}" in called.err
        for words in (("why", job), ("show", job), ("attention",), ("jobs", "--failed")):
            assert re.search(said, shell.run(*words).out), words
        assert re.search(said, called.err)
        assert sorted(worker.process.poll() or 0 for worker in workers) == [0, 9, 9]
