"""Whoever reads lanes that are archived and purged finds one state of them, whenever it reads."""

import asyncio

import pytest

from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.families.jobs.state import State, job_key
from antiphon.core.families.mesh.ops import ArchiveBody, MeshArchive
from antiphon.runtime.caller import submission
from antiphon.runtime.log.lane_reader import LONG
from tests.runtime.log.test_lane_reader import bury, junk
from tests.runtime.meshes import KIND, a_mesh

OPEN = Rules(authority="open", retention_ms=3_600_000)
DAY_S = 24 * 3600

pytestmark = pytest.mark.virtual_time


async def submitted(session, word="one"):
    content = manifest.author({"command": ["true", word], "timeout": 30})
    content = manifest.with_nonce(content, "0" * 32, "random")
    return await submission.submit(session, ScheduleBody(kind=KIND, manifest=content))


async def end(session, job):
    await submission.cancel(session, KIND, job, reason="done with")


async def archive(mesh, session):
    """By the owner, who coordinates."""
    await session.sync_control()
    now_ms, rules = mesh.wall.now_ms(), session.control.rules
    body = ArchiveBody(
        before=now_ms - rules.retention_ms - 1_000,
        memo_before=max(0, now_ms - rules.horizon_ms - 1_000),
    )
    prev = session.history.tail(f"ap.{mesh.mesh}.ctl.archive")
    draft = session.draft(MeshArchive, body, prev=prev)
    seq = await session.commit(draft)
    await session.sync_control()
    assert session.control_verdicts[seq].is_accepted
    return seq


async def purge(mesh, session, job):
    seq = session.control.archive.seq
    return await session.log.purge(f"ap.{mesh.mesh}.jobs.*.{KIND}.{job}", upto=seq)


async def test_a_lane_is_empty_behind_the_archive_and_can_be_written_anew_purged_or_not():
    async with a_mesh("memory", OPEN) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        one, two = await submitted(owner, "one"), await submitted(owner, "two")
        for job in (one, two):
            await end(owner, job.id)
        await asyncio.sleep(DAY_S)
        await archive(mesh, owner)
        assert await purge(mesh, owner, two.id) == 2
        for word, job in (("one", one), ("two", two)):
            assert (await owner.read_lane(KIND, job.id)).lane.job is None
            again = await submitted(owner, word)
            assert again.is_new
            assert again.id == job.id
            await end(owner, job.id)
            view = await owner.read_lane(KIND, job.id)
            assert view.lane.job.state is State.ABORTED
            assert view.first.seq == view.lane.job.scheduled_seq, "of its second life"


async def test_who_knew_a_long_lane_before_reads_it_anew():
    async with a_mesh("memory", OPEN) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        other = (await mesh.connection()).session
        job = await submitted(owner)
        await bury(owner, job.id, junk(LONG + 1))
        assert (await other.read_lane(KIND, job.id)).lane.job.state is State.PENDING
        await end(owner, job.id)
        await asyncio.sleep(DAY_S)
        await archive(mesh, owner)
        await purge(mesh, owner, job.id)
        assert (await other.read_lane(KIND, job.id)).lane.job is None, "without knowing the archive"
        await other.sync_control()
        assert (await other.read_lane(KIND, job.id)).lane.job is None


@pytest.mark.parametrize("is_told", [True, False])
async def test_what_was_judged_before_counts_for_nothing_behind_the_archive(is_told):
    async with a_mesh("memory", OPEN) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        other = (await mesh.connection()).session
        jobs = [await submitted(owner, word) for word in ("one", "two")]
        known = {job_key(KIND, job.id): (await other.read_lane(KIND, job.id)).lane for job in jobs}
        for job in jobs:
            await end(owner, job.id)
        await asyncio.sleep(DAY_S)
        await archive(mesh, owner)
        for job in jobs:
            await purge(mesh, owner, job.id)
        if is_told:
            await other.sync_control()
        for some in (known, dict(list(known.items())[:1])):
            views = await other.read_on(some)
            assert [view.lane.job for view in views.values()] == [None] * len(some)


async def test_a_purge_between_the_requests_of_one_read_is_noticed(monkeypatch):
    async with a_mesh("memory", OPEN) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        other = (await mesh.connection()).session
        job = await submitted(owner)
        await bury(owner, job.id, junk(1_100))
        await end(owner, job.id)
        await asyncio.sleep(DAY_S)
        await archive(mesh, owner)
        pages, read_lane = [], other.log.read_lane

        async def slowly(filters, *, after=0):
            async for page in read_lane(filters, after=after):
                yield page
                if not pages:
                    await purge(mesh, owner, job.id)
                pages.append(len(page))

        monkeypatch.setattr(other.log, "read_lane", slowly)
        assert (await other.read_lane(KIND, job.id)).lane.job is None
        assert pages, "it had begun"
