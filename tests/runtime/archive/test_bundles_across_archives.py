"""Jobs can be proved whatever was archived: before, while and after they were on the log."""

import pytest

from antiphon.core import bundle as core_bundle
from antiphon.core.families.jobs.state import job_key
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.archive.record_source import ReplicaSource
from tests.runtime.coordinator.test_archived_predecessors import submitted
from tests.runtime.coordinator.test_archiver import OPEN, an_archiver, sealed
from tests.runtime.log.test_archived_lanes import end
from tests.runtime.meshes import KIND, a_mesh
from tests.runtime.node.test_snapshots import archived, both

pytestmark = pytest.mark.virtual_time


async def proved(node, job):
    """What the bundle of a job says, by a reader that has nothing else."""
    bundle = await assembled(ReplicaSource(node.replica), job_key(KIND, job.id))
    assert bundle is not None
    return core_bundle.check(node.session.protocol, core_bundle.read(core_bundle.write(bundle)))


async def test_a_job_that_left_the_log_and_one_that_began_again_are_proved():
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        gone, twice = await submitted(session, "gone"), await submitted(session, "twice")
        for job in (gone, twice):
            await end(session, job.id)
        lasting = await submitted(session, "lasting")
        assert await archived(node, archiver) == 4
        again = await submitted(session, "twice")
        assert again.id == twice.id
        await end(session, again.id)
        await end(session, lasting.id)
        await sealed(node)
        for job in (gone, twice, lasting):
            report = await proved(node, job)
            assert report.job.id == job.id
            assert report.job.is_terminal
        assert (await proved(node, twice)).job.scheduled_seq == again.seq
        newcomer = await both(mesh, node)
        for job in (again, lasting):
            report = await proved(newcomer, job)
            assert (report.job.id, report.job.is_terminal) == (job.id, True)
