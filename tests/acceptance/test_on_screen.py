"""The command line in a terminal, as its first user meets it."""

import json
import os
import re
import signal

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats

TASKS = """
import asyncio
from itertools import count
from pathlib import Path
from antiphon import JobContext, Mesh
mesh = Mesh.open()

@mesh.task("walk.slow")
async def slow(gate: str, ctx: JobContext) -> str:
    for step in count():
        if Path(gate).exists():
            return "done"
        ctx.progress(step % 20 / 20, f"step {step % 20} of 20")
        await asyncio.sleep(0.1)
"""
STYLED = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def shell(tmp_path):
    (tmp_path / "tasks.py").write_text(TASKS)
    return Shell(tmp_path)


def call(shell, *words):
    return shell.run("submit", "--detach", *words).out.strip()


def runs(shell, job):
    return lambda: shell.run("show", job, "--json").json["state"] == "running"


def one_job_runs(shell):
    # A node that is slow to answer is not listed.
    return lambda: 1 in [one["busy"] for one in shell.run("nodes", "--json").json["nodes"]]


def test_a_job_is_followed_a_cancelled_one_is_no_trouble_and_a_drained_one_is_told(shell):
    with shell.dev(), shell.start("worker", "tasks.py", ANTIPHON_DRAIN_S="0.2") as worker:
        worker.line("runs")
        gate = shell.directory / "gate"
        job = call(shell, "walk.slow", str(gate))
        told = shell.on_screen("show", job, "--follow", seeing=" of 20", then=gate.touch)
        seen = STYLED.sub("", told)
        assert re.search(rf"▶ running  walk.slow {job[:8]}, .* \d+% step \d+ of 20", seen)
        assert "completed it, succeeded" in seen
        assert "result  done" in seen
        cancelled, left = call(shell, "walk.slow", "never"), call(shell, "walk.slow", "never")
        until(runs(shell, left))
        until(runs(shell, cancelled))
        until(lambda: "progress" in shell.run("show", left, "--json").json)
        assert re.search(r"progress \d+% step \d+ of 20 \(.*\)", shell.run("show", left).out)
        assert shell.run("cancel", cancelled).code == 0
        until(one_job_runs(shell))
        assert worker.stop(signal.SIGINT) == 0
        assert "1 job not finished, left for other workers" in worker.line("stopped after")
        assert "tenure_lost" not in worker.err
        assert "no worker holds it now" in shell.run("show", left).out


@pytest.mark.req("M22")
def test_a_machine_that_goes_to_sleep_gives_its_jobs_back_and_takes_them_again(shell):
    with shell.dev(), shell.start("worker", "tasks.py") as worker:
        worker.line("runs")
        gate = shell.directory / "gate"
        job = call(shell, "walk.slow", str(gate))
        until(runs(shell, job))
        worker.send(signal.SIGUSR1)
        until(lambda: "reason sleep" in shell.run("show", job).out)
        assert shell.run("show", job, "--json").json["state"] == "pending"
        gate.touch()
        worker.send(signal.SIGUSR2)
        assert shell.ended(job)["state"] == "succeeded"
        assert worker.stop(signal.SIGINT) == 0


def test_a_worker_tells_that_its_server_is_away_and_back(shell):
    with shell.start("dev", "--json") as first:
        server = json.loads(first.line())["server_pid"]
        with shell.start("worker", "tasks.py") as worker:
            worker.line("runs")
            os.kill(server, signal.SIGKILL)
            assert first.wait() == 4
            with shell.dev():
                until(lambda: len(shell.run("nodes", "--json").json["nodes"]) == 3)
                assert worker.stop(signal.SIGINT) == 0
            told = worker.err
    assert told.count("is unreachable; reconnecting") == 1, told
    assert told.count("answers again") == 1, told


def test_a_ticket_can_be_copied_from_a_terminal_in_one_piece(shell):
    with shell.init():
        seen = shell.on_screen("invite", "--can", "claim", "--kind", "walk.*", columns=80)
    (line,) = [line for line in seen.splitlines() if line.startswith("antiphon-ticket-")]
    assert len(line) > 80
    assert seen.splitlines()[-1] == line, "nothing of it is on another line"


def test_a_mesh_that_is_founded_and_not_hosted_says_how_to_host_it(shell):
    assert "  antiphon up\n" in shell.run("init", "--no-up").out


def test_in_the_c_locale_everything_is_ascii(tmp_path):
    shell = Shell(tmp_path, LC_ALL="C")
    seen = shell.on_screen("verify", "nothing")
    assert seen.startswith("x nothing cannot be read")
    assert shell.on_screen("run", "--help").isascii()
    piped = shell.run("verify", "nothing", PYTHONIOENCODING="ascii")
    assert piped.err.startswith("x nothing cannot be read")
