"""The memory engine's own promises: its faults, its clock, and that idling is free."""

import asyncio
from collections import defaultdict, deque

import pytest

from antiphon.engines.memory import MemoryEngine, MemoryServer, follower, pull_queue
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.errors import Held, IdTaken, LostRace, OutcomeUnknown, Unavailable

MESH = "m"
SUBJECT = "ap.m.jobs.1.render.job"
CALLS = "ap.m.jobs.1.render.*"
WAIT_S = 0.1

pytestmark = pytest.mark.virtual_time


class HandClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def boot_s(self) -> float:
        return self.ms / 1000


class Scripted:
    """Fates in the order in which they were written down; fine after that."""

    def __init__(self, **fates: list[Fate]) -> None:
        self.left = defaultdict(deque, {name: deque(given) for name, given in fates.items()})

    def _next(self, name: str) -> Fate:
        return self.left[name].popleft() if self.left[name] else FINE

    def request(self, what: str) -> Fate:
        return self._next(what)

    def delivery(self) -> Fate:
        return self._next("delivery")

    def notice(self) -> Fate:
        return self._next("notice")

    def bus(self) -> Fate:
        return self._next("bus")

    def reconnect(self) -> Fate:
        return self._next("reconnect")


def pair(**fates: list[Fate]) -> tuple[MemoryEngine, MemoryEngine, MemoryServer]:
    """A connection with faults, one without, and their server."""
    server = MemoryServer(HandClock())
    shaky = MemoryEngine(server, MESH, faults=Scripted(**fates), loan_s=WAIT_S)
    return shaky, MemoryEngine(server, MESH, loan_s=WAIT_S), server


async def append(engine: MemoryEngine, subject: str = SUBJECT, *, after: int = 0) -> int:
    return await engine.log.append(
        subject, b"x", message_id=subject, expected_last=after, timeout_s=WAIT_S
    )


async def test_a_lost_request_is_unknown_and_was_not_stored() -> None:
    shaky, steady, _ = pair(append=[Fate(lost=True)])
    with pytest.raises(OutcomeUnknown):
        await append(shaky)
    assert await steady.log.last() is None


async def test_a_late_request_is_unknown_and_is_stored_afterwards() -> None:
    shaky, steady, _ = pair(append=[Fate(delay_s=2 * WAIT_S)])
    with pytest.raises(OutcomeUnknown):
        await append(shaky)
    assert await steady.log.last() is None
    await asyncio.sleep(2 * WAIT_S)
    assert await steady.log.last() is not None


@pytest.mark.parametrize("fate", [Fate(answer_lost=True), Fate(answer_delay_s=2 * WAIT_S)])
async def test_a_lost_answer_is_unknown_although_it_was_stored(fate) -> None:
    shaky, steady, _ = pair(append=[fate])
    with pytest.raises(OutcomeUnknown):
        await append(shaky)
    assert await steady.log.last() is not None
    assert await append(shaky) == 1


async def test_a_request_that_arrives_twice_is_stored_once() -> None:
    shaky, steady, _ = pair(append=[Fate(twice=True)])
    assert await append(shaky) == 1
    assert len((await steady.log.read(0, limit=9)).records) == 1


async def test_a_lagging_replica_misses_the_newest_and_confirms_nothing() -> None:
    lagging = [Fate(lag=1)]
    shaky, steady, _ = pair(read=lagging, last=lagging, fetch=lagging, confirm=lagging)
    await append(steady)
    assert (await shaky.log.read(0, limit=9)).records == []
    assert await shaky.log.last() is None
    assert await shaky.log.fetch(1) is None
    with pytest.raises(Unavailable):
        await shaky.log.confirm(">", after=0, upto=1)
    assert len(await shaky.log.confirm(">", after=0, upto=1)) == 1


async def test_what_is_in_flight_when_the_server_dies_is_unknown_at_once() -> None:
    shaky, _, server = pair(append=[Fate(delay_s=9)], reconnect=[Fate(delay_s=WAIT_S)])
    sending = asyncio.ensure_future(
        shaky.log.append("ap.m.x", b"", message_id="m", expected_last=0)
    )
    await asyncio.sleep(WAIT_S / 4)
    server.kill()
    with pytest.raises(OutcomeUnknown):
        await sending
    assert not shaky.connected
    with pytest.raises(Unavailable) as caught:
        await append(shaky)
    assert not isinstance(caught.value, OutcomeUnknown), "nothing was sent"
    server.start()
    assert not shaky.connected
    await asyncio.sleep(2 * WAIT_S)
    assert shaky.connected


