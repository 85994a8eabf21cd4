"""How a task's handler is run: where, and how often."""

import asyncio

import pytest

from antiphon import Mesh, Misconfigured
from tests.patience import PATIENCE_S
from tests.runtime import spawned
from tests.runtime.meshes import eventually


@pytest.mark.processes
async def test_a_task_may_run_in_a_process_of_its_own():
    mesh = Mesh.open(engine="memory")
    add = mesh.task("example.add", run_in="process")(spawned.add)
    async with mesh, mesh.worker():
        assert await (await add.submit(2, 3)).result(timeout=PATIENCE_S) == 5
        ended = await (await add.submit(1, 1)).end(timeout=PATIENCE_S)
        assert ended.job.outcome == "succeeded"


async def test_a_task_without_a_kind_goes_by_its_functions_name():
    mesh = Mesh.open(engine="memory")

    @mesh.task
    async def add(a: int, b: int) -> int:
        return a + b

    @mesh.task(timeout=60)
    def double(a: int) -> int:
        return 2 * a

    assert mesh.kinds == ["add", "double"]
    assert double.scheduling.timeout_s == 60
    async with mesh, mesh.worker():
        assert await (await add.submit(2, 3)).result(timeout=PATIENCE_S) == 5
        assert await (await mesh.submit("double", 4)).result(timeout=PATIENCE_S) == 8


def test_a_function_whose_name_is_no_kind_says_what_to_write():
    mesh = Mesh.open(engine="memory")
    with pytest.raises(Misconfigured, match="'<lambda>' is not a valid kind") as refused:
        mesh.task(lambda: None)
    assert '@mesh.task("' in refused.value.hint


async def test_a_tasks_jobs_have_the_priority_that_it_names():
    mesh = Mesh.open(engine="memory")
    add = mesh.task("example.add", priority="high")(spawned.add)
    async with mesh, mesh.worker():
        ended = await (await add.submit(1, 1)).end(timeout=PATIENCE_S)
        assert ended.job.priority == "high"
        called = await mesh.submit("example.add", 1, 2, options={"priority": "normal"})
        assert (await called.end(timeout=PATIENCE_S)).job.priority == "normal"


async def test_a_delayed_job_begins_by_itself_on_a_mesh_in_this_process():
    mesh = Mesh.open(engine="memory")
    ran = []
    mesh.task("example.add")(lambda: ran.append(1))
    async with mesh, mesh.worker():
        not_before_ms = mesh.connection.session.wall.now_ms() + 500
        handle = await mesh.submit("example.add", options={"delay": 0.5})
        ended = await handle.end(timeout=PATIENCE_S)
        assert ended.job.outcome == "succeeded"
        assert not_before_ms <= ended.job.not_before_ms <= ended.job.called_ms


async def test_a_task_may_be_run_several_times_until_enough_agree():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.add", replicas=3)
    async def add(a: int, b: int) -> int:
        return a + b

    assert (add.scheduling.replicas, add.scheduling.quorum) == (3, 2)
    async with mesh:
        handle = await add.submit(2, 3)
        assert (await handle.state()).waits_for_replicas
        assert await add.options(replicas=16, quorum=16).submit(2, 4)


@pytest.mark.parametrize(
    "options", [{"quorum": 2}, {"replicas": 1}, {"replicas": 17}, {"replicas": 2, "quorum": 3}]
)
def test_a_quorum_that_cannot_be_says_what_to_write(options):
    mesh = Mesh.open(engine="memory")
    with pytest.raises(Misconfigured, match="quorum") as refused:
        mesh.task("example.add", **options)(spawned.add)
    assert "replicas" in refused.value.hint


@pytest.mark.parametrize("rates, begin", [(None, 1), ({"example.tick": "1000/s"}, 10)])
async def test_a_tasks_rate_holds_and_the_workers_word_wins_over_it(rates, begin):
    mesh, ticks = Mesh.open(engine="memory"), []

    @mesh.task("example.tick", rate="1/h")
    async def tick(number: int) -> None:
        ticks.append(number)

    async with mesh:
        for number in range(10):
            await tick.submit(number)
        async with mesh.worker(rates=rates):
            await eventually(lambda: len(ticks) == begin)
            await asyncio.sleep(0.1)
            assert len(ticks) == begin


@pytest.mark.parametrize(
    "options, words",
    [
        ({"rate": "often"}, "not a rate"),
        ({"colour": "red"}, "unknown task option"),
        ({"priority": "urgent"}, "'urgent' is not a priority"),
        ({"run_in": "space"}, "cannot run in a space"),
        ({"on_disconnect": "panic"}, "cannot panic"),
    ],
)
def test_an_option_that_means_nothing_is_refused_at_once(options, words):
    mesh = Mesh.open(engine="memory")
    with pytest.raises(Misconfigured, match=words):
        mesh.task("example.add", **options)(spawned.add)


async def test_a_task_that_is_submitted_by_its_kind_has_its_own_options():
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.order", attempts=7, priority="high", timeout="2m")
    async def order(number: int) -> int:
        return number

    async with mesh:
        job = await (await mesh.submit("shop.order", 1)).state()
        assert (job.attempts_max, job.priority) == (7, "high")
        options = {"attempts": 2, "priority": "low"}
        job = await (await mesh.submit("shop.order", 1, options=options)).state()
        assert (job.attempts_max, job.priority) == (2, "low"), "the call's own come first"
        job = await (await mesh.submit("shop.other", 1)).state()
        assert (job.attempts_max, job.priority) == (mesh.authority.rules.attempts, "normal")
