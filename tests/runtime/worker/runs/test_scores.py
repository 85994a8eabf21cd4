"""Scores at run time: runs are cut at their beats, waits end at theirs, and escalations follow."""

import asyncio
import time
from contextlib import suppress

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from antiphon import JobContext, WaitExhausted
from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.ops import Retry
from antiphon.core.policy.rate_limit import Allowance
from antiphon.core.tempo.budget import Budget, WaitCaps
from antiphon.core.tempo.messages import StatusClaim
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.score import Escalations, PhraseRetry, Score, WaitBudget
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.tempo.help_threads import help_asked
from antiphon.runtime.tempo.tempo_messages import STATUS_CLAIMS
from antiphon.runtime.worker.runs import escalation_writer
from tests.runtime import spawned
from tests.runtime.meshes import (
    CALM,
    KIND,
    QUICK,
    a_mesh,
    call,
    eventually,
    on_both_engines,
    on_both_engines_in_real_time,
    ops_on_lane,
)

BEAT_MS = 500
SHORT = Phases(plan=1, work=2, review=1)


def score(*overrun, waits=(), phases=SHORT, phrases=2, **budget):
    return Score(
        phases=phases,
        wait_budget=WaitBudget(**budget),
        retry=PhraseRetry(max_phrases=phrases),
        escalation=Escalations(on_overrun=overrun, on_wait_exhausted=waits),
    )


async def end_of(session, job):
    return await submission.wait_for_end(session, KIND, job.id)


def outputs(ended):
    return {one.name: one.text for one in ended.outputs}


def yields(view):
    return [
        judged.opened.op.body
        for judged in view.history
        if isinstance(judged.opened.op, ops.JobYield)
    ]


# --- overruns -----------------------------------------------------------------------------------


@pytest.mark.req("B11", "B12", "B15")
@on_both_engines
async def test_a_run_that_overruns_work_is_cut_checkpointed_and_goes_on_in_the_next_phrase(engine):
    seen, cut = [], []

    async def works(ctx: JobContext) -> str:
        seen.append((ctx.last_checkpoint, ctx.phase))
        if ctx.last_checkpoint is not None:
            return ctx.last_checkpoint.decode()
        assert ctx.next_phase() == "work"
        began = asyncio.get_running_loop().time()
        ctx.save_with(lambda: b"half")
        try:
            await asyncio.sleep(600)
        finally:
            cut.append(asyncio.get_running_loop().time() - began)

    async with a_mesh(engine, CALM) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        await mesh.worker(works, beat_ms=BEAT_MS)
        job = await call(session, score=score("checkpoint", "defer:next-phrase"))
        ended = await end_of(session, job)
        assert outputs(ended) == {"result": '"half"'}
        assert [checkpoint for checkpoint, _ in seen] == [None, b"half"]
        assert cut[0] * 1000 >= 2 * BEAT_MS
        if engine == "memory":  # in virtual time; a busy machine may be a beat late
            assert [phase for _, phase in seen] == ["plan", "plan"]
            assert cut[0] * 1000 <= 3 * BEAT_MS + 10, "whole beats, no more"
        view = await session.read_lane(KIND, job.id)
        (given,) = yields(view)
        assert (given.reason, given.error.name) == ("overrun", "Overrun")
        assert given.error.message == "it used up its 2 beats of work"
        assert given.checkpoint is not None
        assert 0 < given.retry_after_ms <= 2 * 8 * BEAT_MS
        assert ended.job.attempts == 1


@pytest.mark.exact_times
@pytest.mark.req("B11", "B12")
@on_both_engines
async def test_each_retry_has_half_of_the_beats_and_after_the_last_phrase_it_has_failed(engine):
    spans, began = [], 0.0

    async def endless(ctx: JobContext) -> None:
        nonlocal began
        began = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(600)
        finally:
            spans.append(asyncio.get_running_loop().time() - began)

    async with a_mesh(engine, CALM) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        await mesh.worker(endless, beat_ms=BEAT_MS)
        long = score(phases=Phases(plan=2, work=4, review=2), phrases=2)
        job = await call(session, score=long, retry=Retry(attempts=9, base_ms=10))
        ended = await end_of(session, job)
        assert (ended.job.outcome, ended.error.name) == ("failed", "Overrun")
        assert ended.error.message == "it used up its phrase of 4 beats"
        assert len(spans) == 2
        if engine == "memory":  # a busy machine begins late, and its timers fire late
            assert spans[0] * 1000 >= 8 * BEAT_MS > spans[1] * 1000 >= 4 * BEAT_MS


