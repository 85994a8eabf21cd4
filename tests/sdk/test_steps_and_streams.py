"""Steps and streams as a program uses them: typed tasks, the test fixture, a mesh without await."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from antiphon import JobContext, JobFailed, Mesh, StreamHandle, StreamTask
from antiphon.testing.tested_mesh import TestedMesh


@dataclass
class Row:
    number: int


@pytest.mark.virtual_time
async def test_a_stream_task_gives_typed_parts_by_its_handles_and_plain_ones_without_it():
    mesh = Mesh.open(engine="memory")

    @mesh.task("report.rows")
    async def rows(upto: int) -> AsyncIterator[Row]:
        for number in range(upto):
            yield Row(number)
            await asyncio.sleep(1)

    assert isinstance(rows, StreamTask)
    assert [row async for row in rows(2)] == [Row(0), Row(1)], "called directly: the generator"
    async with mesh, mesh.worker():
        handle = await rows.submit(3)
        assert isinstance(handle, StreamHandle)
        assert [row async for row in handle.stream()] == [Row(0), Row(1), Row(2)]
        assert await handle.result() == 3
        again = rows.job(handle.id)
        assert [row async for row in again.stream(from_=2)] == [Row(2)]
        plain = mesh.job("report.rows", handle.id)
        assert [part async for part in plain.stream(1)] == [{"number": 1}, {"number": 2}]
        with pytest.raises(ValueError, match="begins with part 0"):
            [row async for row in again.stream(-1)]


@pytest.mark.virtual_time
async def test_a_job_without_a_stream_has_no_parts_and_a_failed_one_says_so():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.add")
    async def add(a: int) -> int:
        if a < 0:
            raise ValueError(a)
        return a + 1

    async def parts(handle):
        return [part async for part in handle.stream()]

    async with mesh, mesh.worker():
        assert await parts(await add.submit(1)) == []
        failed = await add.options(attempts=1).submit(-1)
        with pytest.raises(JobFailed):
            await parts(failed)


def test_the_fixture_has_both_and_a_killed_worker_repeats_no_step():
    tested, calls = TestedMesh(), []

    def plain(word: str) -> str:
        calls.append(word)
        return word.upper()

    @tested.task("example.steps")
    async def steps(ctx: JobContext) -> str:
        return await ctx.step("one", plain, "a") + await ctx.step("two", plain, "b")

    @tested.task("example.count")
    async def count(upto: int) -> AsyncIterator[int]:
        for number in range(upto):
            yield number

    try:
        tested.kill_worker()
        assert tested.call(steps) == "AB"
        assert calls == ["a", "b"]
        assert tested.call(count, 4) == 4
    finally:
        tested.close()


def test_without_await_steps_wait_and_streams_are_plain_loops():
    mesh = Mesh.open(engine="memory").blocking()

    def total(order: int) -> int:
        return order * 100

    @mesh.task("order.bill")
    def bill(order: int, ctx: JobContext) -> int:
        return ctx.step("total", total, order).wait()

    @mesh.task("report.rows")
    async def rows(upto: int) -> AsyncIterator[int]:
        for number in range(upto):
            yield number

    with mesh, mesh.worker():
        assert bill.submit(3).result() == 300
        handle = rows.submit(3)
        assert list(handle.stream()) == [0, 1, 2]
        assert list(handle.stream(from_=2)) == [2]
        assert handle.result() == 3
