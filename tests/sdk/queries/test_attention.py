"""`mesh.queries.attention`: what needs somebody, until it is resolved."""

import asyncio

import pytest

from antiphon import JobContext, JobFailed, Mesh, Rejected, WaitExhausted
from antiphon.core.tempo.bars.alarms import Alarm
from antiphon.core.tempo.bars.kpis import Tally
from antiphon.core.tempo.messages import BarReport
from antiphon.runtime.replica.replica_reports import KeptReport
from antiphon.sdk.archive.erasure import forget_job
from antiphon.sdk.queries import attention
from antiphon.sdk.queries.attention import resolved_by
from antiphon.sdk.queries.namespace import Queries
from tests.patience import PATIENCE_S
from tests.sdk.queries.test_queries import a_mesh, reads

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
        assert resolved_by(one) == f"antiphon answer {question.job_id[:8]}"
        await mesh.questions.answer(question.kind, question.job_id, "no")
        assert await job.result() == "no"
        assert await items(mesh) == []
        assert await mesh.questions.open() == []
        assert (await mesh.questions.find(question.job_id[:12])).text == "close the shop?"
        with pytest.raises(Rejected, match="not a question"):
            await mesh.questions.find(job.id)


ESCALATES = {
    "wait_budget": {"io": 0},
    "escalation": {"on_wait_exhausted": ["emit:needs-attention", "fallback:coarse"]},
}


async def test_a_job_that_asks_for_somebody_needs_attention_until_it_has_its_result(monkeypatch):
    mesh = a_mesh()

    @mesh.task("shop.price", score=ESCALATES)
    async def price(is_patient: bool, ctx: JobContext) -> str:
        try:
            await ctx.wait_for(asyncio.Event().wait(), name="the supplier")
        except WaitExhausted:
            if not is_patient:
                raise
        await asked.wait()
        return "12.50"

    @price.fallback("coarse")
    async def coarse(is_patient: bool) -> str:
        return "about 10"

    asked = asyncio.Event()
    async with mesh, mesh.worker() as worker:
        job = await price.submit(True)
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await mesh.queries.attention()):
                await asyncio.sleep(0.02)
        (one,) = found
        assert (one.service, one.item) == ("escalations", f"shop.price {job.id}")
        assert one.reason == "needs-attention: it used up its 0 beats of waiting for io"
        assert (one.by, one.tries) == (worker.did, 1)
        assert resolved_by(one) == f"antiphon show {job.id[:8]}"
        asked.set()
        assert await job.result() == "12.50"
        (one,) = await mesh.queries.attention()
        assert one.item == f"shop.price {job.id}", "its result says that it is degraded"

        again = await price.submit(False)
        assert await again.result() == "about 10"
        found = await mesh.queries.attention()
        assert [one.item for one in found] == [f"shop.price {i.id}" for i in (again, job)]
        assert found[0].since_ms >= one.since_ms
        await forget_job(mesh, again.kind, again.id)
        found = await mesh.queries.attention()
        assert [one.reason.partition(":")[0] for one in found] == ["forgotten", "needs-attention"]
        monkeypatch.setattr(attention, "DEGRADED_MS", -PATIENCE_S * 1000)
        assert await items(mesh) == [], "a day later"


async def test_a_job_without_a_result_needs_attention_until_it_is_retried():
    async with a_mesh() as mesh, mesh.worker():
        handle = await mesh.ship.submit(-1)
        with pytest.raises(JobFailed):
            await handle.result()
        cancelled = await mesh.submit("shop.ship", 3, options={"delay": "1h"})
        await cancelled.cancel("not wanted")
        assert await items(mesh) == [("dead jobs", "failed: ValueError: order -1 has no address")]
        again = await handle.retry()
        with pytest.raises(JobFailed):
            await again.result()
        (one,) = await mesh.queries.attention()
        assert one.item == f"shop.ship {again.id}", "of the two, the newest"


async def test_a_dead_job_of_ones_own_kind_is_not_hidden_behind_newer_ones_of_others(monkeypatch):
    monkeypatch.setattr(attention, "MOST_DEAD", 2)
    mesh = a_mesh()

    @mesh.task("bank.charge", attempts=1)
    async def charge() -> None:
        raise ValueError("no money")

    async with mesh, mesh.worker():
        for submitted in (mesh.ship.submit(-1), charge.submit(), charge.submit(), charge.submit()):
            with pytest.raises(JobFailed):
                await (await submitted).result()
        (one,) = await Queries(mesh.connection, scope=reads("shop.>")).attention()
        assert one.reason == "failed: ValueError: order -1 has no address"
        (group,) = await mesh.queries.attention()
        assert (group.count, group.reason.partition(":")[0]) == (2, "at least 2 jobs failed")


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
