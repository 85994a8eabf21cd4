"""Locks as programs hold them: exclusion, waiting in turn, renewal, loss (spec §10)."""

import asyncio

import pytest

from antiphon.errors import Held, LockLost, Rejected
from tests.runtime.locks.lockers import KEY, OPEN, SCOPE, TTL_MS, CountedReads, lock_of
from tests.runtime.meshes import a_mesh, eventually, on_both_engines

pytestmark = pytest.mark.req("S2")


@on_both_engines
async def test_one_holder_at_a_time_and_every_later_fence_is_greater(engine):
    async with a_mesh(engine, OPEN) as mesh:
        nodes = [await mesh.connection() for _ in range(3)]
        inside, most, fences = 0, 0, list[str]()

        async def work(node, agent):
            nonlocal inside, most
            for _ in range(2):
                async with lock_of(node, agent=agent) as lock:
                    inside += 1
                    most = max(most, inside)
                    fences.append(lock.fence)
                    await asyncio.sleep(0.01)
                    inside -= 1

        async with asyncio.TaskGroup() as group:
            for node in nodes:
                for agent in ("a", "b"):
                    group.create_task(work(node, agent))
        assert most == 1
        assert fences == sorted(set(fences))
        assert len(fences) == 12


@pytest.mark.virtual_time
async def test_a_lock_that_is_held_says_by_whom_and_until_when():
    async with a_mesh("memory", OPEN) as mesh:
        one, other = await mesh.connection(), await mesh.connection()
        async with lock_of(one):
            with pytest.raises(Held, match=r"/main holds it until 2023-.* unless it renews"):
                await lock_of(other, wait_s=0).take()
            with pytest.raises(Held, match=f"{KEY} in {SCOPE} was not free after 5 s"):
                await lock_of(one, agent="second", wait_s=5).take()
        taken = await lock_of(other, wait_s=0).take()
        await taken.release()
        await taken.release()
        assert not taken.is_held


@pytest.mark.virtual_time
async def test_a_ttl_outside_the_rules_is_refused_with_what_they_allow():
    async with a_mesh("memory", OPEN) as mesh:
        with pytest.raises(Rejected) as refused:
            await lock_of(await mesh.connection(), ttl_ms=100).take()
        assert refused.value.reason == "lease"
        assert "between 5 and 3600 s" in refused.value.hint


@pytest.mark.virtual_time
async def test_a_lock_is_kept_for_as_long_as_its_block_runs():
    async with a_mesh("memory", OPEN) as mesh:
        one, other = await mesh.connection(), await mesh.connection()
        async with lock_of(one) as lock:
            first = lock.deadline_ms
            await asyncio.sleep(10 * TTL_MS / 1000)
            assert lock.is_held
            assert lock.deadline_ms > first + 9 * TTL_MS
            with pytest.raises(Held):
                await lock_of(other, wait_s=0).take()


@pytest.mark.virtual_time
@pytest.mark.req("S14")
async def test_a_waiter_makes_no_read_while_nothing_happens():
    async with a_mesh("memory", OPEN) as mesh:
        one, other = await mesh.connection(), await mesh.connection()
        reads = CountedReads(other.session)
        async with lock_of(one, ttl_ms=3_000_000):
            waiting = asyncio.create_task(lock_of(other).take())
            await asyncio.sleep(1)
            before = reads.count
            await asyncio.sleep(900)
            assert reads.count == before, "a quarter of an hour without a read"
        lock = await waiting
        assert reads.count > before
        await lock.release()


@pytest.mark.virtual_time
async def test_waiters_get_it_in_the_order_in_which_they_came():
    async with a_mesh("memory", OPEN) as mesh:
        nodes = [await mesh.connection() for _ in range(5)]
        order = list[int]()

        async def work(number):
            async with lock_of(nodes[number]):
                order.append(number)
                await asyncio.sleep(3)

        waiting = []
        async with lock_of(nodes[0]):
            for number in (3, 1, 4, 2):
                waiting.append(asyncio.create_task(work(number)))
                await asyncio.sleep(0.2)
        await asyncio.gather(*waiting)
        assert order == [3, 1, 4, 2]