@pytest.mark.req("B12")
@on_both_engines
async def test_a_fallback_answers_where_the_handler_did_not_and_the_result_says_so(engine):
    async def endless(number: int) -> int:
        await asyncio.sleep(600)
        return number

    async def coarse(number: int, ctx: JobContext) -> int:
        return -number * ctx.attempt

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(endless, beat_ms=BEAT_MS, fallbacks={"coarse-answer": coarse})
        job = await call(session, 7, score=score("fallback:missing", "fallback:coarse-answer"))
        ended = await end_of(session, job)
        assert ended.job.outcome == "succeeded"
        assert outputs(ended)["result"] == "-7"
        assert outputs(ended)["degraded"] == (
            "it used up its phrase of 4 beats; the result is by the fallback coarse-answer"
        )


@pytest.mark.virtual_time
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_a_fallback_cannot_end_its_worker_either(error):
    async def endless() -> int:
        return await asyncio.sleep(600, 1)

    async def exits() -> int:
        raise error

    async def coarse() -> int:
        return 2

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        fallbacks = {"exits": exits, "coarse-answer": coarse}
        await mesh.worker(endless, beat_ms=BEAT_MS, fallbacks=fallbacks)
        with capture_logs() as logged:
            job = await call(session, score=score("fallback:exits", "fallback:coarse-answer"))
            ended = await end_of(session, job)
        assert (ended.job.outcome, outputs(ended)["result"]) == ("succeeded", "2")
        assert [one["fallback"] for one in logged if one["event"] == "fallback_failed"] == ["exits"]


@pytest.mark.req("B12")
@on_both_engines
async def test_a_handler_that_swallows_its_end_keeps_nothing(engine, monkeypatch):
    monkeypatch.setattr("antiphon.runtime.worker.runs.run_beats.STUBBORN_S", 0.3)
    over = asyncio.Event()

    async def stubborn() -> str:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()
        return "too late"

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(stubborn, beat_ms=BEAT_MS)
        job = await call(session, score=score(phrases=1))
        ended = await end_of(session, job)
        over.set()
        assert (ended.job.outcome, ended.error.name) == ("failed", "Overrun")


@pytest.mark.req("B12")
@on_both_engines_in_real_time
async def test_a_handler_that_never_awaits_is_shown(engine, capsys):
    async def blocking() -> str:
        time.sleep(1.0)
        await asyncio.sleep(0)
        await asyncio.sleep(600)

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(blocking, beat_ms=100)
        job = await call(session, score=score(phrases=1))
        ended = await end_of(session, job)
        assert ended.error.name == "Overrun"
        assert "event_loop_blocked" in capsys.readouterr().out


@pytest.mark.req("B12")
@on_both_engines_in_real_time
@pytest.mark.parametrize("run_in", ["thread", pytest.param("process", marks=pytest.mark.processes)])
async def test_threads_and_processes_are_held_to_their_phases(engine, run_in):
    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        how = HandlerOptions(run_in=run_in)
        await mesh.worker(spawned.overruns_review, how=how, beat_ms=1000, drain_s=0)
        phases = Phases(plan=10, work=10, review=1)
        job = await call(session, score=score(phases=phases, phrases=1))
        ended = await end_of(session, job)
        assert ended.error.message == "it used up its 1 beat of review"


# --- waits --------------------------------------------------------------------------------------


@pytest.mark.req("B12", "B13")
@on_both_engines
async def test_a_wait_for_io_ends_at_its_budget_and_each_has_its_own(engine):
    waits = []

    async def waits_twice(ctx: JobContext) -> str:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            began = loop.time()
            with suppress(WaitExhausted):
                await ctx.wait_for(asyncio.Event().wait(), budget="io", name="disk")
            waits.append(loop.time() - began)
        return await ctx.wait_for(asyncio.sleep(0, "in time"))

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(waits_twice, beat_ms=BEAT_MS)
        job = await call(session, score=score(phases=Phases(plan=9, work=9, review=9), io=1))
        ended = await end_of(session, job)
        assert outputs(ended)["result"] == '"in time"'
        assert "its 1 beat of waiting for io" in outputs(ended)["degraded"]
        assert "the handler itself" in outputs(ended)["degraded"]
        assert all(one * 1000 + 1 >= BEAT_MS for one in waits)
        if engine == "memory":  # in virtual time
            assert all(one * 1000 <= BEAT_MS + 10 for one in waits)


