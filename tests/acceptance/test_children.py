"""Handlers that wait for children, in processes and threads, and a worker that is killed."""

import json

import pytest

from tests.acceptance.shell import Shell

MODULE = """
import os
from pathlib import Path

from antiphon import After, JobContext, Mesh
from antiphon.runtime.worker.runs import run_work

mesh = Mesh.open()
HERE = Path(__file__).parent
submit_many = run_work.submit_many


async def submit_and_die(session, bodies):
    found = await submit_many(session, bodies)
    if (HERE / "die").exists():
        (HERE / "die").unlink()
        os.kill(os.getpid(), 9)
    return found


run_work.submit_many = submit_and_die


@mesh.task("own.part")
def part(number: int) -> int:
    with (HERE / "worked").open("a") as file:
        file.write(f"{number}\\n")
    return number * 10


@mesh.task("own.total", lease=5)
def total(ctx: JobContext, count: int) -> int:
    found = ctx.results(part)
    if found is None:
        raise After(part.bind(number) for number in range(count))
    return sum(found)


@mesh.task("own.apart", run_in="process")
def apart(ctx: JobContext, size: int) -> int:
    found = ctx.results(part)
    if found is None and size > 1:
        raise After([shout.bind("x" * size)])
    if found is None:
        raise After([part.bind(100), part.bind(200)])
    return sum(found)


@mesh.task("own.shout")
def shout(text: str) -> str:
    return text.upper()
"""


@pytest.mark.nats
def test_a_worker_is_killed_while_its_job_asks_for_children(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "own_tasks.py").write_text(MODULE)
    (tmp_path / "die").touch()
    with shell.dev():
        with shell.start("worker", "own_tasks.py", "--json") as worker:
            worker.line("ready")
            job = shell.run("submit", "own.total", "5", "--detach", "--json").json["job"]
            assert worker.wait() == -9
        with shell.start("worker", "own_tasks.py", "--json") as worker:
            worker.line("ready")
            answer = shell.run("show", job, "--follow", "--json")
            assert answer.json["result"] == 100, answer.err
            # Each once, or again if it was in the hands of the worker that was killed.
            worked = (tmp_path / "worked").read_text().split()
            assert set(worked) == {"0", "1", "2", "3", "4"}
            answer = shell.run("submit", "own.apart", "1", "--json")
            assert answer.json["result"] == 3000, answer.err
            answer = shell.run("submit", "own.apart", "100000", "--json")
            assert "too large to be submitted from a process" in json.dumps(answer.json)
