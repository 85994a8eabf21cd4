"""The `mesh` fixture that users test with: in memory, in no time, with faults on demand."""

import asyncio
import importlib.util
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from antiphon import CallOptions, JobFailed, Mesh
from antiphon.errors import Misconfigured
from antiphon.testing import pytest_plugin, tested_mesh
from antiphon.testing.tested_mesh import TestedMesh
from tests.acceptance.typed_page import Reader
from tests.runtime import spawned

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/testing"
PAGE = ROOT / "docs/do/testing.md"

elsewhere = Mesh.open(engine="memory")
"""A program's mesh, as a module has it."""


@elsewhere.task("other.parcel")
def parcel(number: int) -> int:
    return number


@pytest.fixture
def mesh():
    tested = TestedMesh()
    yield tested
    tested.close()


def test_tasks_run_in_no_time_and_the_tests_own_sleep_is_exact(mesh):
    @mesh.task("later.echo", delay="20m")
    async def echo(word: str) -> str:
        await asyncio.sleep(90)
        return word

    async def story() -> tuple[str, float]:
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(12.5)
        slept_s = asyncio.get_running_loop().time() - began_s
        return await (await echo.submit("hello")).result(), slept_s

    assert mesh.run(story()) == ("hello", 12.5)
    assert mesh.run(asyncio.sleep(1, "again")) == "again"
    mesh.assert_called(echo, "hello")


def test_plain_functions_and_processes_run_in_the_tests_own_thread(mesh):
    @mesh.task("here.thread")
    def in_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    slow = mesh.task("here.process", run_in="process")(spawned.add)
    assert mesh.call(in_thread) is True
    assert mesh.call(slow, 2, 3) == 5


def test_a_killed_workers_job_is_run_again_by_another_one_as_often_as_asked(mesh):
    seen = []

    @mesh.task("die.often")
    async def work(number: int) -> int:
        seen.append(number)
        if len(seen) == 1:
            mesh.kill_worker()  # and the next one dies, too
        return number

    mesh.kill_worker()
    assert mesh.call(work, 4) == 4
    assert seen == [4, 4]
    mesh.kill_worker()
    assert mesh.call(work, 5) == 5
    assert [one.attempt for one in mesh.calls(work)] == [1, 2, 1, 2]


def test_lost_answers_are_survived_wherever_they_are_lost(mesh):
    @mesh.task("lose.some")
    def work(number: int) -> int:
        return number

    for number in range(1, 6):
        mesh.lose_next_write(number)
        assert mesh.call(work, number) == number
    assert [one.args for one in mesh.calls(work)] == [(number,) for number in range(1, 6)]


def test_what_was_called_is_told(mesh):
    @mesh.task("ask.for")
    async def ask(what: str, *, times: int = 1) -> None:
        if times > 1:
            raise ValueError("too often")

    mesh.assert_not_called(ask)
    mesh.call(ask, "tea")
    with pytest.raises(JobFailed):
        mesh.call(ask.options(attempts=2), "tea", times=2)
    mesh.assert_called(ask, "tea")
    mesh.assert_called(ask, "tea", times=2)
    with pytest.raises(AssertionError, match="coffee"):
        mesh.assert_called(ask, "coffee")
    with pytest.raises(AssertionError, match="called 3 times"):
        mesh.assert_not_called("ask.for")
    assert [one.failure and one.failure.name for one in mesh.calls(ask)] == [
        None,
        "ValueError",
        "ValueError",
    ]


def test_a_programs_own_mesh_is_as_before_afterwards():
    program = Mesh.open(home="/nowhere/at/all")
    work = program.task("run.process", run_in="process")(spawned.add)
    registered = program.connection.declared.handlers._by_kind["run.process"]
    tested = TestedMesh()
    tested.use(program)
    assert tested.call(work, 1, 1) == 2
    with pytest.raises(RuntimeError, match="before anything runs"):
        tested.use(Mesh.open(engine="memory"))
    tested.close()
    assert (program.engine, program.connection.declared.handlers.hooks) == ("nats", [])
    assert program.connection.declared.handlers._by_kind["run.process"] is registered
    again = TestedMesh()
    again.use(program)
    assert again.run(submitted(program)) == 5
    again.close()


