"""The coordinator archives, and purges lanes that nobody needs: whole, sealed, and in turn."""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.record.verdict import Verdict
from antiphon.errors import EngineDenied
from antiphon.runtime.caller import submission
from antiphon.runtime.coordinator import archiver as archiver_module
from antiphon.runtime.coordinator.archiver import Archiver, Archiving
from antiphon.runtime.log.session import dep_of
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.sealer import Sealer
from tests.runtime.coordinator.test_archived_predecessors import HOUR_S, RULES, submitted
from tests.runtime.log.test_archived_lanes import end
from tests.runtime.meshes import KIND, a_mesh

pytestmark = pytest.mark.virtual_time
OPEN = replace(RULES, authority="open")
OPEN_JOBS = 20
"""Of a steady load."""


async def an_archiver(mesh):
    """Beside a node without services: each step is taken by the test."""
    owner = await mesh.connection(mesh.owner)
    node = await mesh.node(connection=owner, caretaking=False)
    archiver = Archiver(node, Archiving(every_s=600, is_purging=True))
    return owner.session, node, archiver


async def sealed(node):
    last = await node.session.log.last()
    await node.reached(last.seq)
    assert await Sealer(node, bar_s=1).seal()
    last = await node.session.log.last()
    await node.reached(last.seq)


async def there(session, *jobs):
    found = [await session.read_lane(KIND, job.id) for job in jobs]
    return [len(view.history) for view in found]


@pytest.mark.parametrize("is_bucket", [True, False])
async def test_a_bucket_that_denies_something_once_is_asked_again(monkeypatch, is_bucket):
    async with a_mesh("memory", OPEN) as mesh:
        _, _, archiver = await an_archiver(mesh)
        looks = []

        async def denied():
            looks.append(1)
            raise EngineDenied("the request is too old")

        monkeypatch.setattr(archiver, "look", denied)
        if is_bucket:
            archiver.blobs = object()
        running = asyncio.ensure_future(archiver.run())
        mesh.stack.callback(running.cancel)
        await asyncio.sleep(HOUR_S)
        assert len(looks) > 1 if is_bucket else running.done()


async def test_ended_lanes_are_purged_once_a_seal_covers_the_archive():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        done = [await submitted(session, f"{number}") for number in range(6)]
        for job in done:
            await end(session, job.id)
        lasting = await submitted(session, "lasting")
        late = await submitted(session, "late")
        await end(session, late.id)
        await asyncio.sleep(1.1 * HOUR_S)
        assert await archiver.archive()
        assert not await archiver.purge(), "there is no snapshot"
        assert await archiver.make_snapshot()
        assert not await archiver.purge(), "no seal names the snapshot"
        await sealed(node)
        await archiver.purge()
        assert archiver.purged == 14
        assert archiver.requests == 2, "those before the lane that stays go together"
        assert await there(session, *done, late, lasting) == [0] * 7 + [1]
        assert not await archiver.purge(), "nothing is left"
        again = await submitted(session, "0")
        assert again.is_new
        await end(session, again.id)
        await asyncio.sleep(1.1 * HOUR_S)
        assert await archiver.archive()
        assert await archiver.make_snapshot()
        await sealed(node)
        await archiver.purge()
        assert archiver.purged == 17, "its second life, too, and the first seal"


@pytest.mark.parametrize("looked_at", [30, 2_000])
async def test_under_a_steady_load_lanes_leave_whole_and_several_at_once(monkeypatch, looked_at):
    """Wherever a line is drawn there, some lanes lie on both of its sides."""
    monkeypatch.setattr(archiver_module, "LANES_AT_ONCE", looked_at)
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        jobs, halves, going_on, at_once = [], [], [], []
        purge = session.log.purge

        async def watched(subject, *, upto):
            going_on.append(subject)
            at_once.append(len(going_on))
            await asyncio.sleep(0.01)
            found = await purge(subject, upto=upto)
            going_on.remove(subject)
            page = await session.log.read(0, limit=2_000)
            left = Counter(one.subject.rpartition(".")[2] for one in page.records)
            halves.extend(one.id for one in jobs[:-OPEN_JOBS] if left[one.id] == 1)
            return found

        monkeypatch.setattr(session.log, "purge", watched)
        for number in range(240):
            jobs.append(await submitted(session, f"{number}"))
            if number >= OPEN_JOBS:
                await end(session, jobs[number - OPEN_JOBS].id)
            await asyncio.sleep(HOUR_S / 60)
            if number % 60 == 59:
                assert await archiver.archive()
                assert await archiver.make_snapshot()
                await sealed(node)
                await archiver.purge()
        assert not halves
        gone = 240 - sum(one > 0 for one in await there(session, *jobs))
        assert gone > 100
        assert 1 < max(at_once) <= archiver_module.ALONE_AT_ONCE
        assert archiver.requests < gone * 0.9, "most go together"


async def test_a_lane_stays_as_long_as_one_that_names_it_and_as_its_youngest_record():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        named, junked = await submitted(session, "named"), await submitted(session, "junked")
        for job in (named, junked):
            await end(session, job.id)
        record = await session.record_at(named.seq)
        dep = (named.seq, dep_of(session.protocol, record).op_id)
        content = (await session.read_lane(KIND, named.id)).submitted_with.manifest
        body = ScheduleBody(kind=KIND, manifest=replace(content, timeout=77))
        lane = session.protocol.empty(session.protocol.lane_of(record.subject))
        written = await write_one(session, Intent(JobSchedule, body, lane, deps=(dep,)))
        assert written.verdict is Verdict.OK
        await asyncio.sleep(1.1 * HOUR_S)
        last = (await session.read_lane(KIND, junked.id)).lane.job_tail
        subject = job_subjects.job(mesh.mesh, KIND, junked.id)
        await session.log.append(subject, b"junk", message_id="j", expected_last=last)
        assert await archiver.archive()
        assert await archiver.make_snapshot()
        await sealed(node)
        await archiver.purge()
        assert archiver.purged == 0
        await submission.cancel(session, KIND, written.lane.job.id, reason="done with")
        await asyncio.sleep(1.1 * HOUR_S)
        assert await archiver.archive()
        assert await archiver.make_snapshot()
        await sealed(node)
        await archiver.purge()
        assert archiver.purged == 6, "and a seal"
        assert await there(session, named, junked) == [2, 0], "first the lane that names it"
        await asyncio.sleep(1.1 * HOUR_S)
        assert await archiver.archive()
        assert await archiver.make_snapshot()
        await sealed(node)
        await archiver.purge()
        assert archiver.purged == 9, "and another seal"
        assert await there(session, named, junked) == [0, 0]
