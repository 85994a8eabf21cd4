"""Handlers in processes, as people write them: in a module for a worker, and in a script."""

import json
import subprocess
import sys

import pytest

from tests.acceptance.shell import Shell

MODULE = """
import os
from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("own.where", run_in="process")
def where() -> list:
    return [os.getpid(), os.getppid(), sorted(name for name in os.environ if "ANTIPHON" in name)]
"""

SCRIPT = """
import asyncio, os
from antiphon import Mesh

mesh = Mesh.open(engine="memory")


@mesh.task("own.add", run_in="process")
def add(a: int, b: int) -> list:
    return [a + b, os.getpid()]


async def main():
    async with mesh, mesh.worker():
        print(*await (await add.submit(2, 3)).result(timeout=30), os.getpid())


if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.nats
def test_a_workers_module_may_have_handlers_that_run_in_processes(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "own_tasks.py").write_text(MODULE)
    with shell.dev():
        words = ("worker", "own_tasks.py", "--rate", "own.where=100/s", "--json")
        with shell.start(*words) as worker:
            ready = json.loads(worker.line("ready"))
            answer = shell.run("submit", "own.where", "--json")
            assert answer.code == 0, answer.err
            pid, parent, ours = answer.json["result"]
            assert pid != ready["pid"]
            assert parent == ready["pid"]
            assert ours == []
            assert worker.stop() == 0
        assert shell.run("worker", "own_tasks.py", "--rate", "own.where").code == 2
        assert shell.run("worker", "own_tasks.py", "--rate", "own.where=often").code == 3


def test_a_script_may_have_them_too_and_does_not_begin_again_in_each(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    result, child, own = done.stdout.split()
    assert result == "5"
    assert child != own