@pytest.mark.req("B12", "B13")
@on_both_engines
async def test_help_that_never_comes_ends_at_the_budget_with_the_fallback(engine):
    waited = []

    async def asks(ctx: JobContext) -> str:
        began = asyncio.get_running_loop().time()
        helped = ctx.help("which font?")
        try:
            return await helped
        finally:
            waited.append(asyncio.get_running_loop().time() - began)

    async def coarse() -> str:
        return "the default font"

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(asks, beat_ms=BEAT_MS, fallbacks={"coarse-answer": coarse})
        steps = ("emit:needs-attention", "fallback:coarse-answer")
        phases = Phases(plan=9, work=9, review=9)
        job = await call(session, score=score(waits=steps, phases=phases, help=2))
        ended = await end_of(session, job)
        assert outputs(ended)["result"] == '"the default font"'
        assert "the fallback coarse-answer" in outputs(ended)["degraded"]
        assert waited[0] > 0
        if engine == "memory":  # in virtual time
            assert waited[0] * 1000 <= 2 * BEAT_MS + 10, "the budget, or the bar's end"


def escalations(view):
    found = [one.opened for one in view.history if isinstance(one.opened.op, ops.JobArtifact)]
    return [(one.op.body.name, one.op.body.value, one.op.author) for one in found]


@pytest.mark.req("B13")
@on_both_engines
async def test_what_is_emitted_is_on_the_log_once_signed_by_the_worker(engine):
    async def slow(ctx: JobContext) -> str:
        for _ in range(2):  # the second time in one run says nothing new
            with suppress(WaitExhausted):
                await ctx.wait_for(asyncio.sleep(3600))
        await asyncio.sleep(3600)
        return "never"

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        worker = await mesh.worker(slow, beat_ms=BEAT_MS)
        steps = score("emit:cut", waits=("emit:needs-attention",), phrases=2, io=1)
        job = await call(session, score=steps, retry=Retry(attempts=2, base_ms=10))
        ended = await end_of(session, job)
        assert ended.job.outcome == "failed"
        view = await session.read_lane(KIND, job.id)
        did = worker.session.author.did
        assert len(yields(view)) == 1, "it ran twice"
        assert escalations(view) == [
            ("needs-attention", "it used up its 1 beat of waiting for io", did),
            ("cut", "it used up its phrase of 4 beats", did),
        ]
        assert view.lane.job.artifacts.escalations == 2


@pytest.mark.virtual_time
async def test_a_worker_stores_so_many_escalations_an_hour_and_logs_the_rest(monkeypatch):
    allowed = Allowance(per_s=1 / 3600, burst=1)
    monkeypatch.setattr(escalation_writer, "ALLOWED", allowed)

    async def slow(number: int, ctx: JobContext) -> int:
        with suppress(WaitExhausted):
            await ctx.wait_for(asyncio.sleep(3600))
        return number

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(slow, beat_ms=BEAT_MS)

        async def stored(number):
            job = await call(session, number, score=score(waits=("emit:slow",), io=1))
            assert (await end_of(session, job)).job.outcome == "succeeded"
            return len(escalations(await session.read_lane(KIND, job.id)))

        with capture_logs() as logged:
            assert [await stored(number) for number in range(3)] == [1, 0, 0]
            await asyncio.sleep(3600)
            assert [await stored(number) for number in (3, 4)] == [1, 0]
        told = [one["event"] for one in logged]
        assert told.count("job_emits") == 5
        assert told.count("escalation_not_stored") == 3


@pytest.mark.req("B3", "B13")
@on_both_engines
async def test_help_is_promised_and_comes_while_the_handler_works(engine):
    async def asks(ctx: JobContext) -> list[object]:
        helped = ctx.help("which font?")
        before = helped.is_answered
        await eventually(lambda: helped.is_promised)
        return [before, await helped, ctx.attempt]

    async def helper(session):
        async for asked in help_asked(session, KIND):
            await asked.promise(2, fail_after_beats=4, confidence=0.5)
            await asyncio.sleep(0.1)
            await asked.answer(f"about {asked.about}: serif")

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        helping = asyncio.ensure_future(helper((await mesh.connection()).session))
        await asyncio.sleep(0.2)
        await mesh.worker(asks, beat_ms=BEAT_MS)
        phases = Phases(plan=30, work=30, review=30)
        # The end of the bar comes first if the promise is asked for in its last moments.
        job = await call(session, score=score(phases=phases, help=20), retry=Retry(base_ms=10))
        ended = await end_of(session, job)
        found = ended.outputs[0].text
        assert found.startswith('[false,"about which font?: serif"')
        helping.cancel()


@pytest.mark.req("B3", "B13")
@on_both_engines
async def test_a_promise_that_is_not_kept_closes_its_thread(engine):
    async def asks(ctx: JobContext) -> str:
        helped = ctx.help("which font?")
        await eventually(lambda: helped.is_promised)
        try:
            return await helped
        except WaitExhausted as spent:
            return spent.message

    async def helper(session):
        async for asked in help_asked(session, KIND):
            await asked.promise(1, fail_after_beats=2)

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        helping = asyncio.ensure_future(helper((await mesh.connection()).session))
        await asyncio.sleep(0.2)
        await mesh.worker(asks, beat_ms=BEAT_MS)
        phases = Phases(plan=30, work=30, review=30)
        job = await call(session, score=score(phases=phases, help=20), retry=Retry(base_ms=10))
        ended = await end_of(session, job)
        assert "did not come within 2 beats" in outputs(ended)["result"]
        helping.cancel()


