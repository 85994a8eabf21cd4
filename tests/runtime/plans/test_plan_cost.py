"""What one member's plans cost the coordinator, counted in looks and in time."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from antiphon.core.families.jobs.derivation import Cron, Reaction
from antiphon.core.families.mesh.ops import MeshRules, RulesBody
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.plans import due_plans
from antiphon.runtime.plans.cron_ticks import CronTicks
from antiphon.runtime.plans.due_plans import DuePlans
from antiphon.runtime.plans.plan_runner import PlanRunner
from antiphon.runtime.plans.running_plan import RunningPlan
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from tests.runtime.meshes import call, eventually
from tests.runtime.plans.plan_meshes import (
    EVERY_SECOND,
    causes,
    drop,
    end,
    grant,
    in_virtual_time,
    plan,
    put,
    ticks,
)
from tests.runtime.plans.test_plan_bounds import another_key, parties

pytestmark = pytest.mark.req("P13")
WORKS = Reaction(on="ended", kinds="test.*")
CROWD = 12


def counted(monkeypatch) -> Counter:
    """How often the coordinator asks the replica, by query."""
    asked: Counter[str] = Counter()
    for name in ("oldest_of_each", "at", "standing_count", "ended_after"):
        really = getattr(ReplicaPlans, name)

        def ask(self, *args, name=name, really=really, **more):
            asked[name] += 1
            return really(self, *args, **more)

        monkeypatch.setattr(ReplicaPlans, name, ask)
    return asked


async def ended(owner, node, what):
    """A job that somebody else submitted and cancelled; the coordinator has seen it."""
    job = await call(owner, what)
    await end(owner, job)
    await node.reached((await owner.log.last()).seq)
    await asyncio.sleep(2)
    return job


@in_virtual_time
async def test_putting_replacing_and_dropping_a_plan_reads_no_other(monkeypatch):
    async with parties() as (_, _, node, many, few):
        nightly = await put(few, plan(name="nightly"))
        await eventually(lambda: ticks(node, nightly))
        asked = counted(monkeypatch)
        for number in range(CROWD):
            name = f"n{number % 4}"
            await put(many, plan(WORKS, name=name))
            await put(many, plan(Cron(at="0 0 29 2 *", zone=f"No/Where{number}"), name=name))
            await drop(many, plan(name=name))
        await asyncio.sleep(2)
        assert asked == {}
        seen = len(ticks(node, nightly))
        await eventually(lambda: len(ticks(node, nightly)) > seen)


@in_virtual_time
async def test_for_a_crowd_whose_author_may_not_read_what_ended_one_plan_looks(monkeypatch):
    async with parties() as (_, owner, node, many, _):
        crowd = [await put(many, plan(WORKS, name=f"one{n}")) for n in range(CROWD)]
        await asyncio.sleep(1)
        asked = counted(monkeypatch)
        for number in range(3):
            await ended(owner, node, number)
        assert asked["ended_after"] == 3
        await grant(owner, many.author.did, can=("read",), kinds=("test.*",))
        read = await ended(owner, node, "read")
        assert [causes(node, one) for one in crowd] == [[read.id]] * CROWD


@in_virtual_time
@pytest.mark.parametrize("how", ["dropped", "replaced"])
async def test_a_crowd_goes_on_without_the_plan_that_would_have_looked_first(how, monkeypatch):
    async with parties() as (_, owner, node, many, _):
        await grant(owner, many.author.did, can=("read",), kinds=("test.*",))
        crowd = [await put(many, plan(WORKS, name=f"one{n}")) for n in range(3)]
        await asyncio.sleep(1)
        monkeypatch.setattr(DuePlans, "first", lambda *_: None)  # nobody has a turn yet
        await ended(owner, node, 1)
        await (drop if how == "dropped" else put)(many, plan(EVERY_SECOND, name="one0"))
        await asyncio.sleep(1)
        monkeypatch.undo()
        await eventually(lambda: all(causes(node, one) for one in crowd[1:]))


@in_virtual_time
async def test_a_party_whose_plans_take_long_leaves_others_three_quarters_of_the_time(monkeypatch):
    loop, look_s, spent = asyncio.get_running_loop(), 0.05, Counter()
    async with parties() as (mesh, _, node, many, few):
        more = await another_key(mesh, many)
        slow, really = (many.author.did, more.author.did), PlanRunner._next_of

        def next_of(self, one, *args):
            if one.plan.author in slow:
                loop._now += look_s  # what it computes
                spent["s"] += look_s
            return really(self, one, *args)

        monkeypatch.setattr(PlanRunner, "_next_of", next_of)
        for number in range(40):
            by = many if number % 2 else more
            await put(by, plan(Cron(at="* * * * * *", zone="UTC"), name=f"n{number}"))
        calm = await put(few, plan())
        begun_s, spent["s"] = loop.time(), 0
        await asyncio.sleep(60)
        assert 0.1 < spent["s"] / (loop.time() - begun_s) < 0.3
        found = ticks(node, calm)
        assert len(found) >= 58
        jobs = node.replica.ask(ReplicaPlans).derived(calm.op_id, limit=100)
        assert max(job.scheduled_ms - job.derived.tick_ms for job in jobs) < 500


@in_virtual_time
async def test_a_plan_that_was_too_many_runs_when_another_party_takes_over_an_older_one():
    async with parties(plans_max=1) as (_, _, node, many, few):
        await put(many, plan(name="first"))
        second = await put(many, plan(name="second"))
        await asyncio.sleep(2)
        assert not ticks(node, second)
        await put(few, plan(name="first"))
        await eventually(lambda: ticks(node, second))


@in_virtual_time
async def test_the_oldest_plans_run_also_if_one_of_them_was_dropped_and_put_again():
    async with parties(plans_max=2) as (_, owner, node, many, _):
        await put(many, plan(name="first"))
        await put(many, plan(name="second"))
        await drop(many, plan(name="first"))
        third = await put(many, plan(name="third"))
        await eventually(lambda: ticks(node, third))
        first = await put(many, plan(name="first"))
        await eventually(lambda: ticks(node, first))
        seen = len(ticks(node, third))
        await asyncio.sleep(5)
        assert len(ticks(node, third)) <= seen + 1
        rules = replace(owner.control.rules, plans_max=3)
        await write_one(owner, Intent(MeshRules, RulesBody(rules=rules)), BEHIND)
        await eventually(lambda: len(ticks(node, third)) > seen + 1)


@pytest.mark.parametrize("missed, most", [("skip", 200), ("last", 200), ("all", 3_000)])
def test_a_coordinator_that_was_away_for_long_walks_through_few_of_the_ticks(
    monkeypatch, missed, most
):
    walked, really = [], CronTicks.after

    def after(self, after_ms):
        for tick in really(self, after_ms):
            walked.append(tick)
            yield tick

    monkeypatch.setattr(CronTicks, "after", after)
    month_ms, trigger = 30 * 86_400_000, replace(EVERY_SECOND, missed=missed)
    now_ms = 1_800_000_000_000
    stands = SimpleNamespace(body=plan(trigger), author="ada", put_seq=1)
    one = RunningPlan(stands, "ada")
    one.begin_ticks(CronTicks(trigger.at, trigger.zone), now_ms - month_ms)
    one.see_ticks(now_ms)
    assert one.due[-1] == now_ms
    assert len(one.due) == (1_000 if missed == "all" else 61)
    assert len(walked) < most


def test_what_is_kept_of_plans_that_are_gone_is_bounded(monkeypatch):
    monkeypatch.setattr(due_plans, "SPARE_TIMES", 10)
    due = DuePlans()
    for seq in range(1, 200):
        stands = SimpleNamespace(body=plan(), author="ada", put_seq=seq)
        one = RunningPlan(stands, "ada", is_begun=True, next_ms=seq)
        due.add(one)
        if seq > 5:
            due.remove(due.running[seq - 5])
    assert len(due.running) == 5
    assert len(due._times) <= 2 * 5 + 10 + 1
    due.see_times(10_000)
    assert due.first(()).plan.put_seq == 195
