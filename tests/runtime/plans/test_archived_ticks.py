"""Plans on a log that is archived: nothing that they still have to write is cut off."""

import asyncio

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.derivation import Cron
from antiphon.runtime.coordinator.archiver import Archiver, Archiving
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.plans.plan_runner import PlanRunner
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from tests.runtime.coordinator.test_archiver import OPEN, sealed
from tests.runtime.meshes import KIND, a_mesh
from tests.runtime.plans.plan_meshes import (
    PLANNED,
    end,
    in_virtual_time,
    plan,
    put,
    refused,
    ticks,
)

HOUR_MS = 3_600_000
EVERY_SIX_HOURS = Cron(at="0 */6 * * *", zone="UTC", missed="last")


async def derived_by(node, plan_):
    """The ticks of a plan after a coordinator that has just begun has had its round."""
    runner = PlanRunner(node)
    await node.reached((await node.session.log.last()).seq)
    await runner.look()
    return ticks(node, plan_)


@in_virtual_time
async def test_a_plan_goes_on_when_its_newest_tick_has_left_the_log():
    async with a_mesh("memory", OPEN) as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(connection=owner, caretaking=False)
        here = (await mesh.connection()).session
        rare = await put(here, plan(EVERY_SIX_HOURS))
        await asyncio.sleep(6 * 3_600)
        (tick,) = await derived_by(node, rare)
        (job,) = node.replica.ask(ReplicaPlans).derived(rare.op_id, limit=2)
        await end(here, job, PLANNED)
        await asyncio.sleep(1.5 * 3_600)
        archiver = Archiver(node, Archiving(every_s=1, is_purging=True))
        assert await archiver.archive()
        assert await archiver.make_snapshot()
        await sealed(node)
        assert await archiver.purge() == 2
        another = await mesh.node(connection=await mesh.connection(mesh.owner), caretaking=False)
        assert await derived_by(another, rare) == [], "not the old one again"
        await asyncio.sleep(3 * 3_600)
        assert await derived_by(another, rare) == [tick + 6 * HOUR_MS]
        assert refused(another) == []


@in_virtual_time
async def test_an_archive_stays_behind_what_is_still_to_be_derived():
    async with a_mesh("memory", OPEN) as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(connection=owner, caretaking=False)
        here = (await mesh.connection()).session
        hourly = await put(here, plan(Cron(at="0 * * * *", zone="UTC", missed="all")))
        await asyncio.sleep(5 * 3_600)
        runner = PlanRunner(node)
        archiver = Archiver(node, Archiving(every_s=1), unwritten=runner.unwritten_ms)
        await node.reached((await here.log.last()).seq)
        await runner.look()
        (first,) = ticks(node, hourly)
        assert runner.unwritten_ms() == first + HOUR_MS
        assert await archiver.archive()
        assert owner.session.control.archive.before_ms == first + HOUR_MS - 1
        await runner.look()
        assert ticks(node, hourly) == [first, first + HOUR_MS], "it was not cut off"
        archiver.unwritten = lambda: first - 48 * HOUR_MS
        assert await archiver.archive()
        now_ms = mesh.wall.now_ms()
        assert now_ms - owner.session.control.archive.before_ms < 1.1 * HOUR_MS, "not for ever"


@in_virtual_time
async def test_nothing_is_purged_that_the_archives_files_do_not_have():
    async with a_mesh("memory", OPEN) as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(connection=owner, caretaking=False)
        here = (await mesh.connection()).session
        subject = job_subjects.job(mesh.mesh, KIND, "0" * 64)
        await here.log.append(subject, b"junk", message_id="j", expected_last=0)
        written = 0
        archiver = Archiver(node, Archiving(every_s=1, is_purging=True), copied=lambda: written)
        await asyncio.sleep(1.1 * 3_600)
        assert await archiver.archive()
        snapshot = await archiver.make_snapshot()
        await node.reached((await here.log.last()).seq)
        assert await Sealer(node, bar_s=1).seal()
        await node.reached((await here.log.last()).seq)
        written = snapshot.head.size - 1
        assert await archiver.purge() == 0
        written += 1
        assert await archiver.purge() == 1
