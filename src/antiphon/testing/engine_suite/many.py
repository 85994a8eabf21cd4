"""Reading many lanes at once, and hints about what is written."""

# A test's name states the behaviour; expected values are literal.
# ruff: noqa: D102

from __future__ import annotations

import asyncio

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.errors import Unavailable
from antiphon.ports import LANES_AT_ONCE, SUBJECTS_AT_ONCE, Engine
from antiphon.testing.engine_suite.harness import (
    QUIET_S,
    EngineSuite,
    Site,
    job_id,
    refused,
    seqs,
    soon,
    whole_lane,
)


class ManyLanesSuite(EngineSuite):
    """Several lanes in a few reads."""

    async def test_lanes_read_together_are_what_each_is_alone(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            lanes = [job_subjects.lane(site.mesh, "render", job_id(n)) for n in range(6)]
            for number in range(5):
                await site.append(engine, site.call(number))
                last = 0
                for _ in range(number):  # 0 to 4 records on the job's own subject
                    last = await site.append(engine, site.job(number), after=last)
            together = await engine.log.read_lanes(lanes)
            assert together == [await whole_lane(engine.log, lane) for lane in lanes]
            assert together[5] == []

    async def test_a_long_lane_is_left_to_be_read_alone_and_others_are_not(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            last = 0
            for _ in range(300):
                last = await site.append(engine, site.job(0), after=last)
            await site.append(engine, site.job(1))
            found = await engine.log.read_lanes([[site.job(0)], [site.job(1)]])
            assert found[0] is None
            assert seqs(found[1] or []) == [301]

    async def test_a_full_read_of_lanes_fits(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            numbers = range(LANES_AT_ONCE)
            lanes = [job_subjects.lane(site.mesh, "render", job_id(n)) for n in numbers]
            for number in numbers:
                await site.append(engine, site.call(number))
            found = await engine.log.read_lanes(lanes)
            assert [seqs(lane or []) for lane in found] == [[n + 1] for n in numbers]
            assert await engine.log.read_lanes([]) == []

    async def test_the_newest_record_of_each_subject_is_one_read(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            first = await site.append(engine, site.job(0), b"claim")
            await site.append(engine, site.job(1), b"claim")
            await site.append(engine, site.job(0), b"end", after=first)
            asked = [site.job(n) for n in range(SUBJECTS_AT_ONCE)]
            found = {record.subject: record.payload for record in await engine.log.newest(asked)}
            assert found == {site.job(0): b"end", site.job(1): b"claim"}
            assert await engine.log.newest([]) == []


class Heard:
    """Hints as they came."""

    def __init__(self) -> None:
        self.hints: list[tuple[str, bytes]] = []
        self._more = asyncio.Event()

    def __call__(self, subject: str, payload: bytes) -> None:
        self.hints.append((subject, payload))
        self._more.set()

    async def until(self, *hint: object) -> None:
        """Wait for a hint."""
        while hint not in self.hints:
            self._more.clear()
            await soon(self._more.wait())


class HintSuite(EngineSuite):
    """Hints of a healthy engine."""

    async def _ready(self, site: Site, writer: Engine, reader: Engine, heard: Heard) -> None:
        """Until a subscription of the reader, made before, is known to be in place."""
        await reader.log.last()  # a round trip behind it
        await site.append(writer, site.control(), b"go")
        await heard.until(site.control(), b"go")

    async def test_what_is_written_on_a_subject_or_a_filter_is_told(self) -> None:
        async with self.site() as site:
            writer, reader = await site.connect_many(2)
            heard = Heard()
            with reader.log.hints(heard) as hints:
                assert hints.add(site.job(1))
                assert hints.add(site.job(1, kind="scan").replace(job_id(1), "*"))
                assert hints.add(site.control())
                await self._ready(site, writer, reader, heard)
                await site.append(writer, site.job(1), b"one")
                await site.append(writer, site.job(2), b"not asked for")
                await site.append(writer, site.job(7, kind="scan"), b"seven")
                await heard.until(site.job(7, kind="scan"), b"seven")
            assert [payload for _, payload in heard.hints] == [b"go", b"one", b"seven"]

    async def test_what_is_removed_is_told_no_more(self) -> None:
        async with self.site() as site:
            writer, reader = await site.connect_many(2)
            heard = Heard()
            with reader.log.hints(heard) as hints:
                hints.add(site.job(1))
                hints.add(site.control())
                await self._ready(site, writer, reader, heard)
                hints.remove(site.job(1))
                hints.remove(site.job(1))
                await reader.log.last()  # a round trip behind it
                await site.append(writer, site.job(1))
                await site.append(writer, site.control("other"))
                await asyncio.sleep(QUIET_S)
            assert [payload for _, payload in heard.hints] == [b"go"]

    async def test_a_closed_connection_is_found_by_checking(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            with engine.log.hints(lambda *_: None) as hints:
                hints.check()
                await engine.close()
                with refused(Unavailable):
                    hints.check()
