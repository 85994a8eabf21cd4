"""Help for a running job: until when it may be promised, what is told, what follows without it."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from antiphon import JobContext, WaitExhausted
from antiphon.core.tempo.budget import Budget, WaitCaps
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.score import Escalations, PhraseRetry, Score, WaitBudget
from antiphon.runtime.caller import submission
from antiphon.runtime.tempo.help_threads import help_asked
from antiphon.runtime.tempo.tempo_messages import STATUS_CLAIMS
from tests.runtime.meshes import CALM, KIND, a_mesh, call, eventually

pytestmark = pytest.mark.virtual_time
BEAT_MS = 500
METER = Meter(bpm=60_000 // BEAT_MS)
LONG = Phases(plan=90, work=90, review=90)


def score(*steps: str, beats: int = 30) -> Score:
    return Score(
        phases=LONG,
        wait_budget=WaitBudget(help=beats),
        retry=PhraseRetry(max_phrases=1),
        escalation=Escalations(on_wait_exhausted=steps),
    )


async def ended(session, job) -> dict[str, str]:
    end = await submission.wait_for_end(session, KIND, job.id)
    return {one.name: one.text for one in end.outputs}


@asynccontextmanager
async def heard(session):
    """The status claims of the kind, as others hear them."""
    claims = []

    async def listen() -> None:
        async with session.engine.bus.subscribe(f"status.{KIND}") as messages:
            async for one in messages:
                message = STATUS_CLAIMS.open(
                    one.payload, mesh=session.mesh, subject=one.subject, now_ms=0
                )
                claims.append(message.body)

    listening = asyncio.ensure_future(listen())
    await asyncio.sleep(0.1)
    try:
        yield claims
    finally:
        listening.cancel()


@asynccontextmanager
async def helping(session, *promises):
    """Somebody who promises, and does nothing else."""

    async def helper() -> None:
        async for asked in help_asked(session, KIND):
            for beats, more in promises:
                await asked.promise(beats, **more)

    running = asyncio.ensure_future(helper())
    await asyncio.sleep(0.1)
    try:
        yield
    finally:
        running.cancel()


# --- nobody promises ----------------------------------------------------------------------------


@pytest.mark.req("B13")
async def test_without_a_promise_the_wait_ends_with_the_bar_though_its_budget_is_longer():
    asked_ms, over_ms = [], []

    async with a_mesh("memory", CALM) as mesh:

        async def asks(ctx: JobContext) -> str:
            asked_ms.append(mesh.wall.now_ms())
            try:
                return await ctx.help("which font?")
            except WaitExhausted as nobody:
                over_ms.append(mesh.wall.now_ms())
                return nobody.message

        session = (await mesh.connection()).session
        await mesh.worker(asks, beat_ms=BEAT_MS)
        result = await ended(session, await call(session, score=score()))
        assert "nobody promised to help" in result["result"]
        bar_ends_ms = METER.downbeat_after(asked_ms[0])
        assert bar_ends_ms <= over_ms[0] <= bar_ends_ms + 5
        assert over_ms[0] - asked_ms[0] < 30 * BEAT_MS


@pytest.mark.req("B13")
async def test_the_end_of_the_bar_escalates_while_the_handler_works_on():
    """It never awaits the help, and is told to nobody by itself."""

    async def works_on(ctx: JobContext) -> str:
        ctx.help("which font?")
        await asyncio.sleep(12 * BEAT_MS / 1000)
        return "done alone"

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        async with heard((await mesh.connection()).session) as claims:
            await mesh.worker(works_on, beat_ms=BEAT_MS)
            with capture_logs() as logged:
                job = await call(session, score=score("emit:needs-attention"))
                result = await ended(session, job)
        assert result["result"] == '"done alone"'
        assert "nobody promised to help" in result["degraded"]
        told = [one for one in logged if one["event"] == "job_emits"]
        assert [(one["name"], one["job"]) for one in told] == [("needs-attention", job.id)]
        noted = [one.notes for one in claims if one.notes]
        assert noted, "listeners are told"
        assert noted[0].startswith("needs-attention: nobody promised to help")


@pytest.mark.req("B13")
async def test_without_escalations_nothing_is_told_and_the_attempt_has_failed():
    async def asks(ctx: JobContext) -> str:
        return await ctx.help("which font?")

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        async with heard((await mesh.connection()).session) as claims:
            await mesh.worker(asks, beat_ms=BEAT_MS)
            with capture_logs() as logged:
                job = await call(session, score=score())
                end = await submission.wait_for_end(session, KIND, job.id)
        assert (end.job.outcome, end.error.name) == ("failed", "WaitExhausted")
        assert "nobody promised to help" in end.error.message
        assert not [one for one in logged if one["event"] == "job_emits"]
        assert {one.notes for one in claims} <= {""}


@pytest.mark.req("B13", "B21")
async def test_a_budgets_cap_ends_a_wait_that_the_score_would_allow():
    async with a_mesh("memory", CALM) as mesh:

        async def asks(ctx: JobContext) -> list[object]:
            helped = ctx.help("which font?")
            await eventually(lambda: helped.is_promised)
            began_ms = mesh.wall.now_ms()
            try:
                return [await helped]
            except WaitExhausted as spent:
                return [spent.message, mesh.wall.now_ms() - began_ms]

        session = (await mesh.connection()).session
        async with helping((await mesh.connection()).session, (20, {})):
            await mesh.worker(asks, beat_ms=BEAT_MS)
            caps = Budget(wait_caps=WaitCaps(help=1))
            result = await ended(session, await call(session, score=score(), budget=caps))
        message, waited_ms = json.loads(result["result"])
        assert message == "it used up its 1 beat of waiting for help"
        assert waited_ms <= BEAT_MS + 5


# --- promises -----------------------------------------------------------------------------------


@pytest.mark.req("B3")
async def test_what_a_broken_promise_names_runs_before_the_scores_own_fallback():
    async def asks(ctx: JobContext) -> str:
        return await ctx.help("which font?")

    async def plan_a() -> str:
        return "plan A"

    async def coarse() -> str:
        return "coarse"

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        promise = (1, {"fail_after_beats": 2, "on_fail": "fallback-plan-a"})
        async with helping((await mesh.connection()).session, promise):
            fallbacks = {"fallback-plan-a": plan_a, "coarse-answer": coarse}
            await mesh.worker(asks, beat_ms=BEAT_MS, fallbacks=fallbacks)
            steps = score("fallback:coarse-answer")
            result = await ended(session, await call(session, score=steps))
        assert result["result"] == '"plan A"'
        assert "did not come within 2 beats" in result["degraded"]
        assert "the fallback fallback-plan-a" in result["degraded"]


@pytest.mark.req("B3")
async def test_a_handler_sees_how_certain_a_promise_is_and_what_to_do_without_it():
    seen = []

    async def asks(ctx: JobContext) -> str:
        helped = ctx.help("which font?")
        seen.append(helped.confidence)
        await eventually(lambda: helped.confidence == 0.7)
        try:
            return await helped
        except WaitExhausted as broken:
            return broken.on_fail

    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        promises = (
            (1, {"confidence": 0.4, "on_fail": "guess"}),
            (2, {"confidence": 0.7, "on_fail": "ask-a-person"}),
            (9, {"confidence": 0.6, "on_fail": "wait"}),
        )
        async with helping((await mesh.connection()).session, *promises):
            await mesh.worker(asks, beat_ms=BEAT_MS)
            result = await ended(session, await call(session, score=score()))
        assert seen == [0.0]
        assert result["result"] == '"ask-a-person"', "the most certain of the three"
