"""Who is being answered, with how much, and what it took."""

import asyncio
import threading
import time

import pytest
from msgspec.structs import replace

from antiphon.errors import RateLimited, Rejected
from antiphon.guard import Guard, Limits, Who, in_thread, spend
from antiphon.guard import guard as guards
from tests.patience import NEVER_S, PATIENCE_S

LIMITS = Limits(
    room="desk", of_party=4, in_all=8, request_bytes=1_000, seconds=PATIENCE_S, work_s=PATIENCE_S
)
ME, OTHER = Who(party="me"), Who(party="other")
STRANGER = Who(party="address 192.0.2.1", is_stranger=True)


def busy(seconds: float) -> None:
    """Use this thread's processor time."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


async def work(seconds: float) -> str:
    busy(seconds)
    return "done"


def rest_s(guard: Guard, who: Who = ME) -> float:
    return guard.rest_s(who)


async def test_a_request_holds_its_place_until_it_leaves_once():
    guard = Guard()
    visits = [guard.admit(LIMITS, ME) for _ in range(4)]
    with pytest.raises(RateLimited):
        guard.admit(LIMITS, ME)
    with guard.admit(LIMITS, OTHER):
        assert guard.in_hand(LIMITS, OTHER) == 1
    assert guard.in_hand(LIMITS, OTHER) == 0
    for visit in visits:
        visit.leave()
        visit.leave()
    assert guard.in_hand(LIMITS, ME) == 0
    guard.admit(LIMITS, ME).leave()


async def test_bytes_in_hand_are_counted_over_all_rooms(monkeypatch):
    monkeypatch.setattr(guards, "PARTY_BYTES", 1_000)
    guard, room = Guard(), Limits(room="another", of_party=9, in_all=9, request_bytes=9, seconds=9)
    with guard.admit(LIMITS, ME, 600) as visit:
        with pytest.raises(RateLimited):
            guard.admit(room, ME, 600)
        with pytest.raises(RateLimited):
            visit.hold(600)
        visit.hold(300)
        guard.admit(room, OTHER, 600).leave()
    guard.admit(room, ME, 1_000).leave()


async def test_what_an_answer_took_is_counted_whatever_room_it_was_in():
    guard = Guard(lambda: 0.0)
    with guard.admit(LIMITS, ME) as visit:
        assert await visit.work(work(0.3)) == "done"
        assert rest_s(guard) == 0.0
        await visit.work(work(0.4))
    assert rest_s(guard) > 0
    assert rest_s(guard, OTHER) == 0.0


async def test_what_waits_is_no_work():
    guard = Guard()
    with guard.admit(LIMITS, ME) as visit:
        for _ in range(20):
            await visit.work(asyncio.sleep(0.05))
    assert guard.pool_of(ME).work._used_s("me", guard.now_s()) < 0.05


async def test_a_request_waits_for_its_turn_and_a_long_wait_is_told_at_once():
    guard = Guard()
    guard.spend(ME, 0.52)
    with guard.admit(LIMITS, ME) as visit:
        begun_s = guard.now_s()
        assert await visit.work(work(0)) == "done"
        assert guard.now_s() - begun_s > 0.05
        guard.spend(ME, 60.0)
        with pytest.raises(RateLimited) as limited:
            await visit.work(work(0))
        assert limited.value.retry_s > 2.0
        await asyncio.wait_for(guard.admit(LIMITS, OTHER).work(work(0)), PATIENCE_S)


async def test_strangers_have_a_small_part_together_and_do_not_wait():
    guard = Guard()
    assert guard.admit(LIMITS, STRANGER)
    with guard.admit(LIMITS, Who(party="address 192.0.2.2", is_stranger=True)) as visit:
        with pytest.raises(RateLimited):
            guard.admit(LIMITS, Who(party="address 192.0.2.3", is_stranger=True))
        guard.spend(visit.who, 0.2)
        with pytest.raises(RateLimited):
            await visit.work(work(0))
    guard.admit(LIMITS, ME).leave()
    assert rest_s(guard) == 0.0


async def test_requests_that_come_together_see_what_the_last_one_cost():
    guard = Guard()
    with guard.admit(LIMITS, ME) as visit:
        await visit.work(work(0.2))
    begun = []

    async def noting(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0.3)

    visits = [guard.admit(LIMITS, ME) for _ in range(4)]
    asks = [asyncio.ensure_future(one.work(noting(n))) for n, one in enumerate(visits)]
    await asyncio.sleep(0.1)
    assert begun == [0, 1], "two are as much as is free; the others wait"
    await asyncio.gather(*asks)
    assert sorted(begun) == [0, 1, 2, 3], "it cost nothing, so they had their turn"


async def test_a_long_answer_rests_between_its_steps():
    guard = Guard()

    async def long() -> None:
        for _ in range(12):
            busy(0.1)
            await asyncio.sleep(0)

    begun_s = guard.now_s()
    with guard.admit(LIMITS, ME) as visit:
        await visit.work(long())
    assert guard.now_s() - begun_s > 2 * 1.2, "after its first half second it has a quarter"


async def test_an_answer_that_takes_too_much_ends_with_an_error_and_cleans_up():
    guard, cleaned = Guard(), []

    async def endless() -> None:
        try:
            while True:
                busy(0.01)
                await asyncio.sleep(0)
        finally:
            cleaned.append(True)

    with (
        guard.admit(replace(LIMITS, work_s=0.05), ME) as visit,
        pytest.raises(Rejected, match="one request may have") as refused,
    ):
        await visit.work(endless())
    assert refused.value.reason == "too_much"
    assert cleaned == [True]


async def test_what_an_answer_raises_and_its_cancellation_pass_through():
    guard = Guard()

    async def failing() -> None:
        await asyncio.sleep(0)
        raise KeyError("mine")

    with guard.admit(LIMITS, ME) as visit:
        with pytest.raises(KeyError):
            await visit.work(failing())
        ended, asked = asyncio.Event(), asyncio.Event()

        async def waiting() -> None:
            try:
                asked.set()
                await asyncio.sleep(NEVER_S)
            finally:
                ended.set()

        task = asyncio.ensure_future(visit.work(waiting()))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await visit.work(waiting())


@pytest.mark.processes
async def test_a_thread_counts_for_whoever_is_answered_and_ends_when_nobody_waits():
    guard, turns, is_over = Guard(), [], threading.Event()

    def endless(turn) -> None:
        try:
            while True:
                busy(0.001)
                turn()
                turns.append(1)
        finally:
            is_over.set()

    with guard.admit(LIMITS, ME) as visit:
        task = asyncio.ensure_future(visit.work(in_thread(endless)))
        while len(turns) < 10:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.to_thread(is_over.wait, PATIENCE_S)

    def some(turn) -> int:
        for _ in range(60):
            busy(0.01)
            turn()
        return 7

    with guard.admit(LIMITS, OTHER) as visit:
        assert await visit.work(in_thread(some)) == 7
    assert rest_s(guard, OTHER) > 0, "its processor time was counted"
    assert await in_thread(lambda _: 8) == 8, "also where nobody is answered"


async def test_what_others_did_for_an_answer_is_counted_too():
    guard = Guard()

    async def asks_the_engine() -> None:
        spend(5.0)

    spend(5.0)  # nobody is answered here
    with guard.admit(LIMITS, ME) as visit:
        await visit.work(asks_the_engine())
    assert rest_s(guard) > 0
    assert rest_s(guard, OTHER) == 0.0


async def test_a_paused_party_is_told_for_how_long():
    guard = Guard()
    guard.pause("me", 10.0, "it wrote 900 records within 4 s")
    with pytest.raises(RateLimited, match="paused for 10 s: it wrote 900 records") as limited:
        guard.require_unpaused("me")
    assert limited.value.retry_s == pytest.approx(10.0, abs=1)
    guard.require_unpaused("other")
    guard.pause("other", 0.0, "over")
    guard.require_unpaused("other")
