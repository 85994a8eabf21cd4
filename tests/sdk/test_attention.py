"""`mesh.queries.attention`: what needs somebody, until it is resolved."""

import asyncio

import pytest

from antiphon import JobContext, JobFailed, Mesh, Rejected
from antiphon.core.tempo.bars.alarms import Alarm
from antiphon.core.tempo.bars.kpis import Tally
from antiphon.core.tempo.messages import BarReport
from antiphon.interfaces.cli.commands.questions.attention import typed
from antiphon.runtime.replica.replica_reports import KeptReport
from tests.patience import PATIENCE_S
from tests.sdk.test_queries import a_mesh

START = "2026-01-01T00:00:00.000Z"


async def items(mesh: Mesh) -> list[tuple[str, str]]:
    return [(one.service, one.reason) for one in await mesh.queries.attention()]


async def test_an_open_question_needs_attention_until_it_is_answered():
    mesh = a_mesh()

    @mesh.task("shop.close")
    async def close(ctx: JobContext) -> str:
        return await ctx.ask("close the shop?", kind="approve.close", choices=("yes", "no"))

    async with mesh, mesh.worker():
        job = await close.submit()
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await mesh.queries.attention()):
                await asyncio.sleep(0.02)
        (one,) = found
        assert (one.service, one.reason) == ("questions", "close the shop?")
        (question,) = await mesh.questions.open(kind="approve")
        assert one.item == f"approve.close {question.job_id}"
        assert typed(one) == f"antiphon answer {question.job_id[:8]}"
        await mesh.questions.answer(question.kind, question.job_id, "no")
        assert await job.result() == "no"
        assert await items(mesh) == []
        assert await mesh.questions.open() == []
        assert (await mesh.questions.find(question.job_id[:12])).text == "close the shop?"
        with pytest.raises(Rejected, match="not a question"):
            await mesh.questions.find(job.id)


async def test_a_job_without_a_result_needs_attention_until_it_is_retried():
    async with a_mesh() as mesh, mesh.worker():
        handle = await mesh.ship.submit(-1)
        with pytest.raises(JobFailed):
            await handle.result()
        cancelled = await mesh.submit("shop.ship", 3, options={"delay": "1h"})
        await cancelled.cancel("not wanted")
        assert await items(mesh) == [("dead jobs", "failed: order -1 has no address")]
        again = await handle.retry()
        with pytest.raises(JobFailed):
            await again.result()
        (one,) = await mesh.queries.attention()
        assert one.item == f"shop.ship {again.id}", "of the two, the newest"


async def test_conflicts_and_alarms_need_attention_until_they_are_over():
    async with a_mesh() as mesh:
        notes = mesh.memory["notes"]
        old = (await notes.put("plan", 1)).document
        await notes.put("plan", 2, base=old)
        await notes.put("plan", 3, base=old, strategy="defer")
        assert await items(mesh) == [("conflicts", "1 value waits for a decision")]
        async with mesh.replica() as replica:
            now_ms = mesh.connection.session.wall.now_ms()
            for end_ms, alarms in ((now_ms - 1, (Alarm("overrun_rate", "3 of 5"),)), (now_ms, ())):
                replica.reports.put(_report(end_ms, alarms))
                found = {one.service for one in await mesh.queries.attention()}
                assert ("alarms" in found) is bool(alarms)


def _report(end_ms: int, alarms: tuple[Alarm, ...]) -> KeptReport:
    report = BarReport(cluster_id="c", window_start=START, window_end=START, tempo_bpm=60)
    return KeptReport(
        start_ms=end_ms - 10, end_ms=end_ms, report=report, tally=Tally(), alarms=alarms
    )
