"""Several full nodes look after one mesh without getting in each other's way."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon.core.families.jobs.ops import JobExpire
from antiphon.runtime.node import overdue_jobs
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from tests.runtime.drawing import QUEUED, drawing
from tests.runtime.meshes import CALM, a_mesh, call, eventually, ops_on_lane
from tests.runtime.timeless import in_no_time


async def expiries(mesh) -> list[tuple[str, str]]:
    """(author, verdict) of every expiry that was written."""
    found = []
    for job in mesh.called:
        view = await mesh.owner.session.read_lane("test.draw", job)
        found += [
            (one.opened.op.author, one.verdict.value)
            for one in view.history
            if isinstance(one.opened.op, JobExpire)
        ]
    return found


async def abandoned(mesh, jobs: int) -> None:
    """Jobs whose holder went away for good."""
    mesh.takes_s = 1_000
    worker = await mesh.worker(slots=jobs)
    for number in range(jobs):
        await mesh.call(number)
    await asyncio.sleep(2)
    worker.session.engine.sever()


class Writes:
    """Counts what full nodes try to write."""

    def __init__(self, nodes) -> None:
        self.tried = 0
        for node in nodes:
            node.session.commit = self._counting(node.session.commit)

    def _counting(self, commit):
        async def counted(draft, **options):
            self.tried += isinstance(draft.op, JobExpire)
            return await commit(draft, **options)

        return counted


@pytest.mark.req("M5", "M8")
def test_each_expiry_is_written_by_one_of_them_and_they_share_the_work():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            nodes = [await mesh.node() for _ in range(3)]
            writes = Writes(nodes)
            await abandoned(mesh, 24)
            await asyncio.sleep(45)
            found = await expiries(mesh)
            assert len(found) == 24
            assert {verdict for _, verdict in found} == {"ok"}
            assert len({author for author, _ in found}) == 3
            assert writes.tried <= 26, "almost nobody tried what another was about to write"

    in_no_time(story)


@pytest.mark.req("M7")
def test_a_lone_full_node_expires_at_once_and_a_dead_colleague_costs_one_turn():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.node()
            await abandoned(mesh, 8)
            await asyncio.sleep(32)
            assert len(await expiries(mesh)) == 8
            dead = await mesh.node()
            await asyncio.sleep(5)
            await abandoned(mesh, 8)
            await asyncio.sleep(26)
            dead.session.engine.sever()
            await asyncio.sleep(8)
            assert len(await expiries(mesh)) == 8 + 8
            dead.session.engine.heal()

    in_no_time(story)


@asynccontextmanager
async def beside_a_crowd(**rules):
    """A node, many jobs of one member that nobody will run, and a later one of somebody else's."""
    async with a_mesh("memory", replace(CALM, **rules)) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        many, few = [(await mesh.connection()).session for _ in range(2)]
        crowd = [await call(many, number, kind="no.body") for number in range(60)]
        late = await call(few, "late", kind="no.body")
        await node.reached(late.seq)
        yield mesh, node, [one.id for one in crowd], late.id


@pytest.mark.virtual_time
async def test_one_member_s_overdue_jobs_hold_up_no_expiry_of_another_s(monkeypatch):
    monkeypatch.setattr(overdue_jobs, "EXPIRIES_PER_ROUND", 4)
    async with beside_a_crowd(start_by_ms=60_000) as (mesh, node, crowd, late):
        jobs, begun_ms = node.replica.ask(ReplicaJobs), mesh.wall.now_ms()
        await eventually(lambda: jobs.job("no.body", late).is_terminal)
        assert mesh.wall.now_ms() - begun_ms < 60_000 + 4 * 1_500, "within a few rounds"
        assert not all(jobs.job("no.body", one).is_terminal for one in crowd)


@pytest.mark.virtual_time
async def test_one_member_s_unanswered_jobs_hold_up_no_offer_of_another_s(monkeypatch):
    monkeypatch.setattr(overdue_jobs, "CALLS_PER_ROUND", 4)
    async with beside_a_crowd(offer_after_ms=60_000) as (mesh, node, crowd, late):
        begun_ms = mesh.wall.now_ms()

        def offers(job):
            return [op for op, _ in ops_on_lane(node, job, "no.body")].count("job.offer")

        await eventually(lambda: offers(late))
        assert mesh.wall.now_ms() - begun_ms < 60_000 + 4 * 1_500, "within a few rounds"
        assert not all(offers(one) for one in crowd)
