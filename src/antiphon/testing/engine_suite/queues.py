"""Work queues: each announcement goes to one member, against credit, until it is settled.

What this suite fixes about settling is JetStream's behaviour, and the reason why the runtime
decides by compare-and-set alone: nothing here is fenced.
"""

# A test's name states the behaviour; expected values are literal.
# ruff: noqa: D102, PLR2004

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import chain

from antiphon.errors import Misconfigured
from antiphon.ports import Delivery, Engine, WorkQueue
from antiphon.testing.engine_suite.harness import (
    QUIET_S,
    SHORT_LOAN_S,
    EngineSuite,
    Site,
    eventually,
    is_quiet,
    refused,
    soon,
    take,
)

LATE_S = 10.0
"""How late an engine may notice that a loan is over."""


def queue_of(site: Site, engine: Engine, stack: AsyncExitStack) -> asyncio.Future[WorkQueue]:
    """Join the queue of the `render` jobs for as long as the stack lives."""
    context = engine.log.work(site.calls(), name="render-1")
    return asyncio.ensure_future(stack.enter_async_context(context))


class QueueSuite(EngineSuite):
    """Who gets what."""

    async def test_each_announcement_goes_to_one_member(self) -> None:
        members, count = 4, 60
        async with self.site() as site, AsyncExitStack() as stack:
            writer, *workers = await site.connect_many(members + 1)
            got: list[list[int]] = [[] for _ in workers]

            async def work(queue: WorkQueue, mine: list[int]) -> None:
                queue.grant(3)
                while True:
                    delivery = await queue.next()
                    mine.append(delivery.record.seq)
                    assert delivery.deliveries == 1
                    await asyncio.sleep(0.002)
                    delivery.ack()
                    queue.grant(1)

            queues = [await queue_of(site, worker, stack) for worker in workers]
            tasks = [
                asyncio.ensure_future(work(queue, mine))
                for queue, mine in zip(queues, got, strict=True)
            ]
            try:
                await site.announce(writer, range(count))
                await eventually(lambda: sum(map(len, got)) >= count)
                await asyncio.sleep(QUIET_S)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            assert sorted(chain.from_iterable(got)) == list(range(1, count + 1))
            assert all(got), "somebody was left out"

    async def test_nothing_arrives_without_credit(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            await site.announce(engine, range(10))
            queue = await queue_of(site, engine, stack)
            assert queue.credits == 0
            assert await is_quiet(queue)
            queue.grant(3)
            assert len(await take(queue, 3)) == 3
            assert queue.credits == 0
            assert await is_quiet(queue)
            queue.grant(1)
            queue.grant(1)
            assert [one.record.seq for one in await take(queue, 2)] == [4, 5]
            assert await is_quiet(queue)

    async def test_credits_wait_for_work(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            queue = await queue_of(site, engine, stack)
            queue.grant(2)
            assert await is_quiet(queue)
            assert queue.credits == 2
            await site.announce(engine, range(3))
            assert [one.record.seq for one in await take(queue, 2)] == [1, 2]
            assert queue.credits == 0

    async def test_a_queue_that_was_asked_delivers_or_says_that_it_has_nothing(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            await site.announce(engine, range(5))
            queue = await queue_of(site, engine, stack)
            words: list[bool] = []
            queue.watch(lambda: words.append(queue.is_dry))
            queue.grant(3)
            await take(queue, 3)
            assert await is_quiet(queue)
            assert (words, queue.is_dry) == ([], False), "there is more"
            queue.grant(4)
            await take(queue, 2)
            await eventually(lambda: queue.is_dry)
            assert words, "whoever watches was told"
            assert queue.credits == 2, "and what is left waits"
            await site.announce(engine, range(5, 6))
            await take(queue, 1)
            assert not queue.is_dry
            queue.ask()
            await eventually(lambda: queue.is_dry)
            assert queue.credits == 1

    async def test_what_is_given_back_is_there(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            await site.announce(engine, range(1))
            queue = await queue_of(site, engine, stack)
            queue.grant(1)
            (delivery,) = await take(queue, 1)
            queue.grant(1)
            await eventually(lambda: queue.is_dry)
            delivery.nak()
            (again,) = await take(queue, 1)
            assert (again.record.seq, queue.is_dry) == (delivery.record.seq, False)

    async def test_a_queue_covers_what_was_announced_before_it_existed(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            await site.announce(engine, range(3))
            queue = await queue_of(site, engine, stack)
            queue.grant(10)
            assert [one.record.seq for one in await take(queue, 3)] == [1, 2, 3]

    async def test_a_delivery_holds_the_record(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            seq = await site.append(engine, site.call(1), bytes(range(256)))
            queue = await queue_of(site, engine, stack)
            queue.grant(1)
            delivery = await soon(queue.next())
            assert delivery.record == await engine.log.fetch(seq)
            assert queue.loan_s > 0

    async def test_two_queues_both_get_a_record(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            everything = f"ap.{site.mesh}.jobs.>"
            one = await queue_of(site, engine, stack)
            two = await stack.enter_async_context(engine.log.work(everything, name="all"))
            for queue in (one, two):
                queue.grant(5)
            await site.announce(engine, range(2))
            for queue in (one, two):
                assert [got.record.seq for got in await take(queue, 2)] == [1, 2]

    async def test_a_filter_is_exact(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            exact = await stack.enter_async_context(engine.log.work(site.calls(), name="exact"))
            below = await stack.enter_async_context(
                engine.log.work(site.calls(below=True), name="below")
            )
            for queue in (exact, below):
                queue.grant(9)
            await site.append(engine, site.call(1))
            await site.append(engine, site.call(2, kind="render.video"))
            await site.append(engine, site.call(3, kind="renderer"))
            await site.append(engine, site.call(4, priority="low"))
            await site.append(engine, site.job(5))
            await site.append(engine, site.call(6))
            assert [got.record.seq for got in await take(exact, 2)] == [1, 6]
            assert [got.record.seq for got in await take(below, 3)] == [1, 2, 6]
            assert await is_quiet(exact)
            assert await is_quiet(below)

    async def test_a_queue_has_one_filter_for_good(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            one, two = await site.connect_many(2)
            await queue_of(site, one, stack)
            other = two.log.work(site.calls(below=True), name="render-1")
            with refused(Misconfigured):
                await stack.enter_async_context(other)

    async def test_a_member_that_drains_gets_nothing_more(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            leaving, staying, writer = await site.connect_many(3)
            one = await queue_of(site, leaving, stack)
            two = await queue_of(site, staying, stack)
            one.grant(5)
            one.revoke_credits()
            assert one.credits == 0
            await asyncio.sleep(QUIET_S)
            two.grant(5)
            await site.announce(writer, range(5))
            assert [got.record.seq for got in await take(two, 5)] == [1, 2, 3, 4, 5]
            assert await is_quiet(one)

    async def test_closing_gives_back_what_was_not_taken(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            leaving, staying = await site.connect_many(2)
            await site.announce(leaving, range(4))
            async with leaving.log.work(site.calls(), name="render-1") as queue:
                queue.grant(4)
                (taken,) = await take(queue, 1)
                await asyncio.sleep(QUIET_S)
            other = await queue_of(site, staying, stack)
            other.grant(4)
            given_back = [got.record.seq for got in await take(other, 3)]
            assert sorted([taken.record.seq, *given_back]) == [1, 2, 3, 4]
            assert await is_quiet(other)

    async def test_a_cancelled_wait_loses_nothing(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            queue = await queue_of(site, engine, stack)
            queue.grant(20)
            got: list[int] = []
            for n in range(20):
                waiting = asyncio.ensure_future(queue.next())
                await asyncio.sleep(0)
                await site.announce(engine, range(n, n + 1))
                waiting.cancel()
                await asyncio.wait([waiting])
                if not waiting.cancelled():
                    got.append(waiting.result().record.seq)
            got += [one.record.seq for one in await take(queue, 20 - len(got))]
            assert sorted(got) == list(range(1, 21))

    async def test_an_idle_queue_still_works(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            queue = await queue_of(site, engine, stack)
            queue.grant(2)
            assert await is_quiet(queue, 3.0)
            begun = asyncio.get_running_loop().time()
            await site.announce(engine, range(1))
            await soon(queue.next())
            assert asyncio.get_running_loop().time() - begun < LATE_S, "not only when it asks anew"

    async def test_purged_announcements_are_passed_over(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            await site.announce(engine, range(3))
            await engine.log.purge(site.call(1), upto=3)
            queue = await queue_of(site, engine, stack)
            queue.grant(5)
            assert [one.record.seq for one in await take(queue, 2)] == [1, 3]


class SettleSuite(EngineSuite):
    """How a delivery ends."""

    async def test_an_ack_settles(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect(loan_s=SHORT_LOAN_S)
            queue = await queue_of(site, engine, stack)
            queue.grant(5)
            await site.announce(engine, range(1))
            delivery = await soon(queue.next())
            delivery.ack()
            delivery.ack()
            delivery.nak()
            assert await is_quiet(queue, 2.5 * SHORT_LOAN_S)

    async def test_a_nak_brings_it_back_at_once_and_before_what_is_new(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            await site.announce(engine, range(3))
            queue = await queue_of(site, engine, stack)
            queue.grant(1)
            first = await soon(queue.next())
            first.nak()
            await asyncio.sleep(QUIET_S)
            queue.grant(2)
            again, second = await take(queue, 2)
            assert (again.record, again.deliveries) == (first.record, 2)
            assert (second.record.seq, second.deliveries) == (2, 1)

    async def test_a_nak_may_ask_for_a_delay(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            engine = await site.connect()
            queue = await queue_of(site, engine, stack)
            queue.grant(5)
            await site.announce(engine, range(1))
            delivery = await soon(queue.next())
            begun = asyncio.get_running_loop().time()
            delivery.nak(1.0)
            again = await soon(queue.next())
            assert again.deliveries == 2
            assert 0.9 < asyncio.get_running_loop().time() - begun < 1.0 + LATE_S

    async def test_a_loan_that_runs_out_goes_to_someone_else(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            one, two = await site.connect_many(2, loan_s=SHORT_LOAN_S)
            await site.announce(one, range(1))
            sleepy = await queue_of(site, one, stack)
            assert sleepy.loan_s == SHORT_LOAN_S
            sleepy.grant(1)
            begun = asyncio.get_running_loop().time()
            first = await soon(sleepy.next())
            awake = await queue_of(site, two, stack)
            awake.grant(1)
            again = await soon(awake.next())
            waited_s = asyncio.get_running_loop().time() - begun
            assert 0.9 * SHORT_LOAN_S < waited_s < SHORT_LOAN_S + LATE_S
            assert (again.record, again.deliveries) == (first.record, 2)

    async def test_signs_of_life_keep_a_loan(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            loan_s = 4 * SHORT_LOAN_S
            one, two = await site.connect_many(2, loan_s=loan_s)
            await site.announce(one, range(1))
            holder, waiter = await queue_of(site, one, stack), await queue_of(site, two, stack)
            holder.grant(1)
            delivery = await soon(holder.next())
            waiter.grant(1)
            for _ in range(6):  # longer than the loan
                assert await is_quiet(waiter, loan_s / 4)
                delivery.in_progress()
            again = await soon(waiter.next())
            assert again.deliveries == 2

    async def _lent_twice(
        self, site: Site, stack: AsyncExitStack
    ) -> tuple[Delivery, Delivery, WorkQueue]:
        """The same record in two hands, the first of which are too late."""
        one, two = await site.connect_many(2, loan_s=SHORT_LOAN_S)
        await site.announce(one, range(1))
        late, prompt = await queue_of(site, one, stack), await queue_of(site, two, stack)
        late.grant(1)
        stale = await soon(late.next())
        prompt.grant(5)
        current = await soon(prompt.next())
        assert (current.record, current.deliveries) == (stale.record, 2)
        return stale, current, prompt

    async def test_a_stale_ack_settles_what_someone_else_holds(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            stale, current, queue = await self._lent_twice(site, stack)
            stale.ack()
            await asyncio.sleep(QUIET_S / 2)
            current.nak()  # too late: it is gone for good
            assert await is_quiet(queue, 2.5 * SHORT_LOAN_S)

    async def test_a_stale_nak_takes_it_out_of_the_holders_hands(self) -> None:
        for _ in range(5):  # a machine that stood still until the loan was over shows nothing
            async with self.site() as site, AsyncExitStack() as stack:
                stale, current, queue = await self._lent_twice(site, stack)
                begun = asyncio.get_running_loop().time()
                stale.nak()
                again = await soon(queue.next())
                assert (again.record, again.deliveries) == (current.record, 3)
                if asyncio.get_running_loop().time() - begun < SHORT_LOAN_S / 2:
                    return
        raise AssertionError("it came when the loan was over, and not before")

    async def test_unsettled_work_outlives_the_connection(self) -> None:
        async with self.site() as site, AsyncExitStack() as stack:
            one, two = await site.connect_many(2, loan_s=SHORT_LOAN_S)
            await site.announce(one, range(1))
            async with one.log.work(site.calls(), name="render-1") as queue:
                queue.grant(1)
                delivery = await soon(queue.next())
            await one.close()
            delivery.ack()  # after the end of the connection: says nothing to nobody
            other = await queue_of(site, two, stack)
            other.grant(1)
            again = await soon(other.next())
            assert (again.record, again.deliveries) == (delivery.record, 2)
