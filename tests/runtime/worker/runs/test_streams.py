"""Streams: what an async generator yields is stored in order, and can be read from any place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from antiphon import JobContext, JobFailed, Misconfigured
from antiphon.core.families.jobs import ops
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.stream_parts import parts_of
from antiphon.runtime.executors.handlers import HandlerOptions, Handlers
from antiphon.runtime.values.part_groups import count_in, group_name
from antiphon.runtime.worker.runs import stream_writer
from tests.runtime.meshes import CALM, KIND, QUICK, a_mesh, call, on_both_engines

SOON = ops.Retry(base_ms=10)


def reading(session, job, from_=0):
    artifacts = Artifacts(session.engine.blobs)
    return aclosing(parts_of(session, KIND, job.id, lambda: artifacts, from_=from_))


async def all_parts(session, job, from_=0):
    async with reading(session, job, from_) as parts:
        return [bytes(one).decode() async for one in parts]


async def groups_of(session, job):
    view = await session.read_lane(KIND, job.id)
    found = (one.opened.op for one in view.history)
    return [op.body for op in found if isinstance(op, ops.JobArtifact)]


@on_both_engines
async def test_parts_arrive_while_the_job_runs_and_can_be_read_afterwards_from_any_place(engine):
    read = asyncio.Event()

    async def counting(upto: int) -> AsyncIterator[int]:
        for number in range(upto):
            yield number
            if number == 2:
                await read.wait()  # the first three are read while it runs

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(counting)
        job = await call(session, 5)
        seen = []
        async with reading(session, job) as parts:
            async for part in parts:
                seen.append(bytes(part).decode())
                if len(seen) == 3:
                    read.set()
        assert seen == ["0", "1", "2", "3", "4"]
        assert await all_parts(session, job) == seen
        assert await all_parts(session, job, from_=3) == ["3", "4"]
        assert await all_parts(session, job, from_=9) == []
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert ended.outputs[0].text == "5", "its result is how many there are"


@on_both_engines
async def test_a_successor_learns_where_the_stream_ended_and_goes_on_there(engine):
    stored, seen = asyncio.Event(), []

    async def counting(ctx: JobContext) -> AsyncIterator[int]:
        seen.append((ctx.stream.stored, ctx.stream.last))
        for number in range(ctx.stream.stored, 4):
            yield number * 10
            if number == 1 and ctx.attempt == 1:
                raise ValueError("once")
        stored.set()

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(counting)
        job = await call(session, retry=SOON)
        assert await all_parts(session, job) == ["0", "10", "20", "30"]
        assert seen == [(0, None), (2, 10)]
        fences = [body.fence for body in await groups_of(session, job)]
        assert fences == sorted(fences)
        assert len(set(fences)) == 2, "each group names its tenure"


@pytest.mark.virtual_time
async def test_a_killed_workers_parts_stay():
    begun = asyncio.Event()

    async def counting(ctx: JobContext) -> AsyncIterator[str]:
        if ctx.stream.stored:
            yield "after"
            return
        yield "before"
        await asyncio.sleep(1)
        begun.set()
        await asyncio.sleep(600)

    async with a_mesh("memory", QUICK) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        doomed = await mesh.worker(counting, drain_s=0)
        job = await call(session)
        await begun.wait()
        doomed._leases.close()  # a dead process renews nothing
        doomed.paused.add("sleep")
        await mesh.worker(counting)
        assert await all_parts(session, job) == ['"before"', '"after"']


@pytest.mark.virtual_time
async def test_parts_that_come_together_are_stored_together():
    async def counting() -> AsyncIterator[int]:
        for number in range(2_500):
            yield number

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(counting)
        job = await call(session)
        assert len(await all_parts(session, job)) == 2_500
        names = [body.name for body in await groups_of(session, job)]
        assert names == ["0+1000", "1000+1000", "2000+500"]


@on_both_engines
async def test_large_parts_are_stored_outside_the_log_and_left_out_unread(engine):
    async def large() -> AsyncIterator[str]:
        for word in "ab":
            yield word * 100_000

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(large)
        job = await call(session)
        found = await all_parts(session, job)
        assert [part[1] * 2 for part in found] == ["aa", "bb"]
        groups = await groups_of(session, job)
        assert all(body.digest for body in groups)
        await session.engine.blobs.remove(groups[0].digest)
        assert len(await all_parts(session, job, from_=1)) == 1


@pytest.mark.virtual_time
async def test_the_longer_a_stream_the_longer_its_parts_wait_for_others(monkeypatch):
    monkeypatch.setattr(stream_writer, "GROUPS_EACH", 3)

    async def counting() -> AsyncIterator[int]:
        for number in range(40):
            yield number
            await asyncio.sleep(0.5)

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(counting)
        job = await call(session)
        assert await all_parts(session, job) == [str(number) for number in range(40)]
        counts = [count_in(body.name) for body in await groups_of(session, job)]
        assert counts[:3] == [1, 1, 1]
        assert counts[3:5] == [2, 2]
        assert max(counts) > 10


@pytest.mark.virtual_time
async def test_what_was_yielded_before_an_error_is_kept_and_the_reader_is_told_of_the_failure():
    async def failing() -> AsyncIterator[int]:
        yield 1
        raise ValueError("no more")

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(failing)
        job, seen = await call(session, retry=ops.Retry(attempts=1)), []

        async def read():
            async with reading(session, job) as parts:
                async for part in parts:
                    seen.append(bytes(part))

        with pytest.raises(JobFailed, match="no more"):
            await read()
        assert seen == [b"1"]


@pytest.mark.virtual_time
async def test_a_part_of_another_type_than_the_annotation_fails_the_job():
    async def lying() -> AsyncIterator[int]:
        yield "text"

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(lying)
        job = await call(session, retry=SOON)
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert "a part of test.work" in ended.error.message
        assert ended.error.name == "TypeError"


def test_a_generator_runs_in_the_event_loop_and_says_what_it_yields():
    async def parts() -> AsyncIterator[int]:
        yield 1

    async def wrong() -> int:
        yield 1

    with pytest.raises(Misconfigured, match="cannot run in a process"):
        Handlers().register(KIND, parts, HandlerOptions(run_in="process"))
    with pytest.raises(TypeError, match=r"returns AsyncIterator\[...\]"):
        Handlers().register(KIND, wrong)


@pytest.mark.parametrize("name", ["", "+", "1+", "+2", "a+1", "1+b", "1+-2", "1", "²+1"])
def test_a_group_that_does_not_say_its_size_is_read(name):
    assert count_in(name) is None
    assert count_in(group_name(3, 4)) == 4
