"""How a task's handler is run: where, and how often."""

import asyncio

import pytest

from antiphon import Mesh, Misconfigured
from tests.patience import PATIENCE_S
from tests.runtime import spawned


async def test_a_task_may_run_in_a_process_of_its_own():
    mesh = Mesh.open(engine="memory")
    add = mesh.task("example.add", run_in="process")(spawned.add)
    async with mesh, mesh.worker():
        assert await (await add.submit(2, 3)).result(timeout_s=PATIENCE_S) == 5
        ended = await (await add.submit(1, 1)).end(timeout_s=PATIENCE_S)
        assert ended.job.outcome == "succeeded"


async def test_a_task_without_a_kind_goes_by_its_functions_name():
    mesh = Mesh.open(engine="memory")

    @mesh.task
    async def add(a: int, b: int) -> int:
        return a + b

    @mesh.task(timeout_s=60)
    def double(a: int) -> int:
        return 2 * a

    assert mesh.kinds == ["add", "double"]
    assert double.options.timeout_s == 60
    async with mesh, mesh.worker():
        assert await (await add.submit(2, 3)).result(timeout_s=PATIENCE_S) == 5
        assert await (await mesh.submit("double", 4)).result(timeout_s=PATIENCE_S) == 8


def test_a_function_whose_name_is_no_kind_says_what_to_write():
    mesh = Mesh.open(engine="memory")
    with pytest.raises(Misconfigured, match="'<lambda>' is no kind") as refused:
        mesh.task(lambda: None)
    assert '@mesh.task("' in refused.value.hint


async def test_a_tasks_jobs_have_the_priority_that_it_names():
    mesh = Mesh.open(engine="memory")
    add = mesh.task("example.add", priority="high")(spawned.add)
    async with mesh, mesh.worker():
        ended = await (await add.submit(1, 1)).end(timeout_s=20)
        assert ended.job.priority == "high"
        called = await mesh.submit("example.add", 1, 2)
        assert (await called.end(timeout_s=20)).job.priority == "normal"


async def test_a_tasks_rate_holds_and_the_workers_word_wins_over_it():
    for rates, at_least_s in ((None, 0.9), ({"example.tick": "1000/s"}, 0.0)):
        times: list[float] = []
        mesh = Mesh.open(engine="memory")

        @mesh.task("example.tick", rate="5/s")
        async def tick(_number: int, times: list[float] = times) -> None:
            times.append(asyncio.get_running_loop().time())

        async with mesh:
            handles = [await tick.submit(number) for number in range(10)]
            async with mesh.worker(rates=rates):
                for handle in handles:
                    await handle.result(timeout_s=PATIENCE_S)
        took_s = times[-1] - times[0]
        assert took_s >= at_least_s
        assert (took_s < 0.9) == (at_least_s == 0)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"rate": "often"}, "not a rate"),
        ({"colour": "red"}, "no such option"),
        ({"priority": "urgent"}, "'urgent' is not a priority"),
        ({"run_in": "space"}, "cannot run in a space"),
        ({"on_disconnect": "panic"}, "cannot panic"),
    ],
)
def test_an_option_that_means_nothing_is_refused_at_once(options, words):
    mesh = Mesh.open(engine="memory")
    with pytest.raises(Misconfigured, match=words):
        mesh.task("example.add", **options)(spawned.add)
