"""Jobs that ended without a result: listed with their reasons, and called anew."""

import pytest

from antiphon import JobFailed, Mesh, Rejected, Retry
from antiphon.sdk.dead_letters import letters_of
from antiphon.sdk.queries.many_jobs import retryable
from tests.patience import PATIENCE_S


class Stage:
    """A mesh with one task that fails for as long as it is told to."""

    def __init__(self) -> None:
        self.mesh = Mesh.open(engine="memory")
        self.is_broken = True

        @self.mesh.task("example.shaky", retry=Retry(attempts=1))
        async def shaky(number: int) -> int:
            if self.is_broken:
                raise ValueError(f"no luck with {number}")
            return number

        self.shaky = shaky

    async def failed(self, number):
        handle = await self.shaky.submit(number)
        with pytest.raises(JobFailed):
            await handle.result(timeout=PATIENCE_S)
        await self.caught_up(handle)
        return handle

    async def caught_up(self, handle):
        ended = (await handle.state()).ended_seq
        async with self.mesh.replica() as replica:
            while replica.refresh().seq < ended:
                await handle.state()

    async def letters(self):
        ended = await self.mesh.jobs(state=("failed", "aborted"))
        async with self.mesh.replica() as replica:
            return letters_of(replica, ended)

    async def waiting(self, *, kind="", limit=10):
        found = await retryable(self.mesh, kind=kind, limit=limit)
        return [job.id for job in found.jobs]


async def test_a_failed_job_is_retried_as_a_new_one_and_both_know_of_each_other():
    stage = Stage()
    async with stage.mesh, stage.mesh.worker():
        first = await stage.failed(3)
        stage.is_broken = False
        again = await first.retry()
        assert again.is_new
        assert await again.result(timeout=PATIENCE_S) == 3
        assert (await first.state()).outcome == "failed", "an end is an end"
        assert (await first.links()).retried_as == again.id
        assert (await again.links()).retry_of == first.id
        assert (await again.links()).retried_as is None


async def test_a_job_retried_twice_is_retried_once():
    stage = Stage()
    async with stage.mesh, stage.mesh.worker():
        first = await stage.failed(1)
        stage.is_broken = False
        again = await first.retry()
        await again.result(timeout=PATIENCE_S)
        twice = await first.retry()
        assert (twice.id, twice.is_new) == (again.id, False)


async def test_a_retry_that_fails_is_retried_in_turn():
    stage = Stage()
    async with stage.mesh, stage.mesh.worker():
        first = await stage.failed(1)
        second = await first.retry()
        with pytest.raises(JobFailed):
            await second.result(timeout=PATIENCE_S)
        stage.is_broken = False
        third = await first.retry()
        assert third.is_new
        assert (await third.links()).retry_of == second.id
        assert await third.result(timeout=PATIENCE_S) == 1


async def test_what_has_not_ended_or_went_well_is_not_retried():
    stage = Stage()
    async with stage.mesh:
        unanswered = await stage.shaky.submit(1)
        with pytest.raises(Rejected, match="has not ended") as refused:
            await unanswered.retry()
        assert "antiphon cancel" in refused.value.hint
        stage.is_broken = False
        async with stage.mesh.worker():
            await unanswered.result(timeout=PATIENCE_S)
            with pytest.raises(Rejected, match="succeeded"):
                await unanswered.retry()
        with pytest.raises(Rejected, match="no job"):
            await stage.mesh.job("example.shaky", "0" * 64).retry()


async def test_dead_letters_say_what_went_wrong_and_what_became_of_them():
    stage = Stage()
    async with stage.mesh:
        unwanted = await stage.shaky.submit(9)
        await unwanted.cancel("changed my mind")
        async with stage.mesh.worker():
            first = await stage.failed(1)
            second = await stage.failed(2)
            again = await first.retry()
            with pytest.raises(JobFailed):
                await again.result(timeout=PATIENCE_S)
            await stage.caught_up(again)
        letters = {letter.job.id: letter for letter in await stage.letters()}
        assert list(letters) == [again.id, second.id, first.id, unwanted.id]
        assert letters[second.id].error.name == "ValueError"
        assert letters[second.id].note == "no luck with 2"
        assert letters[first.id].retried_as == again.id
        assert letters[unwanted.id].note == "changed my mind"
        assert await stage.waiting() == [again.id, second.id], "not the cancelled, not the retried"
        assert await stage.waiting(limit=1) == [again.id]
        assert await stage.waiting(kind="other") == []
