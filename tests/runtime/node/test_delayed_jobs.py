"""Full nodes offer delayed jobs as soon as their time has come."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from antiphon import assembly
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import JobOffer
from antiphon.core.families.jobs.state import State
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.errors import Rejected
from antiphon.runtime.caller import submission
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node import delayed_jobs
from antiphon.runtime.node.delayed_jobs import OFFERS_PER_ROUND
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.testing.host_clock import HostClock
from tests.patience import PATIENCE_S
from tests.runtime.drawing import QUEUED, drawing
from tests.runtime.meshes import EPOCH_MS, a_mesh, call, eventually, on_both_engines
from tests.runtime.timeless import in_no_time

KIND = "test.draw"
DAY_S = 24 * 3_600


def wall_ms(mesh) -> int:
    return mesh.timeless.wall.now_ms()


async def delayed(mesh, *args, by_s: float, **fields) -> tuple[str, int]:
    """A job that may begin in so many seconds, and when that is."""
    not_before = wall_ms(mesh) + round(by_s * 1000)
    return await mesh.call(*args, not_before=not_before, **fields), not_before


async def offers(mesh, job: str) -> list[tuple[int, str]]:
    """The commit time and the verdict of every offer of a job."""
    view = await mesh.owner.session.read_lane(KIND, job)
    return [
        (one.opened.commit_ms, one.verdict.value)
        for one in view.history
        if isinstance(one.opened.op, JobOffer)
    ]


async def first_offer_after_ms(mesh, job: str, not_before: int) -> int:
    """How long after its time a job was offered; there is no other offer."""
    ((at_ms, verdict),) = await offers(mesh, job)
    assert verdict == "ok"
    return at_ms - not_before


@pytest.mark.exact_times
@pytest.mark.parametrize("by_s", [0.05, 0.5, 3, 600.123])
def test_a_delayed_job_begins_at_its_time(by_s):
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.node()
            await mesh.worker()
            await asyncio.sleep(1)
            job, not_before = await delayed(mesh, by_s=by_s)
            await asyncio.sleep(max(by_s - 0.01, 0.01))
            assert await mesh.state(job) == "waiting"
            await asyncio.sleep(1.01)
            assert await mesh.state(job) == "succeeded"
            assert 0 <= await first_offer_after_ms(mesh, job, not_before) < 50

    in_no_time(story)


@pytest.mark.parametrize("ago_s", [0, 5, DAY_S])
def test_a_job_whose_time_has_passed_begins_at_once(ago_s):
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.node()
            await mesh.worker()
            job, _ = await delayed(mesh, by_s=-ago_s)
            await asyncio.sleep(0.5)
            assert await mesh.state(job) == "succeeded"

    in_no_time(story)


def test_a_job_that_came_later_and_begins_earlier_is_not_slept_through():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.node()
            await asyncio.sleep(1)
            late, not_before_late = await delayed(mesh, "late", by_s=0.9)
            early, not_before_early = await delayed(mesh, "early", by_s=0.2)
            await asyncio.sleep(2)
            assert await first_offer_after_ms(mesh, early, not_before_early) < 50
            assert await first_offer_after_ms(mesh, late, not_before_late) < 50

    in_no_time(story)


@asynccontextmanager
async def a_process(mesh, path=":memory:"):
    """A full node that is gone, with everything it runs, after the block."""
    connection = await mesh.timeless.connection("node")
    replica = Replica(path, mesh=connection.session.mesh)
    try:
        async with assembly.replicating(connection, replica, caretaking=True) as node:
            yield node
    finally:
        replica.close()


@pytest.mark.parametrize(
    "back_s", [60, pytest.param(DAY_S - 5, marks=pytest.mark.soak, id="all day")]
)
def test_a_day_later_neither_the_coordinator_nor_who_saw_the_call_is_needed(back_s, tmp_path):
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            async with a_process(mesh) as coordinator, a_process(mesh, tmp_path / "replica.db"):
                await timeless.designate(mesh.owner, coordinator.did)
                await asyncio.sleep(1)
                job, not_before = await delayed(mesh, by_s=DAY_S)
                await asyncio.sleep(1)
                assert await mesh.state(job) == "waiting"
            await asyncio.sleep((not_before - wall_ms(mesh)) / 1000 - back_s)
            await mesh.node()
            await asyncio.sleep((not_before - wall_ms(mesh)) / 1000 - 0.01)
            assert await mesh.state(job) == "waiting"
            await asyncio.sleep(1)
            assert 0 <= await first_offer_after_ms(mesh, job, not_before) < 50
            assert await mesh.state(job) == "pending"

    in_no_time(story)


def test_a_node_that_was_off_when_the_time_came_offers_when_it_is_back(tmp_path):
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            async with a_process(mesh, tmp_path / "replica.db"):
                job, not_before = await delayed(mesh, by_s=DAY_S)
                await asyncio.sleep(1)
            await asyncio.sleep(2 * DAY_S)
            assert await mesh.state(job) == "waiting"
            back_ms = wall_ms(mesh)
            async with a_process(mesh, tmp_path / "replica.db"):
                await asyncio.sleep(1)
            late_ms = await first_offer_after_ms(mesh, job, not_before)
            assert late_ms - (back_ms - not_before) < 1_000

    in_no_time(story)


def test_a_delay_longer_than_the_window_to_start_ends_in_time_and_then_waits_for_a_worker():
    rules = Rules(authority="open", start_by_ms=60_000)

    async def story(timeless):
        async with drawing(timeless, rules) as mesh:
            await mesh.node()
            job, _ = await delayed(mesh, by_s=3_600)
            await asyncio.sleep(3_600 + 50)
            assert await mesh.state(job) == "pending"
            await asyncio.sleep(20)
            assert await mesh.state(job) == "aborted", "every wait ends"

    in_no_time(story)


def test_nodes_take_turns_and_one_that_has_just_died_costs_less_than_a_second():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            nodes = [await mesh.node() for _ in range(4)]
            await asyncio.sleep(5)
            jobs = [await delayed(mesh, number, by_s=10) for number in range(24)]
            await asyncio.sleep(9)
            for dead in nodes[:2]:
                dead.session.engine.sever()
            await asyncio.sleep(4)
            late_ms = [await first_offer_after_ms(mesh, *job) for job in jobs]
            assert max(late_ms) < 1_000
            assert min(late_ms) < 50, "whose turn comes first does not wait"
            for dead in nodes[:2]:
                dead.session.engine.heal()

    in_no_time(story)


def test_each_job_is_offered_by_one_of_several_nodes_and_they_share_the_work():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            for _ in range(3):
                await mesh.node()
            await asyncio.sleep(5)
            jobs = [await delayed(mesh, number, by_s=10) for number in range(24)]
            await asyncio.sleep(12)
            authors = set()
            for job, not_before in jobs:
                assert await first_offer_after_ms(mesh, job, not_before) < 1_000
                view = await mesh.owner.session.read_lane(KIND, job)
                authors |= {
                    one.opened.op.author
                    for one in view.history
                    if isinstance(one.opened.op, JobOffer)
                }
            assert len(authors) == 3

    in_no_time(story)


def test_more_jobs_than_fit_in_a_round_all_begin():
    many = OFFERS_PER_ROUND + 40

    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.node()
            jobs = [await delayed(mesh, number, by_s=60) for number in range(many)]
            await asyncio.sleep(62)
            late_ms = [await first_offer_after_ms(mesh, *job) for job in jobs]
            assert max(late_ms) < 2_000

    in_no_time(story)


def test_jobs_that_a_node_may_not_offer_do_not_keep_it_from_others(monkeypatch):
    """A limited job is the coordinator's: in the way of none, and offered by nobody else."""
    monkeypatch.setattr(delayed_jobs, "OFFERS_PER_ROUND", 4)

    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            node = await mesh.node()
            limited = [
                (await delayed(mesh, number, by_s=1, concurrency="gpu"))[0] for number in range(6)
            ]
            foreseen = node.session.foresee
            forbidden = set()

            def refusing(op_type, body, lane, **how):
                if op_type is JobOffer and body.job in forbidden:
                    return delayed_jobs.Verdict.NO_CHAIN
                return foreseen(op_type, body, lane, **how)

            node.session.foresee = refusing
            forbidden |= {(await delayed(mesh, n + 10, by_s=1))[0] for n in range(9)}
            job, not_before = await delayed(mesh, 99, by_s=2)
            await asyncio.sleep(8)
            assert (await first_offer_after_ms(mesh, job, not_before)) < 4_000
            for one in itertools.chain(limited, forbidden):
                assert await offers(mesh, one) == []

    in_no_time(story)


