"""The coordinator derives each tick and each reaction once, whoever it is."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon.core import bundle as core_bundle
from antiphon.core.families.grants.ops import RevokeBody, UcanRevoke
from antiphon.core.families.jobs.derivation import MAX_DEPTH, Cause, Cron, Reaction, Tick
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.planned import derived_body
from antiphon.core.families.jobs.state import job_key
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.archive.record_source import ReplicaSource
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.retry import retry
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.plans.cron_ticks import CronTicks
from antiphon.runtime.plans.plan_audit import PASSING_MS, PlanAudit
from antiphon.runtime.plans.plan_runner import CAUSES_PER_BATCH
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from antiphon.sdk.proofs import bundles
from tests.runtime.meshes import CALM, KIND, a_mesh, call, eventually, on_both_engines
from tests.runtime.plans.plan_meshes import (
    AFTER_WORK,
    CLOSED,
    EVERY_SECOND,
    PLANNED,
    Told,
    a_coordinator,
    causes,
    drop,
    end,
    grant,
    in_virtual_time,
    plan,
    put,
    refused,
    ticks,
    work,
)

pytestmark = pytest.mark.req("P13")


@on_both_engines
async def test_every_tick_is_derived_once_at_its_time(engine):
    async with a_mesh(engine) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        await mesh.node()
        here = (await mesh.connection()).session
        nightly = await put(here, plan())
        await eventually(lambda: len(ticks(node, nightly)) >= 3)
        found = ticks(node, nightly)
        first = nightly.put_ms // 1000 + 1
        assert found == [(first + n) * 1000 for n in range(len(found))]
        jobs = node.replica.ask(ReplicaPlans).derived(nightly.op_id, limit=10)
        late = [job.scheduled_ms - job.derived.tick_ms for job in jobs]
        assert min(late) >= 0
        if engine == "memory":
            assert max(late) < 200
        assert refused(node) == []


@in_virtual_time
async def test_a_tick_runs_as_its_plan_says():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        ran: asyncio.Queue[str] = asyncio.Queue()
        await mesh.worker(ran.put, kind=PLANNED)
        here = (await mesh.connection()).session
        nightly = await put(here, plan(Cron(at="*/10 * * * * *", zone="UTC"), priority="high"))
        assert await asyncio.wait_for(ran.get(), 60) == "nightly"
        (job,) = node.replica.ask(ReplicaPlans).derived(nightly.op_id, limit=1)
        assert (job.scheduler, job.priority) == (here.author.did, "high")


@in_virtual_time
async def test_a_tick_that_failed_can_be_retried():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        nightly = await put(here, plan(Cron(at="*/10 * * * * *", zone="UTC")))
        (job,) = await eventually(
            lambda: node.replica.ask(ReplicaPlans).derived(nightly.op_id, limit=1)
        )
        await end(here, job, PLANNED)
        again = await retry(here, PLANNED, job.id)
        lane = (await here.read_lane(PLANNED, again.id)).lane
        assert (again.is_new, lane.job.state, lane.job.derived) == (True, "pending", None)


@in_virtual_time
@pytest.mark.parametrize(
    "missed, wanted", [("skip", []), ("last", [-1]), ("all", list(range(-20, 0)))]
)
async def test_ticks_that_no_coordinator_saw_are_made_up_for_as_the_plan_says(missed, wanted):
    async with a_mesh("memory") as mesh:
        here = (await mesh.connection()).session
        nightly = await put(here, plan(Cron(at="*/5 * * * *", zone="UTC", missed=missed)))
        await asyncio.sleep(20 * 300 - 300)
        minute_ms = 60_000
        now = mesh.wall.now_ms()
        await asyncio.sleep((300_000 - now % 300_000) / 1000 + 120)  # two minutes after a tick
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        await asyncio.sleep(2)
        last = mesh.wall.now_ms() // (5 * minute_ms) * 5 * minute_ms
        assert ticks(node, nightly) == [last + (n + 1) * 5 * minute_ms for n in wanted]
        await asyncio.sleep(300)
        assert ticks(node, nightly)[-1] == last + 5 * minute_ms, "and the next one as ever"


@on_both_engines
async def test_a_new_coordinator_continues_where_the_last_one_stopped(engine, tmp_path):
    async with a_mesh(engine) as mesh:
        watch = await mesh.node(caretaking=False)
        here = (await mesh.connection()).session
        nightly = await put(here, plan())
        built = await put(here, plan(AFTER_WORK, name="built"))
        await mesh.worker(work)
        jobs = []
        for number in range(4):
            path = tmp_path / "replica.db" if number % 2 else ":memory:"
            async with a_coordinator(mesh, path):
                jobs += [await call(here, number, each) for each in range(5)]
                await eventually(lambda n=number: len(ticks(watch, nightly)) > n)
            jobs += [await call(here, number, each) for each in range(5, 8)]
            await asyncio.sleep(1)
        async with a_coordinator(mesh):
            await eventually(lambda: len(causes(watch, built)) >= len(jobs))
            seen = len(ticks(watch, nightly))
            await eventually(lambda: len(ticks(watch, nightly)) > seen)
        found = ticks(watch, nightly)
        assert found == list(range(found[0], found[-1] + 1, 1000)), "none missed, none twice"
        assert sorted(causes(watch, built)) == sorted(job.id for job in jobs)


@in_virtual_time
async def test_a_reaction_counts_what_ends_so_after_its_put_and_nothing_else():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        await end(here, await call(here, "before"))
        states = {on: await put(here, plan(Reaction(on=on, kinds="test.*"), name=on))
                  for on in ("succeeded", "aborted", "ended")}  # fmt: skip
        ended = await call(here, "after")
        await end(here, ended)
        other = await call(here, "other kind", kind="rest.work")
        await end(here, other, "rest.work")
        worked = await call(here, "works")
        await mesh.worker(work)
        await eventually(lambda: len(causes(node, states["ended"])) == 2)
        await asyncio.sleep(3)
        assert causes(node, states["aborted"]) == [ended.id]
        assert causes(node, states["succeeded"]) == [worked.id]
        assert set(causes(node, states["ended"])) == {ended.id, worked.id}


@in_virtual_time
async def test_more_causes_than_a_batch_are_all_answered_by_a_coordinator_that_starts_late():
    async with a_mesh("memory") as mesh:
        here = (await mesh.connection()).session
        built = await put(here, plan(Reaction(on="ended", kinds=KIND), name="built"))
        jobs = [await call(here, n) for n in range(2 * CAUSES_PER_BATCH + 5)]
        for job in jobs:
            await end(here, job)
        async with a_coordinator(mesh) as node:
            await eventually(lambda: len(causes(node, built)) > CAUSES_PER_BATCH + 3)
        async with a_coordinator(mesh) as node:
            await eventually(lambda: len(causes(node, built)) == len(jobs))
            await asyncio.sleep(2)
            assert sorted(causes(node, built)) == sorted(job.id for job in jobs)
            assert refused(node) == []


@in_virtual_time
async def test_a_dropped_plan_and_a_replaced_one_derive_nothing_more():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        first = await put(here, plan())
        await asyncio.sleep(2.5)
        second = await put(here, plan(priority="low"))
        await asyncio.sleep(2.5)
        await drop(here, plan())
        await asyncio.sleep(3)
        assert 2 <= len(ticks(node, first)) <= 3
        assert 2 <= len(ticks(node, second)) <= 3
        assert max(ticks(node, first)) < min(ticks(node, second))


@in_virtual_time
async def test_a_chain_of_reactions_ends():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        await mesh.worker(work, kind="ping.a")
        await mesh.worker(work, kind="pong.a")
        there = await put(here, plan(Reaction(on="ended", kinds="ping.*"), kind="pong.a"))
        back = await put(here, plan(Reaction(on="ended", kinds="pong.*"), kind="ping.a"))
        await call(here, "first", kind="ping.a")
        await asyncio.sleep(60)
        assert len(causes(node, there)) + len(causes(node, back)) == MAX_DEPTH


@in_virtual_time
async def test_a_plan_that_cannot_be_run_is_reported_and_the_others_run():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        for number, (at, zone) in enumerate([("61 * * * *", "UTC"), ("* * * * *", "Mars/Base")]):
            await put(here, plan(Cron(at=at, zone=zone), name=f"bad{number}"))
        refused_one = await put(here, plan(name="lease", lease_ms=1))
        good = await put(here, plan())
        await asyncio.sleep(5)
        assert len(ticks(node, good)) >= 4
        assert ticks(node, refused_one) == []
        assert refused(node) == ["lease"], "and not tried again"


@in_virtual_time
@pytest.mark.parametrize("lie", ["none", "tick", "dropped", "cause", "unended"])
async def test_a_full_node_names_what_does_not_follow(lie, monkeypatch):
    told = Told(monkeypatch)
    async with a_mesh("memory", CALM) as mesh:
        node = await mesh.node(caretaking=False)
        node.watchers.append(PlanAudit(node).applied)
        owner = (await mesh.connection(mesh.owner)).session
        trigger = AFTER_WORK if lie in {"cause", "unended"} else EVERY_SECOND
        if lie == "tick":
            trigger = Cron(at="0 3 * * *", zone="UTC")
        stands = await put(owner, plan(trigger))
        if lie == "dropped":
            await drop(owner, plan(trigger))
            await asyncio.sleep(PASSING_MS / 1000 + 1)
        job = await call(owner, 1)
        await asyncio.sleep(2)
        derived = Tick(tick_ms=mesh.wall.now_ms() // 1000 * 1000)
        if lie in {"cause", "unended"}:
            derived = Cause(kind=KIND, job="ab" * 32 if lie == "cause" else job.id, ended_ms=0)
        body = derived_body(stands.body, stands.op_id, derived)
        lane = (await owner.read_lane(PLANNED, "0" * 64)).lane
        deps = ((stands.put_seq, stands.op_id),)
        written = await write_one(owner, Intent(JobSchedule, body, lane, deps=deps))
        assert written.verdict is Verdict.OK
        await node.reached(written.seq)
    expected = {
        "none": None,
        "tick": "has no tick",
        "dropped": "was dropped",
        "cause": "does not exist",
        "unended": "is pending",
    }[lie]
    if expected is None:
        assert told.said == []
    else:
        ((event, why),) = told.said
        assert event == "plan_mismatch"
        assert expected in why


class TestOnAClosedMesh:
    """A plan runs by its author's right, and by nobody else's."""

    @asynccontextmanager
    async def planned(self, trigger=EVERY_SECOND, **terms):
        async with a_mesh("memory", CLOSED) as mesh:
            owner = await mesh.connection(mesh.owner)
            async with a_coordinator(mesh) as node:
                here = (await mesh.connection()).session
                cids = await grant(owner.session, here.author.did, **terms)
                await here.sync_control()
                yield mesh, owner.session, node, await put(here, plan(trigger)), cids

    @in_virtual_time
    async def test_a_plan_whose_author_lost_the_right_derives_nothing_more_and_writes_nothing(self):
        async with self.planned() as (_, owner, node, nightly, cids):
            await asyncio.sleep(3.5)
            seen = len(ticks(node, nightly))
            assert seen >= 2
            for cid in cids:
                await write_one(owner, Intent(UcanRevoke, RevokeBody(cid=cid)))
            await asyncio.sleep(5)
            assert len(ticks(node, nightly)) <= seen + 1
            assert refused(node) == []

    @in_virtual_time
    async def test_a_reaction_answers_only_what_its_author_may_read(self):
        async with self.planned(AFTER_WORK) as (_, owner, node, built, _):
            unread = await call(owner, "unread")
            await end(owner, unread)
            await grant(owner, built.author, can=("read",), kinds=("test.*",))
            read = await call(owner, "read")
            await submission.cancel(owner, KIND, read.id, reason="")
            await asyncio.sleep(3)
            assert causes(node, built) == []
        trigger = Reaction(on="aborted", kinds="test.*")
        async with self.planned(trigger) as (_, owner, node, built, _):
            await end(owner, await call(owner, "unread"))
            await asyncio.sleep(2)
            await grant(owner, built.author, can=("read",), kinds=("test.*",))
            read = await call(owner, "read")
            await end(owner, read)
            await asyncio.sleep(2)
            assert causes(node, built) == [read.id]

    @in_virtual_time
    async def test_a_derived_job_can_be_proved_with_little_of_control(self):
        async with self.planned() as (mesh, owner, node, nightly, _):
            for _ in range(30):  # what a bundle should leave out
                await grant(owner, (await mesh.connection()).session.author.did)
            await asyncio.sleep(2)
            job = node.replica.ask(ReplicaPlans).derived(nightly.op_id, limit=1)[0]
            await submission.cancel(owner, PLANNED, job.id, reason="")
            await asyncio.sleep(1)
            assert await Sealer(node, bar_s=0.1).seal()
            bundle = await assembled(ReplicaSource(node.replica), job_key(PLANNED, job.id))
            assert bundle is not None
            assert nightly.put_seq in {shown.seq for shown in bundle.records}
            assert len(bundle.records) < 20
            report = bundles.open_bundle(core_bundle.write(bundle), owner=owner.author.did)
            assert report.job.scheduler == nightly.author


@in_virtual_time
async def test_a_plan_that_cannot_be_run_is_set_aside_and_others_are_run(monkeypatch):
    """Whatever is wrong with it, here and at every later start."""
    really = CronTicks.next

    def next_tick(self, after_ms):
        if self._plain == "1 1 1 1 1":
            raise OverflowError("date value out of range")
        return really(self, after_ms)

    monkeypatch.setattr(CronTicks, "next", next_tick)
    async with a_mesh("memory") as mesh:
        here = (await mesh.connection()).session
        broken = await put(here, plan(Cron(at="1 1 1 1 1", zone="UTC"), name="broken"))
        nightly = await put(here, plan())
        for _ in range(2):
            async with a_coordinator(mesh) as node:
                began = len(ticks(node, nightly))
                await eventually(lambda: len(ticks(node, nightly)) > began)  # noqa: B023 - awaited
                (told,) = node.replica.attention.newest(limit=10)
                assert (told.service, told.whose) == ("plans", here.author.did)
                assert told.item == f"{PLANNED} broken {broken.put_seq}"
                assert "date value out of range" in told.reason
        await drop(here, plan(name="broken"))


@in_virtual_time
async def test_a_plan_that_its_author_may_no_longer_run_is_told_until_it_is_gone():
    async with a_mesh("memory", CLOSED) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        (cid, *_) = await grant(owner, here.author.did)
        await here.sync_control()
        nightly = await put(here, plan())
        await eventually(lambda: ticks(node, nightly))
        assert node.replica.attention.newest(limit=10) == []
        await write_one(owner, Intent(UcanRevoke, RevokeBody(cid=cid)))
        (told,) = await eventually(lambda: node.replica.attention.newest(limit=10))
        assert told.reason.startswith("revoked:")
        await drop(owner, plan())
        await eventually(lambda: not node.replica.attention.newest(limit=10))