@pytest.mark.req("B13", "B21")
@on_both_engines
async def test_a_budgets_caps_lower_the_scores(engine):
    async def asks(ctx: JobContext) -> bool:
        helped = ctx.help("which font?")
        with suppress(WaitExhausted):
            await helped
        return helped.is_answered

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(asks, beat_ms=BEAT_MS)
        caps = Budget(wait_caps=WaitCaps(help=0))
        job = await call(session, score=score(help=3), budget=caps)
        ended = await end_of(session, job)
        assert outputs(ended)["result"] == "false"


# --- leases and claims --------------------------------------------------------------------------


@pytest.mark.req("B14")
@on_both_engines
async def test_leases_end_with_a_phase_and_renewals_say_the_beats_left(engine):
    async def works(ctx: JobContext) -> int:
        await asyncio.sleep(4)
        return ctx.beats_left

    rules = replace(QUICK, lease_ms=3000, lease_ms_max=6000)
    async with a_mesh(engine, rules) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        await mesh.worker(works, beat_ms=500)
        phases = Phases(plan=3, work=6, review=3)
        await asyncio.sleep(0.137)  # a run that begins within a beat renews within one, too
        job = await call(session, score=score(phases=phases))
        assert (await end_of(session, job)).job.outcome == "succeeded"
        view = await session.read_lane(KIND, job.id)
        claims = [
            judged.opened.op
            for judged in view.history
            if isinstance(judged.opened.op, ops.JobClaim)
        ]
        assert claims[0].body.beats_left is None
        renewals = [one for one in claims if one.body.fence is not None]
        assert renewals
        assert all(1 <= one.body.beats_left <= 13 for one in renewals)
        if engine == "memory":
            ends = {one.hlc[0] + one.body.lease_ms for one in claims}
            assert all(end % 500 == 0 for end in ends), "on a real server, but for signing"


@pytest.mark.req("B2")
@on_both_engines
async def test_claims_are_sent_on_every_beat_and_change_and_not_by_short_jobs(engine):
    heard = []

    async def listen(session):
        async with session.engine.bus.subscribe(f"status.{KIND}") as messages:
            async for one in messages:
                opened = STATUS_CLAIMS.open(
                    one.payload, mesh=session.mesh, subject=one.subject, now_ms=0
                )
                heard.append(opened.body)

    async def works(seconds: float, ctx: JobContext) -> None:
        ctx.progress(0.25, "a quarter")
        await asyncio.sleep(seconds)
        if seconds > 0:
            ctx.next_phase()
            await ctx.wait_for(asyncio.sleep(0.05), budget="io", name="disk")

    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        listening = asyncio.ensure_future(listen((await mesh.connection()).session))
        await asyncio.sleep(0.2)
        worker = await mesh.worker(works, beat_ms=BEAT_MS)
        for seconds in (0, 2.0):
            phases = Phases(plan=9, work=9, review=9)
            await end_of(session, await call(session, seconds, score=score(phases=phases)))
            await end_of(session, await call(session, seconds))
        await eventually(lambda: heard and heard[-1].state == "done")
        assert all(isinstance(one, StatusClaim) for one in heard)
        assert {one.agent_id for one in heard} == {worker.did}
        assert len({one.task_id for one in heard}) == 1, "the long one with a score"
        states = [one.state for one in heard]
        assert states.count("planning") >= (3 if engine == "memory" else 1)
        assert {"planning", "executing", "waiting", "done"} == set(states)
        assert {one.wait_for for one in heard if one.state == "waiting"} == {("disk",)}
        assert heard[-1].progress == 0.25
        listening.cancel()


@on_both_engines
async def test_without_a_score_nothing_is_cut_and_waits_have_no_limit(engine):
    async def works(ctx: JobContext) -> list[object]:
        await ctx.wait_for(asyncio.sleep(0.3), budget="help")
        return [ctx.next_phase() in {"plan", "work", "review"}, 1 <= ctx.beats_left <= 8]

    async with a_mesh(engine, CALM) as mesh:
        node = await mesh.node()
        session = (await mesh.connection()).session
        await mesh.worker(works, beat_ms=100)
        job = await call(session)
        ended = await end_of(session, job)
        assert outputs(ended) == {"result": "[true,true]"}
        await node.reached(ended.job.ended_seq)
        assert ops_on_lane(node, job.id)[0] == ("job.schedule", "ok")