def test_a_node_whose_clock_is_ahead_learns_the_engines_time_and_offers_then():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            right = timeless.wall
            timeless.wall = HostClock(asyncio.get_running_loop(), epoch_ms=EPOCH_MS + 1_500)
            await mesh.node()
            timeless.wall = right
            await asyncio.sleep(30)
            job, not_before = await delayed(mesh, by_s=60)
            await asyncio.sleep(63)
            *early, (at_ms, verdict) = await offers(mesh, job)
            assert verdict == "ok"
            assert 0 <= at_ms - not_before < 1_000
            assert len(early) == 1, "it tries once, and not again before the engine's time has come"
            assert early[0][1] == "early"

    in_no_time(story)


def test_a_delay_beyond_the_horizon_is_refused_before_anything_is_written():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            last = await mesh.owner.session.log.last()
            with pytest.raises(Rejected, match="longer than the mesh's horizon") as refused:
                await delayed(mesh, by_s=31 * DAY_S)
            assert refused.value.reason == "delay"
            assert (await mesh.owner.session.log.last()).seq == last.seq

    in_no_time(story)


# --- on a server, judged by the log's own stamps ---------------------------------------------

GENEROUS_MS = 10_000
"""A busy machine is late; the exact bounds are held above, where time is virtual."""


async def orphaned(mesh, owner, *, names_coordinator: bool):
    """A delayed job that still waits when the only node that saw it is gone, and that node."""
    for after_ms in (2_000, 10_000, 40_000):  # on a busy machine it takes time to go
        replica = Replica(":memory:", mesh=mesh.mesh)
        connection = await mesh.connection()
        async with assembly.replicating(connection, replica, caretaking=True) as gone:
            if names_coordinator:
                body = CoordinatorBody(node=gone.did)
                await write_one(owner.session, Intent(MeshCoordinator, body))
            not_before = mesh.wall.now_ms() + after_ms
            job = await call(owner.session, after_ms, not_before=not_before)
            await gone.reached(job.seq)
        replica.close()
        view = await owner.session.read_lane(job.kind, job.id)
        if view.lane.job.state is State.WAITING:
            return job, not_before, gone.did
    raise AssertionError("the machine is too busy")


