"""Checkpoints at run time: stored at once, once a beat, and the next tenure begins with them."""

import asyncio

import pytest

from antiphon import JobContext, Malformed
from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.ops import Checkpoint
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.node.artifact_eviction import Evictor
from antiphon.runtime.replica.replica_records import ReplicaBlobs
from antiphon.runtime.values.checkpoint_bytes import packed_checkpoint
from antiphon.runtime.worker.tenure import Tenure
from tests.runtime import spawned
from tests.runtime.meshes import (
    CALM,
    KEPT,
    KIND,
    a_mesh,
    call,
    eventually,
    on_both_engines,
    on_both_engines_in_real_time,
    ops_on_lane,
)

pytestmark = pytest.mark.req("B15")


async def end_of(session, job):
    return await submission.wait_for_end(session, KIND, job.id)


def value(ended):
    assert ended.job.outcome == "succeeded", ended
    return ended.outputs[0].text


@on_both_engines
async def test_the_next_tenure_begins_with_the_last_checkpoint(engine):
    stored, seen = asyncio.Event(), []

    async def counting(ctx: JobContext) -> str:
        seen.append(ctx.last_checkpoint)
        if ctx.last_checkpoint is None:
            assert await ctx.checkpoint(b"half")
            stored.set()
            await asyncio.sleep(600)
        return ctx.last_checkpoint.decode()

    async with a_mesh(engine, KEPT) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        doomed = await mesh.worker(counting, drain_s=0)
        job = await call(session)
        await stored.wait()
        doomed._leases.close()  # a dead process renews nothing
        doomed.paused.add("sleep")
        await mesh.worker(counting)
        assert value(await end_of(session, job)) == '"half"'
        assert seen == [None, b"half"]