@pytest.mark.virtual_time
async def test_a_lock_that_somebody_breaks_cancels_its_block_and_says_why():
    async with a_mesh("memory", OPEN) as mesh:
        one, owner = await mesh.connection(), await mesh.connection(mesh.owner)
        with pytest.raises(LockLost, match="somebody else ended the hold"):  # noqa: PT012
            async with lock_of(one) as lock:
                line = lock_of(owner)._line
                await line.look()
                assert (await line.break_hold(lock.fence)).value == "ok"
                await asyncio.sleep(TTL_MS)
                pytest.fail("the block was not cancelled")
        again = await lock_of(owner, wait_s=0).take()
        await again.release()


@pytest.mark.virtual_time
async def test_the_blocks_own_errors_and_cancellations_pass_and_the_lock_is_released():
    async with a_mesh("memory", OPEN) as mesh:
        one, other = await mesh.connection(), await mesh.connection()
        with pytest.raises(ZeroDivisionError):
            async with lock_of(one):
                raise ZeroDivisionError
        assert await lock_of(other, wait_s=0).take()

        async def block():
            async with lock_of(one, key="y"):
                await asyncio.sleep(3_000)

        task = asyncio.create_task(block())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await lock_of(other, wait_s=0, key="y").take()


@pytest.mark.virtual_time
async def test_a_lock_is_passed_on_with_a_new_fence_and_nobody_gets_between():
    async with a_mesh("memory", OPEN) as mesh:
        one, other, third = [await mesh.connection() for _ in range(3)]
        async with lock_of(one) as lock:
            before = lock.fence
            waiting = asyncio.create_task(lock_of(third).take())
            await asyncio.sleep(1)
            await lock.pass_to(f"{other.keyring.did}/deploy")
            with pytest.raises(LockLost):
                lock.check()
        passed = await lock_of(other, agent="deploy").adopt()
        assert passed.fence > before
        await asyncio.sleep(100)
        assert passed.is_held
        assert not waiting.done()
        with pytest.raises(LockLost, match="was not passed to main"):
            await lock_of(other).adopt()
        await passed.release()
        late = await waiting
        assert late.fence > passed.fence
        await late.release()


@pytest.mark.virtual_time
async def test_who_adopts_a_lock_with_a_shorter_ttl_keeps_what_is_left_and_then_renews():
    async with a_mesh("memory", OPEN) as mesh:
        one, other = await mesh.connection(), await mesh.connection()
        lock = await lock_of(one, ttl_ms=10 * TTL_MS).take()
        await lock.pass_to(f"{other.keyring.did}/main")
        passed = await lock_of(other).adopt()
        until_ms = passed.deadline_ms
        assert until_ms > other.session.wall.now_ms() + 9 * TTL_MS
        await asyncio.sleep(5 * TTL_MS / 1000)
        assert (passed.is_held, passed.deadline_ms) == (True, until_ms), "renewed all along"
        await asyncio.sleep(10 * TTL_MS / 1000)
        assert passed.is_held
        assert passed.deadline_ms > until_ms
        await passed.release()


@pytest.mark.virtual_time
async def test_a_holders_two_processes_with_different_times_both_keep_the_lock():
    async with a_mesh("memory", OPEN) as mesh:
        one = await mesh.connection()
        short = await lock_of(one).take()
        long = await lock_of(await mesh.connection(one.keyring), ttl_ms=10 * TTL_MS).adopt()
        await asyncio.sleep(20 * TTL_MS / 1000)
        assert short.is_held
        assert long.is_held
        await short.release()


@on_both_engines
async def test_agents_of_one_node_exclude_each_other(engine):
    async with a_mesh(engine, OPEN) as mesh:
        node = await mesh.connection()
        async with lock_of(node, agent="a") as first:
            second = asyncio.create_task(lock_of(node, agent="b").take())
            with pytest.raises(Held):
                await lock_of(node, agent="a", wait_s=0).take()
            assert not second.done()
            fence = first.fence
        lock = await second
        assert lock.fence > fence
        await lock.release()
        await eventually(lambda: not lock.is_held)