@pytest.mark.parametrize("names_coordinator", [True, False])
@on_both_engines
async def test_a_delayed_job_begins_although_who_saw_the_call_is_gone(engine, names_coordinator):
    async with a_mesh(engine) as mesh:
        owner = await mesh.connection(mesh.owner)
        job, not_before, gone = await orphaned(mesh, owner, names_coordinator=names_coordinator)
        await mesh.node()

        async def work(_: int) -> str:
            return "done"

        await mesh.worker(work)
        async with asyncio.timeout(PATIENCE_S):
            await submission.wait_for_end(owner.session, job.kind, job.id)
        view = await owner.session.read_lane(job.kind, job.id)
        offer = next(one for one in view.history if isinstance(one.opened.op, JobOffer))
        assert offer.verdict.value == "ok"
        assert offer.opened.op.author not in {gone, mesh.owner.did}
        assert not_before <= offer.opened.commit_ms < not_before + GENEROUS_MS
        assert view.lane.job.state is State.SUCCEEDED


@pytest.mark.virtual_time
async def test_whoever_delayed_many_jobs_to_the_same_time_holds_up_nobody_else_s(monkeypatch):
    monkeypatch.setattr(delayed_jobs, "OFFERS_PER_ROUND", 8)
    write_s, really = 0.5, FullNode.write_all

    async def write_all(node, intents):
        if intents and intents[0].op is JobOffer:
            await asyncio.sleep(write_s)
        return await really(node, intents)

    monkeypatch.setattr(FullNode, "write_all", write_all)
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        many, few = [(await mesh.connection()).session for _ in range(2)]
        begin_ms = mesh.wall.now_ms() + 60_000
        crowd = [await call(many, number, not_before=begin_ms) for number in range(80)]
        late = await call(few, "late", not_before=begin_ms + 10)
        await node.reached(late.seq)

        def state(one):
            return node.replica.ask(ReplicaJobs).job(one.kind, one.id).state

        await eventually(lambda: state(late) is State.PENDING)
        assert mesh.wall.now_ms() - begin_ms < 4 * write_s * 1000
        assert any(state(one) is State.WAITING for one in crowd), "long before all of them"
        await eventually(lambda: all(state(one) is State.PENDING for one in crowd))
