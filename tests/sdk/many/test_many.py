"""Many jobs through the SDK: `submit_many`, `map`, `as_completed`, `gather`."""

import asyncio
from itertools import count

import pytest

from antiphon import (
    JobFailed,
    Mesh,
    Misconfigured,
    NobodyAnswers,
    PartlySubmitted,
    Retry,
    as_completed,
    gather,
)
from antiphon.sdk.many.bound_calls import Caller
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.virtual_time


def a_mesh() -> Mesh:
    return Mesh.open(engine="memory")


async def test_results_come_in_the_order_of_the_handles():
    mesh = a_mesh()

    @mesh.task("example.double")
    async def double(number: int) -> int:
        await asyncio.sleep((30 - number) / 100)  # the last ends first
        return 2 * number

    async with mesh, mesh.worker(slots=30):
        handles = await double.submit_many(range(30))
        assert [handle.index for handle in handles] == list(range(30))
        assert await gather(*handles, timeout=PATIENCE_S) == [2 * n for n in range(30)]
        assert await gather(*handles) == [2 * n for n in range(30)], "they have ended"
        assert await gather() == []
        assert await double.submit_many([]) == []


async def test_jobs_of_several_tasks_with_several_arguments_are_one_list():
    mesh = a_mesh()

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int:
        return a + b

    @mesh.task("example.shout")
    async def shout(text: str, *, times: int = 1) -> str:
        return text.upper() * times

    async with mesh, mesh.worker():
        handles = await mesh.submit_many(
            [add.bind(1, 2), shout.bind("ho", times=2), mesh.bind("example.add", 3, 4)]
        )
        assert await gather(*handles, timeout=PATIENCE_S) == [3, "HOHO", 7]


async def test_each_result_is_read_as_its_own_call_says():
    mesh = a_mesh()

    @mesh.task("example.pair")
    async def pair(number: int) -> tuple[int, int]:
        return number, number + 1

    async with mesh, mesh.worker():
        handles = await mesh.submit_many([pair.bind(1), mesh.bind("example.pair", 1)])
        assert await gather(*handles, timeout=PATIENCE_S) == [(1, 2), [1, 2]]


async def test_a_kind_that_nobody_runs_is_said_while_one_waits():
    mesh = a_mesh()

    @mesh.task("example.double")
    async def double(number: int) -> int:
        return 2 * number

    async with mesh, mesh.worker():
        calls = [mesh.bind("example.duble", 1), mesh.bind("example.duble", 2), double.bind(3)]
        handles = await mesh.submit_many(calls)
        with (
            pytest.warns(NobodyAnswers, match="did you mean example.double") as told,
            pytest.raises(TimeoutError, match="2 of 3 jobs"),
        ):
            await gather(*handles, timeout=PATIENCE_S)
        assert len([one for one in told if one.category is NobodyAnswers]) == 1, "once per kind"


async def test_completed_jobs_come_as_they_end_failed_ones_too():
    mesh = a_mesh()
    gates = [asyncio.Event() for _ in range(3)]

    @mesh.task("example.wait", retry=Retry(attempts=1))
    async def wait(number: int) -> int:
        await gates[number].wait()
        if number == 1:
            raise ValueError("one")
        return number

    async with mesh, mesh.worker():
        handles = await wait.submit_many(range(3))
        seen = []
        gates[2].set()
        async for handle in as_completed(handles, timeout=PATIENCE_S):
            seen.append(handle.index)
            gates[{2: 1, 1: 0, 0: 0}[handle.index]].set()
            if handle.index == 1:
                with pytest.raises(JobFailed, match="ValueError: one"):
                    await handle.result()
            else:
                assert await handle.result() == handle.index
        assert seen == [2, 1, 0]
        assert [one.index async for one in as_completed(handles)] == [0, 1, 2], "all are known"


async def test_the_first_failure_is_raised_or_takes_the_place_of_the_result():
    mesh = a_mesh()

    @mesh.task("example.half", retry=Retry(attempts=1))
    async def half(number: int) -> int:
        if number % 2:
            raise ValueError(str(number))
        return number // 2

    async with mesh, mesh.worker():
        handles = await half.submit_many(range(4))
        with pytest.raises(JobFailed):
            await gather(*handles, timeout=PATIENCE_S)
        found = await gather(*handles, timeout=PATIENCE_S, return_exceptions=True)
        assert found[::2] == [0, 1]
        assert all(isinstance(one, JobFailed) for one in found[1::2])


