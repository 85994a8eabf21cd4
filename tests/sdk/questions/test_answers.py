"""`mesh.questions.answer_once`: what HTTP and the dashboard answer questions with."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon import JobContext, Rejected
from antiphon.core.record.verdict import Verdict
from antiphon.sdk.questions.namespace import Asker
from tests.patience import PATIENCE_S
from tests.sdk.queries.test_queries import a_mesh


@asynccontextmanager
async def asked(**how):
    """A mesh on which a job asks, its question, and the job."""
    mesh = a_mesh()

    @mesh.task("shop.close")
    async def close(ctx: JobContext) -> str:
        how.setdefault("choices", ("yes", "no"))
        return await ctx.ask("close the shop?", kind="approve.close", **how)

    async with mesh, mesh.worker():
        job = await close.submit()
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await mesh.questions.open(kind="approve")):
                await asyncio.sleep(0.02)
        yield mesh, found[0], job


async def test_the_same_answer_again_is_no_error_and_another_one_is():
    async with asked() as (mesh, question, job):
        first = await mesh.questions.answer_once(question.kind, question.job_id, "no")
        assert (first.is_new, first.signed_by) == (True, mesh.connection.did)
        assert await job.result() == "no"
        again = await mesh.questions.answer_once(question.kind, question.job_id, "no")
        assert (again.is_new, again.job.id) == (False, first.job.id)
        with pytest.raises(Rejected) as refused:
            await mesh.questions.answer_once(question.kind, question.job_id, "yes")
        assert refused.value.reason == "finished"


async def test_a_value_with_its_keys_in_another_order_is_the_same_answer():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    }
    async with asked(choices=(), schema=schema) as (mesh, question, _):
        await mesh.questions.answer_once(question.kind, question.job_id, {"a": 1, "b": 2})
        again = await mesh.questions.answer_once(question.kind, question.job_id, {"b": 2, "a": 1})
        assert not again.is_new


async def test_whoever_asks_cannot_answer_through_another_key():
    async with asked() as (mesh, question, _):
        asker = (await mesh.queries.job(question.job_id)).scheduler
        named = (question.kind, question.job_id, "yes")
        with pytest.raises(Rejected) as refused:
            await mesh.questions.answer_once(*named, asker=Asker(asker, ()))
        assert refused.value.reason == Verdict.SELF.value
        other = Asker("did:key:z6MkOther", ())
        assert (await mesh.questions.answer_once(*named, asker=other)).is_new


async def test_of_several_people_each_answers_with_a_key_of_their_own():
    async with asked(replicas=2, quorum=2) as (mesh, question, _):
        asked_each = [one.id for one in await mesh.queries.jobs(kind="approve")]
        assert len(asked_each) == 3, "the question, and one for each of the two"
        for one in asked_each:
            with pytest.raises(Rejected) as refused:
                await mesh.questions.answer_once(
                    question.kind, one, "yes", asker=Asker("did:key:z6MkOther", ())
                )
            assert refused.value.reason == "own_key"
        first = await mesh.questions.answer_once(question.kind, question.job_id, "yes")
        again = await mesh.questions.answer_once(question.kind, question.job_id, "yes")
        assert (first.is_new, again.is_new) == (True, False)
        with pytest.raises(Rejected) as refused:
            await mesh.questions.answer_once(question.kind, question.job_id, "no")
        assert refused.value.reason == "already"
