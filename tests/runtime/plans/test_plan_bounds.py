"""What one party's plans can ask of a mesh is bounded, and nobody else's plan notices."""

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from msgspec.structs import replace

from antiphon.core.derivations import plan_authority
from antiphon.core.derivations.derived_use import WINDOW_MS
from antiphon.core.families.jobs.derivation import MAX_DEPTH, Cron, Reaction, Tick, patterns_of
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.planned import derived_body
from antiphon.core.families.mesh.ops import MeshRules, RulesBody
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.plans import plan_runner, selected_plans
from antiphon.runtime.plans.plan_audit import PlanAudit
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from tests.runtime.meshes import CALM, a_mesh, call, eventually, on_both_engines
from tests.runtime.plans.plan_meshes import (
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
RATE = 20


@asynccontextmanager
async def parties(**rules):
    """A closed mesh with a coordinator, and two members that may plan."""
    async with a_mesh("memory", replace(CLOSED, **rules)) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        async with a_coordinator(mesh) as node:
            node.watchers.append(PlanAudit(node).applied)
            members = [(await mesh.connection()).session for _ in range(2)]
            for member in members:
                await grant(owner, member.author.did)
                await member.sync_control()
            yield mesh, owner, node, *members


async def another_key(mesh, member):
    """A key that a member passed its permission on to."""
    key = (await mesh.connection()).session
    await grant(member, key.author.did)
    await key.sync_control()
    return key


def derived_ms(node, *authors: str) -> list[int]:
    """When jobs were derived for these, oldest first."""
    jobs = node.replica.ask(ReplicaPlans).derived_since(0, limit=1_000_000)
    return [job.scheduled_ms for job in jobs if not authors or job.scheduler in authors]


def busiest(times: list[int]) -> int:
    """The most that lie within one minute."""
    return max(sum(at <= each < at + WINDOW_MS for each in times) for at in times)


@in_virtual_time
async def test_of_each_party_the_oldest_plans_run_however_many_another_has():
    async with parties(plans_max=3) as (mesh, _, node, many, few):
        more = await another_key(mesh, many)
        flood = [
            await put(many if n % 2 else more, plan(name=f"flood{n}", priority="low"))
            for n in range(8)
        ]
        late = await put(few, plan(name="late"))
        await asyncio.sleep(3.5)
        assert [bool(ticks(node, one)) for one in flood] == [True] * 3 + [False] * 5
        assert len(ticks(node, late)) >= 3


@pytest.mark.exact_times
@in_virtual_time
async def test_where_not_all_can_be_run_each_party_has_its_share(monkeypatch):
    monkeypatch.setattr("antiphon.core.derivations.plan_selection.MOST_PLANS", 4)
    async with parties() as (_, owner, node, many, few):
        flood = [await put(many, plan(name=f"flood{n}")) for n in range(8)]
        late = [await put(few, plan(name=f"late{n}")) for n in range(2)]
        await put(owner, plan(name="own"))
        await asyncio.sleep(2.5)
        runs = [bool(ticks(node, one)) for one in (*flood, *late)]
        assert sum(runs) == 3
        assert (runs[0], runs[8]) == (True, True)


@in_virtual_time
async def test_a_plan_comes_to_run_when_an_older_one_is_dropped_or_the_rule_is_raised():
    async with parties(plans_max=1) as (_, owner, node, many, _):
        body = plan(name="first")
        await put(many, body)
        second = await put(many, plan(name="second"))
        third = await put(many, plan(name="third"))
        await asyncio.sleep(2)
        assert not ticks(node, second)
        await drop(many, body)
        await eventually(lambda: ticks(node, second))
        assert not ticks(node, third)
        rules = replace(owner.control.rules, plans_max=2)
        await write_one(owner, Intent(MeshRules, RulesBody(rules=rules)), BEHIND)
        await eventually(lambda: ticks(node, third))


@in_virtual_time
async def test_a_flood_of_ticks_stays_within_its_party_s_rate_and_delays_nobody_else(monkeypatch):
    told = Told(monkeypatch)
    every = Cron(at="* * * * * *", zone="UTC", missed="last")
    async with parties(derived_per_minute=RATE) as (mesh, _, node, many, few):
        more = await another_key(mesh, many)
        flood = [
            await put(many if n % 2 else more, plan(every, name=f"flood{n}")) for n in range(15)
        ]
        calm = await put(few, plan(Cron(at="*/4 * * * * *", zone="UTC", missed="all")))
        await asyncio.sleep(4 * 60)
        times = derived_ms(node, many.author.did, more.author.did)
        assert busiest(times) == RATE
        assert len(times) >= 4 * RATE
        assert all(len(ticks(node, one)) >= 4 for one in flood), "each has its turn"
        found = ticks(node, calm)
        assert len(found) >= 59
        assert found == list(range(found[0], found[-1] + 1, 4_000))
        jobs = node.replica.ask(ReplicaPlans).derived(calm.op_id, limit=100)
        assert max(job.scheduled_ms - job.derived.tick_ms for job in jobs) < 1_000
    assert told.said == []


@in_virtual_time
async def test_a_rare_plan_has_its_turn_among_frequent_ones_of_its_own_party():
    every = Cron(at="* * * * * *", zone="UTC")
    async with parties(derived_per_minute=RATE) as (mesh, _, node, many, _):
        for n in range(RATE):
            await put(many, plan(every, name=f"flood{n}"))
        minute = mesh.wall.now_ms() // 60_000 + 3
        rare = await put(many, plan(Cron(at=f"{minute % 60} * * * *", zone="UTC"), name="rare"))
        await asyncio.sleep(5 * 60)
        assert ticks(node, rare) == [minute * 60_000]


@in_virtual_time
@pytest.mark.parametrize("missed", ["all", "last"])
async def test_ticks_beyond_the_rate_are_made_up_for_as_the_plan_says(missed):
    async with parties(derived_per_minute=RATE) as (_, _, node, here, _):
        often = await put(here, plan(replace(EVERY_SECOND, missed=missed)))
        await asyncio.sleep(5 * 60)
        found = ticks(node, often)
        steps = {after - before for before, after in pairwise(found)}
        assert len(found) >= 5 * RATE
        assert (steps == {1_000}) == (missed == "all")
        assert found == sorted(set(found))


async def answer_each_other(here, plans: int) -> list:
    """Reactions of two kinds to each other, so many each way."""
    return [
        await put(here, plan(Reaction(on="ended", kinds=f"{one}.*"), kind=f"{two}.a", name=f"n{n}"))
        for one, two in (("ping", "pong"), ("pong", "ping"))
        for n in range(plans)
    ]


@in_virtual_time
async def test_reactions_that_multiply_stay_within_the_rate():
    async with a_mesh("memory", replace(CALM, derived_per_minute=RATE)) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here, other = (await mesh.connection()).session, (await mesh.connection()).session
        for kind in ("ping.a", "pong.a"):
            await mesh.worker(work, kind=kind)
        await answer_each_other(here, 4)
        calm = await put(other, plan(Reaction(on="ended", kinds="ping.*"), name="calm"))
        await call(here, "first", kind="ping.a")
        await asyncio.sleep(5 * 60)
        times = derived_ms(node, here.author.did)
        assert busiest(times) == RATE
        assert len(times) >= 5 * RATE
        ended = node.replica.ask(ReplicaPlans).ended_after(0, "ping.a", limit=1000)
        assert set(causes(node, calm)) >= {one.id for one in ended[:-RATE]}
        assert refused(node) == []


@in_virtual_time
async def test_reactions_beyond_the_rate_are_late_and_not_lost():
    async with a_mesh("memory", replace(CALM, derived_per_minute=3)) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        for kind in ("ping.a", "pong.a"):
            await mesh.worker(work, kind=kind)
        both = await answer_each_other(here, 1)
        await call(here, "first", kind="ping.a")
        await asyncio.sleep(8 * 60)
        assert sum(len(causes(node, one)) for one in both) == MAX_DEPTH
        assert busiest(derived_ms(node)) == 3


@pytest.mark.exact_times
@on_both_engines
async def test_a_new_coordinator_keeps_to_what_the_last_one_left_of_the_rate(engine, monkeypatch):
    told = Told(monkeypatch)
    async with a_mesh(engine, replace(CALM, derived_per_minute=RATE)) as mesh:
        watch = await mesh.node(caretaking=False)
        here = (await mesh.connection()).session
        once = Cron(at="* * * * * *", zone="UTC", missed="all", from_ms=mesh.wall.now_ms() - 1)
        often = [await put(here, plan(once, name=f"n{n}")) for n in range(10)]
        while len(derived_ms(watch)) < RATE:
            async with a_coordinator(mesh):
                await asyncio.sleep(3)
        async with a_coordinator(mesh):
            await asyncio.sleep(3)
        assert len(derived_ms(watch)) == RATE
        if engine == "memory":
            # By a real clock some plans may be put a second later, and then have a tick less.
            assert {len(ticks(watch, one)) for one in often} == {RATE // 10}
            async with a_coordinator(mesh):
                await asyncio.sleep(61)
            assert busiest(derived_ms(watch)) == RATE
            assert len(derived_ms(watch)) == 2 * RATE
            for one in often:
                each = ticks(watch, one)
                assert each == list(range(each[0], each[-1] + 1, 1_000)), "none twice, none missed"
    assert told.said == []


@in_virtual_time
async def test_reactions_that_were_held_back_are_answered_by_the_next_coordinator(monkeypatch):
    told = Told(monkeypatch)
    async with a_mesh("memory", replace(CALM, derived_per_minute=RATE)) as mesh:
        watch = await mesh.node(caretaking=False)
        here = (await mesh.connection()).session
        built = await put(here, plan(Reaction(on="ended", kinds="test.*"), name="built"))
        await mesh.worker(work)
        jobs = [await call(here, n) for n in range(5 * RATE)]
        for _ in range(6):
            async with a_coordinator(mesh):
                await asyncio.sleep(61)
        assert sorted(causes(watch, built)) == sorted(job.id for job in jobs)
        assert busiest(derived_ms(watch)) == RATE
    assert told.said == []


@pytest.mark.exact_times
@in_virtual_time
async def test_a_reaction_that_waited_as_long_as_a_job_may_is_left_out():
    minutes = 3
    rules = replace(CALM, derived_per_minute=1, start_by_ms=minutes * 60_000)
    async with a_mesh("memory", rules) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        built = await put(here, plan(Reaction(on="ended", kinds="test.*"), name="built"))
        await mesh.worker(work)
        for n in range(10):
            await call(here, n)
        await asyncio.sleep(10 * 60)
        assert len(causes(node, built)) == minutes + 1


@in_virtual_time
async def test_the_replicas_of_a_derived_job_count_too():
    async with a_mesh("memory", replace(CALM, derived_per_minute=8)) as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        here = (await mesh.connection()).session
        often = await put(here, plan(replicas=3, quorum=2))
        large = await put((await mesh.connection()).session, plan(name="l", replicas=9, quorum=2))
        await asyncio.sleep(10)
        assert len(ticks(node, often)) == 2
        assert len(ticks(node, large)) == 1, "more than the rate, so it is alone"


@in_virtual_time
async def test_that_a_party_s_plans_are_held_back_is_logged_once(monkeypatch):
    said = []

    class Said:
        def warning(self, event, **facts) -> None:
            said.append((event, facts.get("plan")))

    monkeypatch.setattr(plan_runner, "log", Said())
    monkeypatch.setattr(selected_plans, "log", Said())
    async with parties(derived_per_minute=3, plans_max=2) as (_, _, _, here, _):
        for name in ("one", "two", "three", "four"):
            await put(here, plan(name=name))
        await asyncio.sleep(30)
    assert sorted(event for event, _ in said) == ["plan_delayed", "plans_not_run"]
    assert dict(said)["plan_delayed"] in ("one", "two")


@in_virtual_time
async def test_a_coordinator_that_exceeds_a_rate_is_reported_and_a_lowered_rate_is_not(monkeypatch):
    told = Told(monkeypatch)
    async with a_mesh("memory", replace(CALM, derived_per_minute=RATE)) as mesh:
        node = await mesh.node(caretaking=False)
        node.watchers.append(PlanAudit(node).applied)
        owner = (await mesh.connection(mesh.owner)).session
        stands = await put(owner, plan())
        await asyncio.sleep(2 * RATE)

        async def derive(number: int) -> None:
            tick = (stands.put_ms // 1000 + 1 + number) * 1000
            body = derived_body(stands.body, stands.op_id, Tick(tick_ms=tick))
            lane = (await owner.read_lane(PLANNED, "0" * 64)).lane
            deps = ((stands.put_seq, stands.op_id),)
            written = await write_one(owner, Intent(JobSchedule, body, lane, deps=deps))
            await node.reached(written.seq)

        for number in range(RATE):
            await derive(number)
        rules = replace(owner.control.rules, derived_per_minute=1)
        await write_one(owner, Intent(MeshRules, RulesBody(rules=rules)), BEHIND)
        assert told.said == []
        await derive(RATE)
        await derive(RATE + 1)
    ((event, why),) = told.said
    assert event == "plan_mismatch"
    assert f"{RATE + 1} jobs were derived" in why


def test_patterns_are_what_covers_a_kind():
    for kind in ("a", "a.b", "a.b.c"):
        asked = ["a", "a.b", "a.b.c", "a.*", "a.b.*", "a.b.c.*", "*", "ab.*", "b"]
        covering = [one for one in asked if Reaction(on="ended", kinds=one).covers(kind)]
        assert sorted(covering) == sorted(patterns_of(kind))


@in_virtual_time
async def test_a_crowd_of_reactions_to_what_their_author_may_not_read_costs_next_to_nothing(
    monkeypatch,
):
    asked, really = [], plan_authority.may_read

    def may_read(*what):
        asked.append(what)
        return really(*what)

    monkeypatch.setattr(plan_authority, "may_read", may_read)
    async with parties() as (_, owner, node, many, _):
        crowd = [
            await put(many, plan(Reaction(on="ended", kinds="test.*"), name=f"one{n}"))
            for n in range(20)
        ]
        for number in range(10):
            job = await call(owner, number)
            await end(owner, job)
        await node.reached((await owner.log.last()).seq)
        await asyncio.sleep(1)
        told = node.replica.attention.newest(limit=100)
        assert {one.item.split()[1] for one in told} == {one.body.name for one in crowd}
        assert {one.whose for one in told} == {many.author.did}
        assert len(asked) < len(crowd), "once for all plans, and not for each plan and job"