async def test_a_timeout_says_how_many_and_names_one():
    mesh = a_mesh()

    @mesh.task("example.wait")
    async def wait(number: int) -> int:
        if number:
            await asyncio.Event().wait()
        return number

    async with mesh, mesh.worker(slots=4):
        handles = await wait.submit_many(range(4))
        with pytest.raises(TimeoutError, match=r"3 of 4 jobs have not ended after 2 s; one"):
            await gather(*handles, timeout="2s")
        with pytest.raises(TimeoutError):
            async for _ in as_completed(handles[1:], timeout=0):
                pass
        for handle in handles[1:]:
            await handle.cancel()


async def test_a_timeout_does_not_count_what_the_loops_body_does():
    mesh = a_mesh()
    gates = [asyncio.Event() for _ in range(3)]

    @mesh.task("example.wait")
    async def wait(number: int) -> int:
        await gates[number].wait()
        return number

    async with mesh, mesh.worker():
        handles = await wait.submit_many(range(3))
        gates[0].set()
        seen = []
        async for handle in as_completed(handles, timeout="10s"):
            await asyncio.sleep(100)
            seen.append(handle.index)
            gates[min(len(seen), 2)].set()
        assert seen == [0, 1, 2]


async def test_map_keeps_a_number_of_jobs_open_and_takes_items_as_there_is_room():
    mesh = a_mesh()
    running = most = taken = 0

    @mesh.task("example.double")
    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1
        return 2 * number

    def items():
        nonlocal taken
        for number in count():
            taken += 1
            yield number

    async with mesh, mesh.worker(slots=50):
        found = {}
        async for handle in double.map(items(), limit=7):
            found[handle.index] = await handle.result()
            assert taken <= len(found) + 7
            if len(found) == 100:
                break
        assert all(result == 2 * index for index, result in found.items())
        assert most == 7


async def test_map_ends_with_its_items():
    mesh = a_mesh()

    @mesh.task("example.double", once=True)
    async def double(number: int) -> int:
        return 2 * number

    async with mesh, mesh.worker(slots=20):
        items = [*range(150), 7, 7]  # with `once`, the same item is the same job
        found = [handle async for handle in double.map(items)]
        assert sorted(handle.index for handle in found) == list(range(152))
        assert {handle.index: await handle.result() for handle in found}[151] == 14
        again = [handle async for handle in double.map(range(3), limit=1)]
        assert [handle.is_new for handle in again] == [False] * 3
        assert [handle async for handle in double.map([])] == []


async def test_a_map_that_lets_no_job_begin_is_refused():
    mesh = a_mesh()

    @mesh.task("example.double")
    async def double(number: int) -> int:
        return 2 * number

    async with mesh:
        with pytest.raises(Misconfigured, match="lets no job begin"):
            await anext(double.map([1], limit=0))


async def test_what_was_submitted_before_a_failure_can_be_waited_for():
    mesh = a_mesh()

    @mesh.task("example.length")
    async def length(text: str) -> int:
        return len(text)

    async with mesh, mesh.worker():
        too_long = length.options(lease="300d")  # which the mesh's rules do not allow
        calls = [length.bind("a"), length.bind("bb"), too_long.bind("ccc")]
        with pytest.raises(PartlySubmitted, match=r"job 3 of 3 \(example.length\)") as told:
            await mesh.submit_many(calls)
        assert told.value.position == 2
        assert await gather(*told.value.submitted, timeout=PATIENCE_S) == [1, 2]
        seen = []

        async def take_all() -> None:
            many = [length.bind("a")] * 150
            async for handle in Caller(mesh.connection).map([*many, *calls], limit=None):
                seen.append(await handle.result())

        with pytest.raises(PartlySubmitted) as told:
            await take_all()
        assert told.value.position == 152
        rest = await gather(*told.value.submitted, timeout=PATIENCE_S)
        assert sorted([*seen, *rest]) == [*[1] * 151, 2]


async def test_jobs_of_two_meshes_are_not_waited_for_together():
    one, other = a_mesh(), a_mesh()
    async with one, other:
        handles = [one.job("example.x", "0" * 64), other.job("example.x", "0" * 64)]
        with pytest.raises(Misconfigured, match="more than one Mesh"):
            await gather(*handles)
