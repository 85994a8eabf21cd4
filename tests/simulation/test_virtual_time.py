"""Virtual time: it jumps, it keeps order, it refuses the real world, and machines freeze."""

import asyncio
import time

import pytest

from antiphon.testing.host_clock import HostClock, SeededEntropy
from antiphon.testing.virtual_time import Host, Stalled, current_host, new_loop


def run(main, **options):
    loop = new_loop(**options)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


def test_a_day_passes_at_once():
    async def main(loop):
        await asyncio.sleep(24 * 3600)
        return loop.time()

    began = time.monotonic()
    assert run(main) == 24 * 3600
    assert time.monotonic() - began < 3600


def test_timers_that_are_due_together_run_in_the_order_they_were_set():
    order = []

    async def main(loop):
        for number in range(50):
            loop.call_at(5.0, order.append, number)
        loop.call_at(4.0, order.append, "first")
        await asyncio.sleep(6)

    run(main)
    assert order == ["first", *range(50)]


def test_timeouts_tasks_and_groups_work_as_ever():
    async def slow():
        await asyncio.sleep(100)

    async def main(loop):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await slow()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(slow())
            quick = tasks.create_task(asyncio.sleep(1, "done"))
        return loop.time(), quick.result()

    assert run(main) == (103.0, "done")


def test_a_cancelled_timer_does_not_hold_time_back():
    async def main(loop):
        for _ in range(5_000):
            loop.call_later(9_999, lambda: None).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert run(main) == 1.0


def test_waiting_for_what_never_comes_is_an_error():
    async def main(loop):
        await loop.create_future()

    with pytest.raises(Stalled):
        run(main)


def test_a_livelock_is_an_error(monkeypatch):
    monkeypatch.setattr("antiphon.testing.virtual_time.TURNS_WITHOUT_TIME", 1000)

    async def main(loop):
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Stalled):
        run(main)


@pytest.mark.parametrize(
    "reach",
    [
        lambda: asyncio.to_thread(time.sleep, 0),
        lambda: asyncio.open_connection("localhost", 1),
        lambda: asyncio.create_subprocess_exec("true"),
    ],
)
def test_the_real_world_is_out_of_reach(reach):
    async def main(loop):
        await reach()

    with pytest.raises(NotImplementedError):
        run(main)


def test_an_exception_that_nobody_takes_is_kept_for_the_run_to_see():
    async def main(loop):
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)
        return loop.problems

    (problem,) = run(main)
    assert isinstance(problem["exception"], ZeroDivisionError)


# --- machines --------------------------------------------------------------------------------


async def ticking(loop, ticks, name):
    while True:
        await asyncio.sleep(1)
        ticks.append((name, loop.time()))


def test_a_frozen_host_stands_still_and_the_others_do_not():
    ticks = []

    async def main(loop):
        one, other = Host("one", loop), Host("other", loop)
        one.start(ticking(loop, ticks, "one"))
        other.start(ticking(loop, ticks, "other"))
        await asyncio.sleep(2.5)
        one.freeze()
        await asyncio.sleep(5)
        one.thaw()
        await asyncio.sleep(2.2)
        one.kill()
        other.kill()
        await asyncio.sleep(1)
        assert not one.alive
        assert not other.alive

    run(main)
    assert [at for name, at in ticks if name == "one"] == [1, 2, 7.5, 8.5, 9.5]
    assert [at for name, at in ticks if name == "other"] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_what_became_due_while_frozen_runs_in_its_order_and_late():
    seen = []

    async def main(loop):
        host = Host("host", loop)

        async def work():
            loop.call_later(3, seen.append, "late")
            loop.call_later(2, seen.append, "early")

        host.start(work())
        await asyncio.sleep(1)
        host.freeze()
        await asyncio.sleep(10)
        assert seen == []
        host.thaw()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    run(main)
    assert seen == ["early", "late"]


def test_tasks_belong_to_the_host_of_whoever_started_them():
    async def child():
        return current_host()

    async def parent():
        return await asyncio.create_task(child())

    async def main(loop):
        host = Host("host", loop)
        return host, await host.start(parent()), current_host()

    host, inside, outside = run(main)
    assert inside is host
    assert outside is None


def test_killing_ends_every_task_of_a_host_even_a_frozen_one():
    ended = []

    async def work(name):
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append(name)

    async def main(loop):
        host = Host("host", loop)
        for name in "abc":
            host.start(work(name))
        await asyncio.sleep(1)
        host.freeze()
        host.kill()
        await asyncio.sleep(1)
        return host.alive

    assert run(main) == []
    assert ended == ["a", "b", "c"]


# --- clocks and chance -----------------------------------------------------------------------


def test_a_clock_is_off_runs_fast_and_can_be_stepped_and_corrected():
    async def main(loop):
        clock = HostClock(loop, epoch_ms=1_000_000, skew_ms=500, rate=0.01)
        await asyncio.sleep(100)
        seen = [clock.now_ms(), clock.boot_s(), round(clock.error_ms)]
        clock.step(-3_000)
        seen += [clock.now_ms(), clock.boot_s()]
        clock.correct()
        return [*seen, clock.now_ms(), clock.now_ns()]

    assert run(main) == [
        1_101_500,
        101.0,
        1_500,
        1_098_500,
        101.0,
        1_100_000,
        1_100_000 * 1_000_000,
    ]


def test_entropy_is_its_label():
    one, same, other = SeededEntropy("1/a"), SeededEntropy("1/a"), SeededEntropy("1/b")
    assert [one.random(), one.token(8)] == [same.random(), same.token(8)]
    assert one.token(8) != other.token(8)


def test_a_clock_whose_rate_changes_does_not_jump_and_is_set_right_again():
    loop = new_loop()
    clock = HostClock(loop, epoch_ms=1_000_000)

    async def story():
        await asyncio.sleep(10)
        before = (clock.now_ms(), clock.boot_s())
        clock.run_at(0.2)
        assert (clock.now_ms(), clock.boot_s()) == before
        await asyncio.sleep(10)
        assert clock.boot_s() == pytest.approx(22)
        assert clock.error_ms == pytest.approx(2_000)
        clock.run_at(0.0)
        clock.correct()
        await asyncio.sleep(10)
        assert clock.error_ms == pytest.approx(0)
        assert clock.boot_s() == pytest.approx(32)

    loop.run_until_complete(story())
