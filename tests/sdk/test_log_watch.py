"""Watching the log: what is judged, what is only counted, and that counting costs nothing."""

import asyncio

import pytest

from antiphon.core.record.verdict import Verdict
from antiphon.runtime.caller import submission
from antiphon.sdk import log_watch
from antiphon.sdk.log_watch import watching
from tests.patience import PATIENCE_S
from tests.runtime.meshes import KIND, a_mesh, call, on_both_engines


async def double(number):
    return 2 * number


async def taken(batches, records: int) -> tuple[list, list[int]]:
    """Events and counts, until so many records are in one or the other."""
    events, counts = [], []
    async with asyncio.timeout(PATIENCE_S):
        while len(events) + sum(counts) < records:
            batch = await anext(batches)
            events += batch
            counts += [batch.left_out] if batch.left_out else []
    return events, counts


@pytest.mark.virtual_time
async def test_beyond_the_limit_records_are_counted_once_a_second():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        async with watching((await mesh.connection()).session, per_s=50) as batches:
            for number in range(120):
                await call(session, number)
            events, counts = await taken(batches, 120)
            assert len(events) == 50
            assert counts == [70]
            await asyncio.sleep(1)
            for number in range(200, 210):
                await call(session, number)
            events, counts = await taken(batches, 10)
            assert len(events) == 10, "a new second"


@on_both_engines
async def test_a_limit_leaves_no_record_out_of_the_count(engine):
    async with a_mesh(engine) as mesh:
        session = (await mesh.connection()).session
        async with watching((await mesh.connection()).session, per_s=5) as batches:
            await mesh.worker(double)
            jobs = [await call(session, number) for number in range(20)]
            for one in jobs:
                await submission.wait_for_end(session, KIND, one.id)
            events, counts = await taken(batches, 60)
            assert len(events) + sum(counts) == 60, "schedule, claim and completion of each"
            assert counts


@pytest.mark.virtual_time
async def test_what_is_shown_after_a_gap_is_judged_by_its_whole_lane():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        async with watching((await mesh.connection()).session, per_s=1) as batches:
            jobs = [await call(session, number) for number in range(2)]
            events, _ = await taken(batches, 2)
            assert [one.op for one in events] == ["job.schedule"]
            await asyncio.sleep(1)
            await submission.cancel(session, KIND, jobs[1].id, reason="")
            events, _ = await taken(batches, 1)
            assert [(one.op, one.verdict, one.state) for one in events] == [
                ("job.cancel", Verdict.OK, "aborted")
            ]


@pytest.mark.virtual_time
async def test_a_lane_that_changed_unseen_is_read_again():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        began = asyncio.Event()

        async def wait(_number):
            began.set()
            await asyncio.Event().wait()

        async with watching((await mesh.connection()).session, per_s=1) as batches:
            job = await call(session, 1)
            await mesh.worker(wait)
            await began.wait()
            events, counts = await taken(batches, 2)
            assert [one.op for one in events] == ["job.schedule"]
            assert counts == [1], "the claim, which the cancellation follows"
            await asyncio.sleep(1)
            await submission.cancel(session, KIND, job.id, reason="")
            (event,), _ = await taken(batches, 1)
            assert (event.op, event.verdict) == ("job.cancel", Verdict.OK)


@pytest.mark.virtual_time
async def test_what_is_counted_is_not_verified(monkeypatch):
    opened = []
    really = log_watch.open_stored
    monkeypatch.setattr(
        log_watch, "open_stored", lambda *given: opened.append(given) or really(*given)
    )
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        async with watching((await mesh.connection()).session, per_s=10) as batches:
            for number in range(100):
                await call(session, number)
            await taken(batches, 100)
            assert len(opened) == 10


@pytest.mark.virtual_time
async def test_without_a_limit_every_record_is_judged():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        async with watching((await mesh.connection()).session) as batches:
            for number in range(120):
                await call(session, number)
            events, counts = await taken(batches, 120)
            assert len(events) == 120
            assert counts == []