async def test_a_lost_delivery_runs_out_and_its_credit_comes_back() -> None:
    shaky, steady, _ = pair(delivery=[Fate(lost=True)])
    await append(steady)
    async with shaky.log.work(CALLS, name="q") as queue:
        queue.grant(1)
        assert queue.credits == 1
        async with asyncio.timeout(5):
            assert (await queue.next()).deliveries == 2
        assert queue.credits == 0


async def test_a_late_delivery_finds_its_loan_over() -> None:
    shaky, steady, _ = pair(delivery=[Fate(delay_s=2 * WAIT_S)])
    await append(steady)
    async with shaky.log.work(CALLS, name="q") as slow, steady.log.work(CALLS, name="q") as fast:
        slow.grant(1)
        fast.grant(1)
        async with asyncio.timeout(5):
            assert (await fast.next()).deliveries == 2
            assert (await slow.next()).deliveries == 1


@pytest.mark.parametrize("fate", [Fate(lost=True), Fate(delay_s=WAIT_S)])
async def test_a_follower_repairs_a_lost_or_late_notice(fate, monkeypatch) -> None:
    monkeypatch.setattr(follower, "REPAIR_S", WAIT_S)
    shaky, steady, _ = pair(notice=[fate])
    async with shaky.log.follow(0) as batches, asyncio.timeout(5):
        await append(steady)
        begun = asyncio.get_running_loop().time()
        (record,) = await anext(batches)
        assert record.seq == 1
        assert asyncio.get_running_loop().time() - begun > WAIT_S / 2


async def test_a_gap_in_the_notices_is_closed_by_the_next() -> None:
    shaky, steady, _ = pair(notice=[Fate(lost=True)])
    async with shaky.log.follow(0) as batches, asyncio.timeout(1):
        await append(steady, "ap.m.jobs.job.render.1")
        await append(steady, "ap.m.jobs.job.render.2")
        assert [record.seq for record in await anext(batches)] == [1, 2]


async def test_bus_messages_get_lost() -> None:
    shaky, steady, _ = pair(bus=[Fate(lost=True), Fate(delay_s=WAIT_S)])
    async with shaky.bus.subscribe("pulse") as heard, asyncio.timeout(5):
        for payload in (b"lost", b"late", b"fine"):
            await steady.bus.publish("pulse", payload)
        assert [(await anext(heard)).payload for _ in range(2)] == [b"fine", b"late"]


async def test_a_crash_gives_nothing_back() -> None:
    shaky, steady, _ = pair()
    await append(steady)
    async with shaky.log.work(CALLS, name="q") as dead, steady.log.work(CALLS, name="q") as queue:
        dead.grant(5)
        shaky.crash()
        queue.grant(1)
        with pytest.raises(Unavailable):
            await dead.next()
        begun = asyncio.get_running_loop().time()
        async with asyncio.timeout(5):
            assert (await queue.next()).deliveries == 2
        assert asyncio.get_running_loop().time() - begun > WAIT_S / 2


async def test_a_paused_node_loses_its_loan_and_its_requests_arrive_later() -> None:
    shaky, steady, _ = pair()
    await append(steady)
    async with shaky.log.work(CALLS, name="q") as mine, steady.log.work(CALLS, name="q") as queue:
        mine.grant(1)
        delivery = await mine.next()
        shaky.pause()
        delivery.ack()
        sending = asyncio.ensure_future(append(shaky, "ap.m.jobs.job.render.1"))
        queue.grant(1)
        async with asyncio.timeout(5):
            assert (await queue.next()).deliveries == 2
        with pytest.raises(OutcomeUnknown):
            await sending
        assert len((await steady.log.read(0, limit=9)).records) == 1
        shaky.resume()
        assert len((await steady.log.read(0, limit=9)).records) == 2
        queue.grant(1)
        with pytest.raises(TimeoutError):  # the late ack settled what another held
            async with asyncio.timeout(3 * WAIT_S):
                await queue.next()


