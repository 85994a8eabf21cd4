"""The memory engine's own promises: its faults, its clock, its indexes, and that idling is free."""

import asyncio
import random
from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.subjects import matches
from antiphon.engines.memory import (
    FINE,
    Fate,
    FaultRates,
    MemoryEngine,
    MemoryServer,
    RandomFaults,
    follow,
)
from antiphon.engines.memory.filters import SubjectFilter
from antiphon.engines.memory.log import LogStore
from antiphon.errors import AntiphonError, Held, IdTaken, LostRace, OutcomeUnknown, Unavailable

MESH = "m"
SUBJECT = "ap.m.call.1.render.job"
CALLS = "ap.m.call.1.render.*"
WAIT_S = 0.1


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


class Seeded:
    """An Entropy that repeats itself."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)

    def random(self) -> float:
        return self.source.random()

    def token(self, size: int) -> bytes:
        return self.source.randbytes(size)


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
    monkeypatch.setattr(follow, "REPAIR_S", WAIT_S)
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
        await append(steady, "ap.m.job.render.1")
        await append(steady, "ap.m.job.render.2")
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
        sending = asyncio.ensure_future(append(shaky, "ap.m.job.render.1"))
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
    assert await engine.leases.list("") == []


async def test_truncating_the_log_takes_its_ids_loans_and_subjects_along() -> None:
    server = MemoryServer(HandClock())
    engine = MemoryEngine(server, MESH)
    await append(engine)
    await append(engine, "ap.m.call.1.render.other")
    async with engine.log.work(CALLS, name="q") as queue:
        queue.grant(9)
        for _ in range(2):
            await queue.next()
        server.truncate(MESH, 1)
        assert await append(engine, "ap.m.call.1.render.other") == 2
        async with asyncio.timeout(1):
            assert (await queue.next()).record.seq == 2


async def test_waiting_schedules_nothing() -> None:
    _, engine, _ = pair()
    loop = asyncio.get_running_loop()
    before = len(loop._scheduled)
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
        assert len(loop._scheduled) == before
        assert not loop._ready
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


async def _storm(seed: int) -> list[str]:
    """Everything that one writer and one follower see in a storm."""
    server = MemoryServer(HandClock())
    rates = FaultRates(
        request_lost=0.1, answer_lost=0.1, request_twice=0.2, notice_lost=0.2, max_delay_s=0.001
    )
    writer = MemoryEngine(server, MESH, faults=RandomFaults(Seeded(seed), rates))
    seen = []
    for n in range(40):
        try:
            outcome = await writer.log.append(
                f"ap.m.x.{n % 7}", b"", message_id=f"{n}", expected_last=0, timeout_s=0.001
            )
        except AntiphonError as error:
            seen.append(type(error).__name__)
        else:
            seen.append(str(outcome))
    return seen


async def test_one_seed_is_one_run() -> None:
    assert await _storm(1) == await _storm(1)
    assert await _storm(1) != await _storm(2)


TOKENS = st.sampled_from(["call", "ctl", "job", "1", "a", "b", "c"])
TAILS = st.lists(TOKENS, min_size=1, max_size=4)
WILD_TAILS = st.lists(st.one_of(TOKENS, st.just("*")), min_size=1, max_size=4)


@given(
    stored=st.lists(TAILS, max_size=25),
    patterns=st.lists(st.tuples(WILD_TAILS, st.booleans()), max_size=5),
    purges=st.lists(st.tuples(WILD_TAILS, st.booleans(), st.integers(0, 25)), max_size=2),
    after=st.integers(0, 25),
    limit=st.integers(1, 25),
)
def test_every_index_finds_what_a_scan_finds(stored, patterns, purges, after, limit) -> None:
    def pattern_of(tail: list[str], is_open: bool) -> str:
        return ".".join(["ap.m", *tail, *([">"] if is_open else [])])

    log = LogStore("ap.m", now_ns=lambda: 0, window_s=1, max_payload=9)
    last = defaultdict(int)
    for number, tail in enumerate(stored):
        subject = ".".join(["ap.m", *tail])
        last[subject] = log.append(subject, b"", str(number), last[subject])
    records = {seq: log.at(seq) for seq in range(1, log.last_seq + 1)}
    for tail, is_open, upto in purges:
        pattern = pattern_of(tail, is_open)
        gone = [s for s, r in records.items() if s <= upto and matches(pattern, r.subject)]
        assert log.purge(SubjectFilter(pattern), upto) == len(gone)
        for seq in gone:
            del records[seq]
    assert log.count == len(records)
    for pattern in [">", "ap.m.>", *(pattern_of(*one) for one in patterns)]:
        wanted = SubjectFilter(pattern)
        expected = [r for s, r in records.items() if s > after and matches(pattern, r.subject)]
        page = log.page(wanted, after, log.last_seq, limit)
        assert page.records == expected[:limit]
        assert page.more == (len(expected) > limit)
        assert log.next_after(wanted, after)[0] == (expected[0] if expected else None)