@pytest.mark.virtual_time
async def test_each_is_written_in_a_beat_of_its_own():
    async def eager(ctx: JobContext) -> None:
        await ctx.checkpoint(b"0")
        await ctx.checkpoint(b"1")

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(eager, beat_ms=500)
        job = await call(session)
        await end_of(session, job)
        view = await session.read_lane(KIND, job.id)
        ops_there = (judged.opened.op for judged in view.history)
        named = [op for op in ops_there if isinstance(op, ops.JobClaim) and op.body.checkpoint]
        assert len(named) == len({op.hlc[0] // 500 for op in named}) == 2


@on_both_engines
async def test_at_most_one_is_written_in_a_beat_and_the_newest_wins(engine):
    async def eager(ctx: JobContext) -> list[bool]:
        first = await ctx.checkpoint(b"0")
        more = [ctx.checkpoint(str(number).encode()) for number in range(1, 20)]
        return [first, *[await one for one in more]]

    async with a_mesh(engine, CALM) as mesh:
        node = await mesh.node()
        session = (await mesh.connection()).session
        await mesh.worker(eager, beat_ms=500)
        job = await call(session)
        ended = await end_of(session, job)
        assert value(ended) == str([True] * 20).replace("True", "true").replace(" ", "")
        await node.reached(ended.job.ended_seq)
        renewals = [said for op, said in ops_on_lane(node, job.id) if op == "job.claim"][1:]
        assert renewals == ["ok", "ok"]
        last = packed_checkpoint(KIND, job.id, b"19")
        found = await Artifacts(session.engine.blobs).read(ended.job.replaced[-1], max_bytes=10**6)
        assert found == last


@on_both_engines
async def test_a_worker_that_drains_asks_for_a_last_one(engine):
    begun, seen = asyncio.Event(), []

    async def counting(ctx: JobContext) -> str:
        seen.append(ctx.last_checkpoint)
        if ctx.last_checkpoint is None:
            ctx.save_with(lambda: b"as far as it came")
            begun.set()
            await asyncio.sleep(600)
        return "done"

    async with a_mesh(engine, CALM) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        first = await mesh.worker(counting, drain_s=0)
        job = await call(session)
        await begun.wait()
        first.drain()
        await mesh.worker(counting)
        ended = await end_of(session, job)
        assert (value(ended), ended.job.attempts) == ('"done"', 0)
        assert seen == [None, b"as far as it came"]


@on_both_engines
async def test_a_handler_that_fails_keeps_what_it_gave_last(engine):
    seen = []

    async def failing(ctx: JobContext) -> str:
        seen.append(ctx.last_checkpoint)
        if ctx.attempt == 1:
            ctx.checkpoint(b"just before")
            raise ValueError("once")
        return "done"

    async with a_mesh(engine, CALM) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        await mesh.worker(failing)
        job = await call(session, retry=ops.Retry(base_ms=10))
        assert value(await end_of(session, job)) == '"done"'
        assert seen == [None, b"just before"]


@on_both_engines
async def test_the_log_may_refuse_and_the_handler_goes_on(engine, monkeypatch, capsys):
    monkeypatch.setattr(ops, "MAX_REPLACED", 1)

    async def eager(ctx: JobContext) -> list[bool]:
        return [await ctx.checkpoint(bytes([number])) for number in range(4)]

    async with a_mesh(engine, CALM) as mesh:
        await mesh.node(caretaking=False)
        session = (await mesh.connection()).session
        await mesh.worker(eager, beat_ms=100)
        job = await call(session)
        assert value(await end_of(session, job)) == "[true,true,false,false]"
        assert "checkpoint_refused" in capsys.readouterr().out


async def test_what_is_too_large_or_no_bytes_is_refused_at_once(monkeypatch):
    async def large(ctx: JobContext) -> str:
        try:
            ctx.checkpoint(b"x" * 1001)
        except Malformed as problem:
            return problem.message
        return ""

    async def text(ctx: JobContext) -> str:
        ctx.checkpoint("text")
        return ""

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        init = Artifacts.__init__
        monkeypatch.setattr(
            Artifacts, "__init__", lambda *given, **how: init(*given, value_bytes=1000, **how)
        )
        await mesh.worker(large)
        await mesh.worker(text, kind="test.text")
        assert "1,001 bytes; the limit here is 1,000" in value(
            await end_of(session, await call(session))
        )
        job = await call(session, kind="test.text", retry=ops.Retry(attempts=1))
        ended = await submission.wait_for_end(session, "test.text", job.id)
        assert ended.error.name == "TypeError"


@on_both_engines_in_real_time
@pytest.mark.parametrize("run_in", ["thread", pytest.param("process", marks=pytest.mark.processes)])
async def test_threads_and_processes_have_them_too(engine, run_in):
    async with a_mesh(engine, CALM) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        how = HandlerOptions(run_in=run_in)
        await mesh.worker(spawned.resumed, how=how, beat_ms=100)
        job = await call(session, retry=ops.Retry(base_ms=10))
        assert value(await end_of(session, job)) == '["1,2",true]'


# --- what is named and is none ------------------------------------------------------------------


async def name_by_hand(mesh, session, named):
    """A job whose first tenure names something as its checkpoint and gives it back."""
    stop = asyncio.Event()

    async def first(ctx: JobContext) -> None:
        stop.set()
        await asyncio.sleep(600)

    worker = await mesh.worker(first, drain_s=0)
    tenures = []
    keep = Tenure.keep
    job = None

    def spy(self, *given, **how):
        tenures.append(self)
        return keep(self, *given, **how)

    Tenure.keep = spy
    try:
        job = await call(session)
        await stop.wait()
        for one in named:
            await tenures[0].renew(one)
    finally:
        Tenure.keep = keep
    return worker, job


@on_both_engines
async def test_what_is_no_checkpoint_of_the_job_is_left_out(engine, capsys):
    async def second(ctx: JobContext) -> bool:
        return ctx.last_checkpoint is None

    async with a_mesh(engine, CALM) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        kept = await Artifacts(session.engine.blobs).keep_bytes(b"somebody's file", "file")
        foreign = Checkpoint(hash=kept.hash, size=kept.size)
        worker, job = await name_by_hand(mesh, session, [foreign])
        worker.drain()
        await mesh.worker(second)
        assert value(await end_of(session, job)) == "true"
        assert "checkpoint_not_usable" in capsys.readouterr().out


@on_both_engines
async def test_replaced_ones_are_removed_soon_and_what_is_none_is_not(engine):
    async with a_mesh(engine, CALM) as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(caretaking=False, connection=owner)
        evictor, blobs = Evictor(node, grace_s=0.0), owner.session.engine.blobs
        store = Artifacts(blobs)
        foreign = await store.keep_bytes(b"somebody's file", "file")
        named = [Checkpoint(hash=foreign.hash, size=foreign.size)]
        session = owner.session
        worker, job = await name_by_hand(mesh, session, named)
        for data in (b"one", b"two"):
            one = await store.keep_bytes(packed_checkpoint(KIND, job.id, data), "checkpoint")
            named.append(Checkpoint(hash=one.hash, size=one.size))
        (tenure,) = [one for one in worker._leases._kept if isinstance(one, Tenure)]
        for one in named[1:]:
            await tenure.renew(one)
        await node.reached(tenure.lane.job_tail)
        await evictor.look()
        await node.reached((await session.log.last()).seq)
        await asyncio.sleep(0.01)
        await evictor.look()
        assert [await blobs.has(one.hash) for one in named] == [True, False, True]
        await submission.cancel(session, KIND, job.id, reason="")
        found = await end_of(session, job)
        assert set(found.job.stored) == {named[2].hash}
        await submission.evict(session, KIND, job.id, named[2].hash)
        await node.reached((await session.log.last()).seq)
        await asyncio.sleep(0.01)
        await evictor.look()
        assert [await blobs.has(one.hash) for one in named] == [True, False, False]
        await eventually(
            lambda: node.replica.ask(ReplicaBlobs).evicted_before(2**50, limit=9) == []
        )
