"""The memory engine under every fault at once, in virtual time, and its indexes against a scan."""

import asyncio
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.record.subjects import matches
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.engines.memory.filters import SubjectFilter
from antiphon.engines.memory.log import LogStore
from antiphon.errors import Unavailable
from antiphon.testing.host_clock import SeededEntropy
from antiphon.testing.virtual_time import VirtualLoop
from tests.engines.memory.random_faults import FaultRates, RandomFaults

MESH = "m"
CALLS = "ap.m.jobs.1.render.*"
JOBS = 150
STORM = FaultRates(
    request_lost=0.05,
    request_delayed=0.05,
    answer_lost=0.05,
    answer_delayed=0.05,
    request_twice=0.1,
    read_lags=0.1,
    delivery_lost=0.1,
    delivery_delayed=0.1,
    notice_lost=0.1,
    notice_delayed=0.1,
    bus_lost=0.1,
    bus_delayed=0.1,
)


class LoopClock:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.loop.time() * 1000)

    def boot_s(self) -> float:
        return self.loop.time()


class Storm:
    """Three workers, two followers and one writer, while the server comes and goes."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.server = MemoryServer(LoopClock(loop))
        self.seed = seed
        self.story: list[str] = []
        self.done: set[str] = set()
        self.followed: list[list[int]] = [[], []]

    def connect(self, name: str) -> MemoryEngine:
        faults = RandomFaults(SeededEntropy(f"{self.seed} {name}"), STORM)
        return MemoryEngine(self.server, MESH, faults=faults)

    async def run(self) -> None:
        tasks = [asyncio.ensure_future(self.work(n)) for n in range(3)]
        tasks += [asyncio.ensure_future(self.follow(n)) for n in range(2)]
        tasks.append(asyncio.ensure_future(self.break_things()))
        await self.write()
        async with asyncio.timeout(4 * 3600):
            while len(self.done) < JOBS or min(map(len, self.followed)) < JOBS:
                await asyncio.sleep(10)
        for task in tasks:
            assert not task.done(), task
            task.cancel()
        await asyncio.wait(tasks)

    async def write(self) -> None:
        engine = self.connect("writer")
        for n in range(JOBS):
            subject = f"ap.m.jobs.1.render.{n}"
            while True:
                await asyncio.sleep(1)
                try:
                    seq = await engine.log.append(subject, b"", message_id=subject, expected_last=0)
                except Unavailable as error:
                    self.story.append(f"{type(error).__name__} {n}")
                else:
                    self.story.append(f"{seq} {n}")
                    break

    async def work(self, number: int) -> None:
        engine = self.connect(f"worker {number}")
        while True:
            try:
                async with engine.log.work(CALLS, name="q") as queue:
                    while True:
                        queue.grant(1)
                        delivery = await queue.next()
                        await asyncio.sleep(5)
                        self.done.add(delivery.record.subject)
                        self.story.append(f"{number} did {delivery.record.seq}")
                        delivery.ack()
            except Unavailable:
                await asyncio.sleep(1)

    async def follow(self, number: int) -> None:
        engine = self.connect(f"follower {number}")
        async with engine.log.follow(0) as batches:
            async for batch in batches:
                for record in batch:
                    self.followed[number].append(record.seq)
                    self.story.append(f"{number} saw {record.seq}")

    async def break_things(self) -> None:
        while True:
            await asyncio.sleep(60)
            self.server.kill()
            await asyncio.sleep(7)
            self.server.start()


def storm(seed: int) -> Storm:
    loop = VirtualLoop()
    try:
        one = Storm(loop, seed)
        loop.run_until_complete(one.run())
    finally:
        loop.close()
    return one


@pytest.mark.parametrize("seed", range(5))
def test_a_storm_loses_nothing(seed) -> None:
    after = storm(seed)
    assert len(after.done) == JOBS
    assert after.followed == [list(range(1, JOBS + 1))] * 2, "each once, in order, none missing"


def test_one_seed_is_one_run() -> None:
    assert storm(7).story == storm(7).story
    assert storm(7).story != storm(8).story


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

    log = LogStore("ap.m", now_ns=lambda: 0, window_s=1)
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
