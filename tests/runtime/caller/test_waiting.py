"""Waiting for one job: it is read when it may have ended, and not for every step before that."""

import asyncio

import pytest

from antiphon.errors import Rejected
from antiphon.runtime.caller import submission
from tests.patience import PATIENCE_S
from tests.runtime.by_hand import called, finished
from tests.runtime.meshes import KIND, a_mesh, on_both_engines


def counted_reads(session, monkeypatch):
    """The jobs whose lanes were read."""
    read, really_read = [], session.read_lane

    async def read_lane(kind, job_id, **how):
        read.append(job_id)
        return await really_read(kind, job_id, **how)

    monkeypatch.setattr(session, "read_lane", read_lane)
    return read


@on_both_engines
async def test_a_waiting_caller_reads_a_lane_only_for_what_may_be_its_end(engine, monkeypatch):
    async with a_mesh(engine) as mesh, asyncio.timeout(PATIENCE_S):
        caller, worker = [(await mesh.connection()).session for _ in range(2)]
        job = await called(caller, KIND)
        read = counted_reads(caller, monkeypatch)
        waiting = asyncio.ensure_future(submission.wait_for_end(caller, KIND, job.id))
        await finished(worker, KIND, job)
        ended = await waiting
        assert ended.job.outcome == "succeeded"
        assert read == [job.id], "not for the claim"


@on_both_engines
@pytest.mark.parametrize("is_known", [True, False])
async def test_whoever_waits_for_a_job_that_has_ended_is_told_at_once(engine, is_known):
    async with a_mesh(engine) as mesh, asyncio.timeout(PATIENCE_S):
        caller, worker = [(await mesh.connection()).session for _ in range(2)]
        job = await called(caller, KIND)
        await finished(worker, KIND, job)
        ended = await submission.wait_for_end(caller, KIND, job.id, is_known=is_known)
        assert ended.job.outcome == "succeeded"


async def test_a_job_that_nobody_submitted_is_not_waited_for():
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        with pytest.raises(Rejected, match="there is no job"):
            await submission.wait_for_end(caller, KIND, "0" * 64, is_known=False)
