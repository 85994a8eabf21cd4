"""A worker fills its slots, and no more than those, however long the jobs take."""

import asyncio

import pytest

from antiphon.core.families.jobs.ops import JobClaim, JobComplete
from antiphon.runtime.worker.run_slots import RUNS_KEPT, RunSlots
from tests.runtime.meshes import a_mesh, call, eventually, on_both_engines


@on_both_engines
async def test_jobs_that_do_not_end_fill_every_slot_and_no_more(engine):
    running, let_go = set(), asyncio.Event()

    async def endless(number: int) -> int:
        running.add(number)
        await let_go.wait()
        running.discard(number)
        return number

    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        worker = await mesh.worker(endless, slots=5)
        for number in range(8):
            await call(caller, number)
        await eventually(lambda: len(running) == 5)
        await asyncio.sleep(0.2)
        assert len(running) == worker.busy == 5
        let_go.set()
        await eventually(lambda: worker.done == 8)


@on_both_engines
@pytest.mark.req("M21")
async def test_a_worker_of_short_jobs_claims_ahead_and_still_runs_no_more_than_its_slots(engine):
    running = most = 0

    async def counted(_number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async with a_mesh(engine) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        for number in range(60):
            await call(caller, number)
        worker = await mesh.worker(counted, slots=2)
        await eventually(lambda: node.replica.sizes.by_state() == {"succeeded": 60})
        assert most == 2
        await eventually(lambda: worker.busy == 0)
        held = deepest = 0
        for seq in range(1, node.applied + 1):
            op = node.session.open(node.replica.record(seq).record).op
            held += isinstance(op, JobClaim) - isinstance(op, JobComplete)
            deepest = max(deepest, held)
        assert deepest <= 4


@on_both_engines
@pytest.mark.req("M21")
async def test_a_job_claimed_ahead_of_a_long_one_goes_to_another_worker(engine):
    running, let_go = set(), asyncio.Event()

    async def task(number: int) -> None:
        if number >= RUNS_KEPT:
            running.add(number)
            await let_go.wait()

    async with a_mesh(engine) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        first = await mesh.worker(task, slots=1)
        for number in range(RUNS_KEPT):
            await call(caller, number)
        await eventually(lambda: first.done == RUNS_KEPT)
        for number in range(2):
            await call(caller, RUNS_KEPT + number)
        await eventually(lambda: node.replica.sizes.by_state().get("running", 0) == 2)  # one runs
        await mesh.worker(task, slots=1)
        await eventually(lambda: len(running) == 2)
        let_go.set()
        await eventually(lambda: node.replica.sizes.by_state() == {"succeeded": RUNS_KEPT + 2})


async def test_slots_are_given_in_the_order_of_asking_and_a_cancelled_wait_takes_none():
    slots, begun = RunSlots(1), []

    async def run(name: str) -> None:
        await slots.take(name)
        begun.append(name)

    await run("first")
    waiting = [asyncio.create_task(run(name)) for name in ("second", "third", "fourth")]
    await asyncio.sleep(0)
    waiting[0].cancel()
    slots.leave("first")
    slots.leave("first")
    await waiting[1]
    assert begun == ["first", "third"]
    waiting[2].cancel()
    await asyncio.wait(waiting)
    slots.leave("third")
    await run("fifth")
    assert begun == ["first", "third", "fifth"]


async def test_a_job_that_waited_in_vain_ends_claiming_ahead():
    slots = RunSlots(1)
    for number in range(RUNS_KEPT):
        await slots.take(number)
        slots.leave(number)
    assert slots.room == 2
    await slots.take("long")
    with pytest.raises(TimeoutError):
        await slots.take("ahead")
    slots.leave("long")
    assert slots.room == 1


@pytest.mark.virtual_time
async def test_what_a_worker_holds_includes_the_jobs_that_it_claimed_ahead():
    held: list[tuple[int, int]] = []

    async def short(_number: int) -> None:
        held.append((worker.held, worker.busy))
        await asyncio.sleep(0.001)

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        for number in range(60):
            await call(caller, number)
        worker = await mesh.worker(short, slots=2)
        await eventually(lambda: worker.done == 60)
        assert max(held) == (4, 2)
        assert worker.held == 0
