"""Steps at run time: stored once, found by whoever runs the job next, and never computed again."""

import asyncio
import gc
from dataclasses import dataclass

import pytest

from antiphon import JobContext, Misconfigured
from antiphon.core.families.jobs import ops
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.node.artifact_eviction import Evictor
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

SOON = ops.Retry(base_ms=10)
ONCE = ops.Retry(attempts=1)


class Steps:
    """Functions to call in steps, and what was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def upper(self, word: str) -> str:
        self.calls.append(word)
        return word.upper()


async def end_of(session, job):
    return await submission.wait_for_end(session, KIND, job.id)


def value(ended):
    assert ended.job.outcome == "succeeded", ended
    return ended.outputs[0].text


async def artifacts_of(session, job):
    view = await session.read_lane(KIND, job.id)
    found = [(one.opened.op, one.verdict) for one in view.history]
    return [(op.body, said) for op, said in found if isinstance(op, ops.JobArtifact)]


@on_both_engines
async def test_a_dead_workers_successor_computes_no_stored_step_again(engine):
    steps, stored = Steps(), asyncio.Event()

    async def work(ctx: JobContext) -> str:
        word = await ctx.step("first", steps.upper, "a")
        if not stored.is_set():
            stored.set()
            await asyncio.sleep(600)
        return word + await ctx.step("second", steps.upper, "b")

    async with a_mesh(engine, KEPT) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        doomed = await mesh.worker(work, drain_s=0)
        job = await call(session)
        await stored.wait()
        doomed._leases.close()  # a dead process renews nothing
        doomed.paused.add("sleep")
        await mesh.worker(work)
        assert value(await end_of(session, job)) == '"AB"'
        assert steps.calls == ["a", "b"]


@on_both_engines
async def test_a_step_is_on_the_log_before_the_next_line_runs(engine):
    steps, seen = Steps(), []

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session

        async def work(ctx: JobContext) -> None:
            await ctx.step("one", steps.upper, "a")
            view = await session.read_lane(KIND, ctx.job_id)
            seen.append(view.lane.job.artifacts.steps)
            await ctx.step("two", steps.upper, "b")

        await mesh.worker(work)
        job = await call(session)
        ended = await end_of(session, job)
        assert seen == [1]
        assert ended.job.artifacts.steps == 2
        found = await artifacts_of(session, job)
        assert [(body.name, body.n, body.value) for body, _ in found] == [
            ("one", 0, '"A"'),
            ("two", 1, '"B"'),
        ]


@on_both_engines
async def test_steps_outlast_failures_and_waits_for_other_jobs(engine):
    steps = Steps()

    async def failing(ctx: JobContext) -> str:
        words = [await ctx.step(f"step {word}", steps.upper, word) for word in "abc"[: ctx.attempt]]
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return "".join(words)

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(failing)
        job = await call(session, retry=SOON)
        assert value(await end_of(session, job)) == '"ABC"'
        assert steps.calls == ["a", "b", "c"]


@dataclass
class Page:
    url: str
    links: tuple[str, ...]


@pytest.mark.virtual_time
async def test_a_stored_result_has_the_type_that_its_function_says():
    seen = []

    async def fetch(url: str) -> Page:
        return Page(url, (url + "/1",))

    async def work(ctx: JobContext) -> None:
        seen.append(await ctx.step("fetch", fetch, url="a"))
        if ctx.attempt == 1:
            raise ValueError("once")

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(work)
        value(await end_of(session, await call(session, retry=SOON)))
        assert seen == [Page("a", ("a/1",))] * 2


@pytest.mark.virtual_time
async def test_the_same_name_again_gives_the_same_value_and_with_other_arguments_an_error():
    steps = Steps()

    async def twice(ctx: JobContext) -> list[str]:
        return [await ctx.step("same", steps.upper, "a"), await ctx.step("same", steps.upper, "a")]

    async def other(ctx: JobContext) -> None:
        await ctx.step("same", steps.upper, "b")
        await ctx.step("same", steps.upper, "c")

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(twice)
        assert value(await end_of(session, await call(session))) == '["A","A"]'
        await mesh.worker(other, kind="test.other")
        job = await call(session, kind="test.other", retry=SOON)
        ended = await submission.wait_for_end(session, "test.other", job.id)
        assert ended.error.name == "GiveUp"
        assert "'same' was stored with other arguments" in ended.error.message
        assert 'f"fetch {url}"' in ended.error.message
        assert steps.calls == ["a", "b"]


@pytest.mark.virtual_time
async def test_two_of_one_name_at_once_are_an_error_and_others_run_beside_each_other():
    steps = Steps()

    async def beside(ctx: JobContext) -> list[str]:
        found = [ctx.step(f"step {word}", steps.upper, word) for word in "abcdef"]
        return list(await asyncio.gather(*found))

    async def twice(ctx: JobContext) -> None:
        await asyncio.gather(*(ctx.step("same", steps.upper, "a") for _ in range(2)))

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(beside)
        await mesh.worker(twice, kind="test.twice")
        job = await call(session)
        assert value(await end_of(session, job)) == '["A","B","C","D","E","F"]'
        numbers = [body.n for body, said in await artifacts_of(session, job)]
        assert numbers == list(range(6))
        job = await call(session, kind="test.twice", retry=SOON)
        ended = await submission.wait_for_end(session, "test.twice", job.id)
        assert "'same' is running already" in ended.error.message


@on_both_engines
async def test_large_results_are_stored_outside_the_log_and_go_when_the_job_has_ended(engine):
    calls = []

    async def large() -> str:
        calls.append(1)
        return "x" * 300_000

    async def work(ctx: JobContext) -> int:
        text = await ctx.step("large", large)
        if ctx.attempt == 1:
            raise ValueError("once")
        return len(text)

    async with a_mesh(engine, CALM) as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(caretaking=False, connection=owner)
        session, blobs = owner.session, owner.session.engine.blobs
        await mesh.worker(work)
        job = await call(session, retry=SOON)
        ended = await end_of(session, job)
        assert (value(ended), len(calls)) == ("300000", 1)
        ((body, _),) = await artifacts_of(session, job)
        assert body.value is None
        assert body.digest in ended.job.stored
        assert await blobs.has(body.digest)
        await submission.evict(session, KIND, job.id, body.digest)
        await node.reached((await session.log.last()).seq)
        await asyncio.sleep(0.01)
        await Evictor(node, grace_s=0.0).look()
        assert not await blobs.has(body.digest)


@pytest.mark.virtual_time
async def test_when_the_records_have_taken_enough_small_results_are_stored_outside_too(monkeypatch):
    monkeypatch.setattr("antiphon.runtime.worker.runs.artifact_writer.MAX_ARTIFACT_TEXTS", 5)
    monkeypatch.setattr(ops, "MAX_ARTIFACT_TEXTS", 5)
    steps = Steps()

    async def work(ctx: JobContext) -> list[str]:
        return [await ctx.step(word, steps.upper, word) for word in ("a", "b")]

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(work)
        job = await call(session)
        assert value(await end_of(session, job)) == '["A","B"]'
        found = [body for body, _ in await artifacts_of(session, job)]
        assert [body.value for body in found] == ['"A"', None]


@pytest.mark.virtual_time
async def test_a_job_has_so_many_steps_and_no_more(monkeypatch):
    monkeypatch.setitem(ops.MAX_ARTIFACTS, "step", 3)
    steps = Steps()

    async def work(ctx: JobContext) -> None:
        for word in "abcd":
            await ctx.step(word, steps.upper, word)

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(work)
        ended = await end_of(session, await call(session, retry=SOON))
        assert ended.error.message == "a job stores at most 3 steps"
        assert ended.job.artifacts.steps == 3


@pytest.mark.virtual_time
async def test_a_result_that_cannot_be_carried_fails_the_job_and_stores_nothing():
    async def strange() -> object:
        return object()

    async def work(ctx: JobContext) -> None:
        await ctx.step("strange", strange)

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(work)
        ended = await end_of(session, await call(session, retry=SOON))
        assert "the result of the step 'strange'" in ended.error.message
        assert ended.job.artifacts is None


@pytest.mark.virtual_time
async def test_while_the_engine_is_away_a_step_waits_and_is_then_stored_once():
    steps, away = Steps(), asyncio.Event()

    async with a_mesh("memory", CALM) as mesh:
        session, connection = (await mesh.connection()).session, await mesh.connection()

        async def cutting(word: str) -> str:
            connection.session.engine.sever()
            away.set()
            return await steps.upper(word)

        async def work(ctx: JobContext) -> str:
            return await ctx.step("cut", cutting, "a")

        await mesh.worker(work, connection=connection)
        job = await call(session)
        await away.wait()
        await asyncio.sleep(5)
        connection.session.engine.heal()
        assert value(await end_of(session, job)) == '"A"'
        assert [said for _, said in await artifacts_of(session, job)] == [Verdict.OK]
        assert steps.calls == ["a"]


@pytest.mark.virtual_time
async def test_a_write_without_an_answer_is_looked_for_before_it_is_repeated(monkeypatch):
    steps, really, lost = Steps(), Tenure.store, []

    async def unanswered(self, *given):
        verdict = await really(self, *given)
        if not lost:
            lost.append(verdict)
            raise submission.Unavailable("no answer")
        return verdict

    monkeypatch.setattr(Tenure, "store", unanswered)

    async def work(ctx: JobContext) -> list[str]:
        return [await ctx.step(word, steps.upper, word) for word in ("a", "b")]

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(work)
        job = await call(session)
        assert value(await end_of(session, job)) == '["A","B"]'
        assert [body.name for body, _ in await artifacts_of(session, job)] == ["a", "b"]


@on_both_engines_in_real_time
@pytest.mark.parametrize("run_in", ["thread", pytest.param("process", marks=pytest.mark.processes)])
async def test_threads_and_processes_have_them_too(engine, run_in, tmp_path):
    notes = tmp_path / "notes"
    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(spawned.takes_steps, how=HandlerOptions(run_in=run_in))
        job = await call(session, str(notes), retry=SOON)
        assert value(await end_of(session, job)) == '["A","xx","B"]'
        assert notes.read_text().split() == ["a", "b"]


@pytest.mark.processes
async def test_a_coroutine_in_a_process_awaits_them(tmp_path):
    notes = tmp_path / "notes"
    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        how = HandlerOptions(run_in="process")
        await mesh.worker(spawned.takes_steps_in_a_loop, how=how)
        await mesh.worker(spawned.takes_one_step_twice, how=how, kind="test.twice")
        job = await call(session, str(notes), retry=SOON)
        assert value(await end_of(session, job)) == '["A","xx","B"]'
        assert notes.read_text().split() == ["a", "b"]
        job = await call(session, str(notes), kind="test.twice", retry=SOON)
        ended = await submission.wait_for_end(session, "test.twice", job.id)
        assert (ended.error.name, ended.job.attempts) == ("GiveUp", 0)


async def test_a_thread_whose_job_is_gone_stores_nothing_more(tmp_path):
    begun, told = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def work(ctx: JobContext) -> None:
        loop.call_soon_threadsafe(begun.set)
        ctx.stop.wait()
        try:
            ctx.step("late", lambda: 1).wait()
        except Exception as error:
            told.append(type(error).__name__)
            raise

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(work)
        job = await call(session)
        await begun.wait()
        await submission.cancel(session, KIND, job.id, reason="")
        await eventually(lambda: told == ["StaleFence"])
        assert await artifacts_of(session, job) == []


async def test_what_blocks_runs_in_a_thread_and_what_cannot_be_waited_for_says_so():
    def plain(word: str) -> str:
        return word.upper()

    async def blocking(ctx: JobContext) -> str:
        try:
            ctx.step("wrong", plain, "a").wait()
        except Misconfigured as problem:
            return await ctx.step("right", plain, "a") + str(problem.hint)
        return ""

    def awaiting(ctx: JobContext) -> None:
        ctx.step("wrong", asyncio.sleep, 1).wait()

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(blocking)
        await mesh.worker(awaiting, kind="test.awaiting")
        told = value(await end_of(session, await call(session)))
        assert "await ctx.step(" in told
        assert told.startswith('"A')
        job = await call(session, kind="test.awaiting", retry=ONCE)
        ended = await submission.wait_for_end(session, "test.awaiting", job.id)
        assert "make the handler 'async def' and await the step" in ended.error.message


async def test_a_task_that_is_called_directly_remembers_its_steps_for_one_call():
    steps, ctx = Steps(), JobContext(kind=KIND, job_id="", fence="", attempt=1)
    assert await ctx.step("one", steps.upper, "a") == await ctx.step("one", steps.upper, "a") == "A"
    assert steps.calls == ["a"]


def test_a_step_that_nobody_awaits_warns():
    ctx = JobContext(kind=KIND, job_id="", fence="", attempt=1)
    with pytest.warns(RuntimeWarning, match="'lonely' was never awaited"):
        made_and_left(ctx)


def made_and_left(ctx):
    ctx.step("lonely", str, 1)
    gc.collect()


@on_both_engines
async def test_what_another_worker_named_and_nobody_stored_is_an_error_and_not_computed(engine):
    """A worker can name any digest as a step's result."""
    begun, steps, tenures = asyncio.Event(), Steps(), []

    async def first(ctx: JobContext) -> None:
        tenures.append(ctx.run.tenure)
        begun.set()
        await asyncio.sleep(600)

    async def second(ctx: JobContext) -> str:
        return await ctx.step("one", steps.upper, "a")

    async with a_mesh(engine, CALM) as mesh:
        node = await mesh.node()
        session = (await mesh.connection()).session
        foreign = await Artifacts(session.engine.blobs).keep_bytes(b"somebody's file", "file")
        worker = await mesh.worker(first, drain_s=0)
        job = await call(session, retry=ONCE)
        await begun.wait()
        (tenure,) = tenures
        body = ops.ArtifactBody(
            kind=KIND, job=job.id, fence=tenure.fence, as_="step", name="one", n=0,
            digest=foreign.hash, size=foreign.size,
        )  # fmt: skip
        assert await tenure.store(body) is Verdict.OK
        worker.drain()
        await mesh.worker(second)
        ended = await end_of(session, job)
        assert "the stored result of the step 'one' cannot be read" in ended.error.message
        assert steps.calls == []
        await node.reached(ended.job.ended_seq)
        assert ops_on_lane(node, job.id)[-1] == ("job.complete", "ok")