async def test_a_message_id_is_forgotten_after_the_window_but_not_a_writers_own_record() -> None:
    server = MemoryServer(HandClock(), dedupe_window_s=120)
    engine = MemoryEngine(server, MESH)
    assert await append(engine) == 1
    server.clock.ms += 119_999
    with pytest.raises(IdTaken):
        await engine.log.append(SUBJECT, b"other", message_id=SUBJECT, expected_last=1)
    server.clock.ms += 1
    assert await append(engine) == 1, "found again at the place that it named"
    with pytest.raises(LostRace):
        await engine.log.append(SUBJECT, b"other", message_id=SUBJECT, expected_last=0)
    assert await append(engine, after=1) == 2, "the window is over and the place is free"


async def test_a_lease_ends_by_the_servers_clock() -> None:
    server = MemoryServer(HandClock())
    engine = MemoryEngine(server, MESH)
    entry = await engine.leases.create("k", b"", ttl_ms=1_000)
    server.clock.ms += 999
    entry = await engine.leases.renew(entry, b"", ttl_ms=1_000)
    server.clock.ms += 999
    with pytest.raises(Held):
        await engine.leases.create("k", b"", ttl_ms=1_000)
    server.clock.ms += 1
    assert await engine.leases.get("k") is None


async def test_truncating_the_log_takes_its_ids_loans_and_subjects_along() -> None:
    server = MemoryServer(HandClock())
    engine = MemoryEngine(server, MESH)
    await append(engine)
    await append(engine, "ap.m.jobs.1.render.other")
    async with engine.log.work(CALLS, name="q") as queue:
        queue.grant(9)
        for _ in range(2):
            await queue.next()
        server.truncate(MESH, 1)
        assert await append(engine, "ap.m.jobs.1.render.other") == 2
        async with asyncio.timeout(1):
            assert (await queue.next()).record.seq == 2


async def test_a_restored_queue_hands_out_again_what_was_unsettled() -> None:
    server = MemoryServer(HandClock())
    engine = MemoryEngine(server, MESH)
    for n in range(3):
        await append(engine, f"ap.m.jobs.1.render.{n}")
    async with engine.log.work(CALLS, name="q") as queue:
        queue.grant(9)
        held, settled, late = [await queue.next() for _ in range(3)]
        settled.ack()
        images = server.snapshot()
        late.ack()
        server.restore(images)
        async with asyncio.timeout(1):
            again = [await queue.next() for _ in range(2)]
    assert [(one.record.seq, one.deliveries) for one in again] == [
        (held.record.seq, 2),
        (late.record.seq, 2),
    ]


async def test_a_connection_on_its_way_back_gives_up_when_the_server_dies_again() -> None:
    back = [Fate(delay_s=WAIT_S), Fate(delay_s=WAIT_S)]
    shaky, _, server = pair(reconnect=back)
    for _ in range(2):
        server.kill()
        server.start()
    await asyncio.sleep(WAIT_S / 2)
    assert not shaky.connected
    await asyncio.sleep(WAIT_S)
    assert shaky.connected


async def test_a_lost_request_for_work_is_asked_again(monkeypatch) -> None:
    monkeypatch.setattr(pull_queue, "ASK_AGAIN_S", WAIT_S)
    shaky, steady, _ = pair(grant=[Fate(lost=True), Fate(lost=True)])
    await append(steady)
    async with shaky.log.work(CALLS, name="q") as queue, asyncio.timeout(5):
        queue.grant(1)
        assert (await queue.next()).deliveries == 1


@pytest.mark.exact_times
async def test_waiting_schedules_nothing() -> None:
    _, engine, _ = pair()
    loop = asyncio.get_running_loop()
    before = len(loop._timers)
    async with (
        engine.log.follow(0) as batches,
        engine.bus.subscribe(">") as heard,
        engine.log.work(CALLS, name="q") as queue,
    ):
        queue.grant(5)
        await engine.leases.create("k", b"", ttl_ms=1_000)
        waits = [asyncio.ensure_future(one) for one in (anext(batches), anext(heard), queue.next())]
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(loop._timers) == before
        assert not loop._ready
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
