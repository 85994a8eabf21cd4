"""Scores as a program and a file give them: options, fallbacks, help, and beats beside times."""

import asyncio
from pathlib import Path

import pytest

from antiphon import JobContext, Mesh, Misconfigured, Score
from antiphon.core.families.jobs.ops import JobClaim
from antiphon.core.tempo.phases import Phases
from antiphon.sdk.call_options import Scheduling
from antiphon.sdk.tempo.score_file import read_score_file
from tests.patience import PATIENCE_S

EXAMPLE = Path(__file__).parents[3] / "examples" / "score.yaml"
SIGNED_MS = 250
"""Within this time a claim is signed, once its lease was chosen; a beat has a second."""
QUICK = {"wait_budget": {"help": 0}, "escalation": {"on_wait_exhausted": ["fallback:coarse"]}}


async def body_of(handle):
    return (await handle.lane()).submitted_with


@pytest.mark.req("B11")
async def test_a_task_a_call_and_a_submission_by_kind_can_have_a_score():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.scored", score={"phases": {"work": 3}})
    async def scored() -> None: ...

    async with mesh:
        for handle, work in (
            (await scored.submit(), 3),
            (await scored.options(score=Score(phases=Phases(work=5))).submit(), 5),
            (await mesh.submit("example.scored", options={"score": {"phases": {"work": 7}}}), 7),
        ):
            assert (await body_of(handle)).score.phases.work == work


@pytest.mark.req("B11")
def test_a_score_file_is_read_as_it_stands():
    score = read_score_file(EXAMPLE)
    assert (score.tempo, score.bar_len, score.retry.max_phrases) == (15, 8, 3)
    assert score.phases == Phases(plan=1, work=4, review=1)
    assert score.escalation.on_overrun == ("checkpoint", "defer:next-phrase")


@pytest.mark.parametrize(
    "text, words",
    [
        ("phases: {plan: 0}", "plan"),
        ("phase: {plan: 1}", "unknown field `phase`"),
        ("escalation: {on_overrun: [explode]}", "on_overrun"),
        ("- 1", "has no score"),
        ("phases: [", "line"),
        ("a: b: c", "line"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, words):
    file = tmp_path / "score.yaml"
    file.write_text(text)
    with pytest.raises(Misconfigured) as wrong:
        read_score_file(file)
    assert str(file) in wrong.value.message
    assert words in wrong.value.message + wrong.value.hint
    with pytest.raises(Misconfigured, match="cannot be read"):
        read_score_file(tmp_path / "missing")


def test_a_wrong_score_of_a_task_is_said_before_anything_runs():
    with pytest.raises(Misconfigured, match="score"):
        Scheduling.of({"score": {"phases": {"sleep": 1}}})


@pytest.mark.req("B12", "B13")
async def test_a_fallback_of_a_task_answers_and_the_result_is_marked():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.asks", score=QUICK)
    async def asks(number: int, ctx: JobContext) -> str:
        return await ctx.help(f"what is {number}?")

    @asks.fallback("coarse")
    def coarse(number: int) -> str:
        return f"about {number}"

    async with mesh, mesh.worker():
        handle = await asks.submit(7)
        assert await handle.result(timeout=PATIENCE_S) == "about 7"
        told = [line.words for line in await handle.story()]
        assert "degraded: " in told[-1]
        assert "the fallback coarse" in told[-1]
        assert coarse(1) == "about 1", "it is still a function"
    with pytest.raises(Misconfigured, match="two fallbacks"):
        asks.fallback("coarse")(coarse)


@pytest.mark.req("B3")
async def test_a_program_helps_the_jobs_of_others():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.asks", score={"wait_budget": {"help": 50}, "phases": {"work": 100}})
    async def asks(ctx: JobContext) -> str:
        return await ctx.help("anybody?")

    async def helps():
        async for asked in mesh.tempo.on_help("example.asks"):
            assert asked.about == "anybody?"
            await asked.promise(1)
            await asked.answer("yes")

    async with mesh, mesh.worker():
        helping = asyncio.ensure_future(helps())
        await asyncio.sleep(0.1)
        handle = await asks.submit()
        assert await handle.result(timeout=PATIENCE_S) == "yes"
        helping.cancel()


async def test_a_task_called_directly_has_the_time_and_keeps_nothing():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.direct")
    async def direct(ctx: JobContext) -> list[object]:
        saved = await ctx.checkpoint(b"x")
        phase = ctx.next_phase()
        waited = await ctx.wait_for(asyncio.sleep(0, "done"))
        return [saved, phase == ctx.phase, waited, 1 <= ctx.beat <= 8, ctx.last_checkpoint]

    assert await direct() == [False, True, "done", True, None]


@pytest.mark.req("B14")
async def test_the_leases_of_jobs_with_a_score_end_on_a_beat_and_say_how_many_are_left():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.scored", score={"phases": {"plan": 1, "work": 6, "review": 99}})
    async def scored(_: int) -> None:
        await asyncio.sleep(3.5)

    async with mesh:
        await mesh.authority.set_rules({"lease_ms": 5_000, "lease_ms_max": 9_000})
        await mesh.tempo.set({"initial_bpm": 60, "limits": {"max_bpm": 60}})
        async with mesh.worker():
            handles = []
            for number in range(3):
                handles.append(await scored.submit(number))
                await asyncio.sleep(0.3)
            for handle in handles:
                await handle.result(timeout=PATIENCE_S)
        history = await mesh.tempo.history()
        for handle in handles:
            ops = [one.opened.op for one in (await handle.lane()).history]
            claims = [op for op in ops if isinstance(op, JobClaim)]
            first, renewals = claims[0], [op for op in claims if op.body.fence is not None]
            end_ms = first.hlc[0] + first.body.lease_ms
            meter, _ = history.in_force(first.hlc[0])
            # Signed a little later than its lease was chosen, or by a clock a millisecond behind.
            nearest = meter.beat_at(end_ms + SIGNED_MS)
            assert abs(end_ms - nearest.epoch_ms) <= SIGNED_MS
            assert all(one.body.beats_left for one in renewals)
            assert any("beats left" in line.words for line in await handle.story())


def test_a_file_may_say_seconds_where_a_score_counts_beats(tmp_path):
    file = tmp_path / "score.yaml"
    file.write_text("score:\n  phases: {plan: 3s, work: 4}\n  wait_budget: {io: 1m}\n")
    score = read_score_file(file, in_beats={"3s": 2, "1m": 30}.get)
    assert (score.phases.plan, score.phases.work, score.wait_budget.io) == (2, 4, 30)
    with pytest.raises(Misconfigured, match="plan"):
        read_score_file(file)