async def submitted(program: Mesh) -> int:
    handle = await program.submit("run.process", 2, 3, options=CallOptions(attempts=1))
    return await handle.result()


def test_pytest_finds_the_plugin_where_antiphon_is_installed():
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["pytest11"] == {pytest_plugin.__name__: pytest_plugin.__name__}


# --- the page and the example ---------------------------------------------------------------------


def module(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def run_tests(folder: Path) -> list[str]:
    """Run every test of a `test_shop.py` as pytest would with our fixture."""
    try:
        module("shop", folder / "shop.py")
        tests = module("test_shop", folder / "test_shop.py")
    finally:
        shop = sys.modules.pop("shop")
        sys.modules.pop("test_shop")
    names = [name for name in vars(tests) if name.startswith("test_")]
    for name in names:
        tested = TestedMesh()
        try:
            tested.use(shop.mesh)
            shop.shipped.clear()
            vars(tests)[name](tested)
        finally:
            tested.close()
    return names


def test_the_blocks_of_the_page_run_as_they_stand(tmp_path):
    with Reader(tmp_path) as reader:
        reader.follow(PAGE.read_text())
    assert len(run_tests(tmp_path)) == 5


def test_the_examples_tests_pass():
    assert len(run_tests(EXAMPLE)) == 4


# --- nothing waits without an end -----------------------------------------------------------------


def test_a_task_of_a_mesh_that_is_not_used_is_refused_with_the_line_to_add(mesh):
    with pytest.raises(Misconfigured) as refused:
        mesh.call(parcel, 7)
    assert f"mesh.use({__name__}.elsewhere)" in str(refused.value)
    mesh.use(elsewhere)
    assert mesh.call(parcel, 7) == 7


def test_a_job_of_a_kind_without_a_task_ends_the_wait_at_once(mesh):
    async def ask() -> object:
        return await (await mesh.program.submit("nobody.knows", 1)).result()

    with pytest.raises(Misconfigured, match=r"runs nobody\.knows .*no tasks") as refused:
        mesh.run(ask())
    assert "mesh.use(MODULE.mesh)" in refused.value.hint


def test_a_mesh_without_tasks_runs_what_needs_none(mesh):
    async def remember() -> object:
        await mesh.program.memory["notes"].put("plan", [1, 2])
        return await mesh.program.memory["notes"].get("plan")

    assert mesh.run(remember()).value == [1, 2]


def test_a_task_that_comes_too_late_for_the_worker_is_refused(mesh):
    mesh.run(asyncio.sleep(0))
    with pytest.raises(RuntimeError, match="before anything runs"):
        mesh.task("too.late")(spawned.add)


def test_a_wait_that_does_not_end_is_cut_and_names_its_line_and_the_open_jobs(mesh):
    @mesh.task("stuck.here", attempts=1)
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def wait_for_nothing() -> None:
        await stuck.submit()
        await asyncio.sleep(60)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as late:
        mesh.run(wait_for_nothing(), limit="90s")
    assert "wait_for_nothing at test_tested_mesh.py" in str(late.value)
    assert "(stuck.here) is running" in str(late.value)


def test_looking_again_and_again_has_an_end_too_and_long_sleep_is_no_waiting(mesh):
    async def look_every_second() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError, match="look_every_second"):
        mesh.run(look_every_second(), limit="30s")
    assert mesh.run(asyncio.sleep(500, "slept"), limit="30s") == "slept"


def test_a_delay_longer_than_the_limit_is_waited_for(mesh, monkeypatch):
    monkeypatch.setattr(tested_mesh, "LIMIT_S", 30.0)

    @mesh.task("much.later", delay="2m")
    async def later() -> str:
        return "now"

    assert mesh.call(later) == "now"


def test_a_worker_that_cannot_begin_says_why(mesh, monkeypatch):
    mesh.task("never.runs")(spawned.add)
    monkeypatch.setenv("ANTIPHON_WEIGHT", "0")
    with pytest.raises(Misconfigured):
        mesh.run(asyncio.sleep(0))
