"""Values on their way to a worker in another process and back, over a real server."""

import asyncio
import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Mesh
from tests.acceptance.echo_tasks import MODULE, register
from tests.acceptance.shell import Shell
from tests.examples import size
from tests.patience import PATIENCE_S
from tests.runtime.values.typed_values import TYPES, described

pytestmark = [pytest.mark.nats, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
IS_LARGE = os.environ.get("ANTIPHON_TESTS_LARGE") == "1"
MEGABYTE = 1_000_000


class Caller:
    """A mesh in this process, in a loop that is run for one call after the other."""

    def __init__(self, runner: asyncio.Runner, tasks) -> None:
        self.run = runner.run
        self.tasks = tasks

    async def sent(self, name, value, *, timeout=PATIENCE_S):
        return await (await self.tasks[name].submit(value)).result(timeout=timeout)


@pytest.fixture(scope="module")
def calling(tmp_path_factory):
    """A mesh on a server, a worker in a process of its own, and a caller in this one."""
    directory = tmp_path_factory.mktemp("values")
    shell = Shell(directory, PYTHONPATH=str(ROOT))
    (directory / "echoes.py").write_text(MODULE)
    with ExitStack() as stack:
        stack.enter_context(shell.dev())
        worker = stack.enter_context(shell.start("worker", "echoes.py", "--json"))
        worker.line("ready")
        runner = stack.enter_context(asyncio.Runner())
        mesh = Mesh.open(home=shell.home)
        tasks = register(mesh)
        runner.run(mesh.__aenter__())
        stack.callback(lambda: runner.run(mesh.__aexit__(None, None, None)))
        yield Caller(runner, tasks), worker


def test_every_type_arrives_in_another_process_and_comes_back(calling):
    caller, _ = calling

    async def all_sent(values):
        names = list(values)
        answers = await asyncio.gather(*(caller.sent(name, values[name]) for name in names))
        return dict(zip(names, answers, strict=True))

    @settings(max_examples=size(1, soak=20), print_blob=True)
    @given(st.fixed_dictionaries({name: values for name, (_, values) in TYPES.items()}))
    def arrive(values):
        for name, (back, seen) in caller.run(all_sent(values)).items():
            assert seen == described(values[name]), f"{name}: what the worker saw"
            assert described(back) == seen, f"{name}: what came back"

    arrive()


@pytest.mark.parametrize(
    "size",
    [
        MEGABYTE,
        pytest.param(
            200 * MEGABYTE,
            marks=pytest.mark.skipif(
                not IS_LARGE, reason="takes a minute and 2.5 GB: ANTIPHON_TESTS_LARGE=1"
            ),
        ),
    ],
)
def test_a_large_value_goes_there_and_back(size, calling):
    caller, worker = calling
    data = random.Random(size).randbytes(size)
    back = caller.run(caller.sent("turn", data, timeout=10 * PATIENCE_S))
    assert back == data[::-1]
    # Shown with pytest -s: docs/reference/values.md says how much it is.
    status = Path(f"/proc/{worker.pid}/status").read_text()
    print(next(line for line in status.splitlines() if line.startswith("VmHWM")))
