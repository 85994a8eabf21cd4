"""Limits for the whole mesh: a rate, a change of the rules, a job that waits for its children."""

import asyncio

import msgspec
import pytest

from antiphon.core.authority.rules import Limit
from antiphon.core.families.jobs.ops import JobOffer
from antiphon.core.families.mesh.ops import MeshRules, RulesBody
from antiphon.runtime.coordinator.predecessors import Predecessors
from antiphon.runtime.log.writer import Intent, write_one
from tests.runtime.coordinator.test_coordinator import BUILD, coordinated, ended, submit
from tests.runtime.meshes import CALM, eventually, on_both_engines


def rules_with(**limit):
    return msgspec.structs.replace(CALM, limits=(Limit(label="gpu", kinds=("ci",), **limit),))


async def offered_ms(session, jobs):
    """When each job was first offered, by the log."""
    found = []
    for job in jobs:
        view = await session.read_lane(job.kind, job.id)
        offers = [one.opened for one in view.history if isinstance(one.opened.op, JobOffer)]
        found.append(offers[0].commit_ms)
    return sorted(found)


@on_both_engines
async def test_no_more_jobs_begin_in_a_period_than_the_rate_allows(engine):
    async with coordinated(engine, rules_with(rate=2, per_ms=1_000)) as (mesh, session, node):

        async def build(_: int) -> None:
            return

        await mesh.worker(build, kind=BUILD)
        jobs = [await submit(session, BUILD, at, concurrency="gpu") for at in range(5)]
        assert await ended(node, *jobs) == ["succeeded"] * 5
        times = await offered_ms(session, jobs)
        apart = [later - earlier for earlier, later in zip(times, times[2:], strict=False)]
        assert min(apart) >= 1_000, times


@on_both_engines
async def test_a_limit_that_is_raised_lets_more_begin_and_one_that_is_lowered_ends_nothing(engine):
    async with coordinated(engine, rules_with(at_once=1)) as (mesh, session, node):
        running, release = 0, asyncio.Event()

        async def build(_: int) -> None:
            nonlocal running
            running += 1
            await release.wait()

        await mesh.worker(build, kind=BUILD, slots=8)
        jobs = [await submit(session, BUILD, at, concurrency="gpu") for at in range(5)]
        await eventually(lambda: running == 1)
        await write_one(session, Intent(MeshRules, RulesBody(rules=rules_with(at_once=3))))
        await eventually(lambda: running == 3)
        await write_one(session, Intent(MeshRules, RulesBody(rules=rules_with(at_once=1))))
        await asyncio.sleep(0.2)
        assert running == 3
        release.set()
        assert await ended(node, *jobs) == ["succeeded"] * 5


@pytest.mark.virtual_time
async def test_jobs_that_were_set_aside_wait_for_room_like_all_others(monkeypatch):
    """What could not be offered at first is tried again, and the label may be full by then."""
    is_broken, really = True, Predecessors.derive_in_turns

    async def derive(self, job):
        if is_broken:
            raise RuntimeError("not now")
        return await really(self, job)

    monkeypatch.setattr(Predecessors, "derive_in_turns", derive)
    async with coordinated("memory", rules_with(at_once=2)) as (mesh, session, node):
        running, most, release = 0, 0, asyncio.Event()

        async def build(_: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await release.wait()
            running -= 1

        jobs = [await submit(session, BUILD, at, concurrency="gpu") for at in range(6)]
        await eventually(lambda: len(node.replica.attention.newest(limit=10)) == 6)
        is_broken = False
        await mesh.worker(build, kind=BUILD, slots=8)
        await eventually(lambda: running == 2)
        await asyncio.sleep(20)
        release.set()
        assert await ended(node, *jobs) == ["succeeded"] * 6
        assert most == 2
