"""Reading the log: pages, lanes, confirmations, purges."""

# A test's name states the behaviour; expected values are literal.
# ruff: noqa: D102, PLR2004

from __future__ import annotations

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.record import subjects
from antiphon.errors import LostRace, Unavailable
from antiphon.testing.engine_suite.harness import (
    EngineSuite,
    Site,
    job_id,
    refused,
    seqs,
    whole_lane,
)

LONG_LANE = 1_100


class ReadSuite(EngineSuite):
    """Pages and single records."""

    async def test_an_empty_log_has_nothing(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            page = await engine.log.read(0, limit=10)
            assert page.records == []
            assert not page.more
            assert await engine.log.last() is None
            assert await engine.log.fetch(1) is None
            assert await whole_lane(engine.log, [site.job(1)]) == []

    async def test_pages_hold_every_record_once(self) -> None:
        count, limit = 25, 10
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(count))
            after, found, sizes = 0, [], []
            while True:
                page = await engine.log.read(after, limit=limit)
                found += seqs(page.records)
                sizes.append(len(page.records))
                if not page.more:
                    break
                after = found[-1]
            assert found == list(range(1, count + 1))
            assert sizes == [10, 10, 5]

    async def test_several_records_by_their_sequences_are_one_read(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(5))
            await engine.log.purge(site.call(2), upto=3)
            found = await engine.log.fetch_many([5, 1, 3, 2])
            assert sorted(seqs(found)) == [1, 2, 5]
            assert found[0] == await engine.log.fetch(found[0].seq)
            assert await engine.log.fetch_many([]) == []

    async def test_a_log_reaches_what_it_holds_or_has_passed(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(5))
            await engine.log.purge(site.call(2), upto=3)
            told = [await engine.log.reaches(seq) for seq in (1, 3, 5, 6)]
            assert told == [True, True, True, False]

    async def test_a_page_that_ends_with_the_log_has_no_more(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(4))
            page = await engine.log.read(0, limit=4)
            assert (seqs(page.records), page.more) == ([1, 2, 3, 4], False)
            page = await engine.log.read(4, limit=4)
            assert (seqs(page.records), page.more) == ([], False)
            page = await engine.log.read(99, limit=4)
            assert (seqs(page.records), page.more) == ([], False)

    async def test_a_long_read_may_come_in_shorter_pages(self) -> None:
        count = 1500
        async with self.site() as site:
            engine = await site.connect()
            await site.append_calls(engine, count)
            page = await engine.log.read(0, limit=5000)
            found = seqs(page.records)
            while page.more:
                page = await engine.log.read(found[-1], limit=5000)
                assert page.records, "there was to be more"
                found += seqs(page.records)
            assert found == list(range(1, count + 1))

    async def test_a_page_may_be_filtered(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            for n in range(6):
                await site.append(engine, site.job(n) if n % 2 else site.control(f"c{n}"))
            control = subjects.all_control(site.mesh)
            page = await engine.log.read(0, limit=2, subject=control)
            assert (seqs(page.records), page.more) == ([1, 3], True)
            page = await engine.log.read(3, limit=2, subject=control)
            assert (seqs(page.records), page.more) == ([5], False)
            page = await engine.log.read(0, limit=9, subject=f"ap.{site.mesh}.jobs.job.>")
            assert seqs(page.records) == [2, 4, 6]
            page = await engine.log.read(0, limit=9, subject=site.job(3))
            assert seqs(page.records) == [4]

    async def test_records_are_fetched_by_sequence(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(3))
            record = await engine.log.fetch(2)
            assert record is not None
            assert record.subject == site.call(1)
            assert await engine.log.fetch(4) is None
            last = await engine.log.last()
            assert last is not None
            assert last.seq == 3


class LaneSuite(EngineSuite):
    """Everything about one job."""

    async def _fill(self, site: Site) -> None:
        engine = await site.connect()
        mesh, one, two = site.mesh, job_id(1), job_id(2)
        for subject in (
            job_subjects.wait(mesh, "render", one),  # 1
            job_subjects.call(mesh, "low", "render", one),  # 2
            job_subjects.call(mesh, "normal", "render", two),  # 3: another job
            job_subjects.job(mesh, "render", one),  # 4
            job_subjects.job(mesh, "render.video", one),  # 5: another kind, the same id
            job_subjects.call(mesh, "high", "render", one),  # 6
            subjects.control(mesh, "rules"),  # 7
        ):
            await site.append(engine, subject)
        await site.append(engine, job_subjects.job(mesh, "render", one), after=4)  # 8

    async def test_a_lane_is_read_by_filters_with_wildcards(self) -> None:
        async with self.site() as site:
            await self._fill(site)
            engine = await site.connect()
            lane = await whole_lane(engine.log, [f"ap.{site.mesh}.jobs.*.render.{job_id(1)}"])
            assert seqs(lane) == [1, 2, 4, 6, 8]

    async def test_a_lane_is_read_by_its_literal_subjects(self) -> None:
        async with self.site() as site:
            await self._fill(site)
            engine = await site.connect()
            lane = await whole_lane(engine.log, job_subjects.lane(site.mesh, "render", job_id(1)))
            assert seqs(lane) == [1, 2, 4, 6, 8]

    async def test_kinds_below_are_other_lanes(self) -> None:
        async with self.site() as site:
            await self._fill(site)
            engine = await site.connect()
            filters = job_subjects.lane(site.mesh, "render.video", job_id(1))
            assert seqs(await whole_lane(engine.log, filters)) == [5]

    async def test_an_unknown_lane_is_empty(self) -> None:
        async with self.site() as site:
            await self._fill(site)
            engine = await site.connect()
            filters = job_subjects.lane(site.mesh, "render", job_id(9))
            assert await whole_lane(engine.log, filters) == []

    async def _bury(self, site: Site) -> list[int]:
        """A lane that is longer than a page: three calls among hundreds of other records."""
        engine = await site.connect()
        call, job = site.call(1), site.job(1)
        ends, last = {call: 0, job: 0}, 0
        for n in range(LONG_LANE):
            subject = call if n in {0, LONG_LANE // 2, LONG_LANE - 1} else job
            last = ends[subject] = await site.append(
                engine, subject, b"%d" % n, after=ends[subject]
            )
        return list(range(last - LONG_LANE + 1, last + 1))

    async def test_a_long_lane_comes_in_pages_that_join(self) -> None:
        async with self.site() as site:
            expected = await self._bury(site)
            engine = await site.connect()
            filters = [site.call(1), site.job(1)]
            pages = [seqs(page) async for page in engine.log.read_lane(filters)]
            assert len(pages) > 1
            assert all(pages)
            assert [seq for page in pages for seq in page] == expected

    async def test_a_lane_goes_on_where_it_was_left(self) -> None:
        async with self.site() as site:
            expected = await self._bury(site)
            engine = await site.connect()
            filters = [site.call(1), site.job(1)]
            for at in (0, 1, 2, 40, LONG_LANE - 3, LONG_LANE - 1, LONG_LANE):
                after = expected[at - 1] if at else 0
                assert seqs(await whole_lane(engine.log, filters, after=after)) == expected[at:]

    async def test_all_pages_of_a_lane_show_one_moment(self) -> None:
        async with self.site() as site:
            expected = await self._bury(site)
            engine, writer = await site.connect_many(2)
            found: list[int] = []
            async for page in engine.log.read_lane([site.call(1), site.job(1)]):
                found += seqs(page)
                if len(found) == len(page):
                    await site.append(writer, site.call(1), b"later", after=expected[-1])
                    await site.append(writer, site.job(1), b"later", after=expected[-2])
            assert found == expected

    async def test_a_writer_reads_its_own_lane(self) -> None:
        async with self.site() as site:
            engine, other = await site.connect_many(2)
            last = 0
            for n in range(20):
                last = await site.append(engine, site.job(1), b"%d" % n, after=last)
                lane = await whole_lane(other.log, [site.job(1)])
                assert lane[-1].seq == last


class ConfirmSuite(EngineSuite):
    """The read that may not be late."""

    async def test_it_sees_every_control_record_up_to_a_sequence_and_none_above(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            for n in range(9):
                await site.append(engine, site.control(f"c{n}") if n % 3 else site.job(n))
            control = subjects.all_control(site.mesh)
            confirm = engine.log.confirm
            assert seqs(await confirm(control, after=0, upto=9)) == [2, 3, 5, 6, 8, 9]
            assert seqs(await confirm(control, after=0, upto=5)) == [2, 3, 5]
            assert seqs(await confirm(control, after=3, upto=7)) == [5, 6]
            assert await confirm(control, after=6, upto=7) == []
            assert await confirm(control, after=9, upto=9) == []

    async def test_it_sees_what_another_connection_has_just_written(self) -> None:
        async with self.site() as site:
            writer, reader = await site.connect_many(2)
            for n in range(20):
                control = await site.append(writer, site.control(f"c{n}"))
                claim = await site.append(writer, site.job(n))
                found = await reader.log.confirm(
                    subjects.all_control(site.mesh), after=control - 1, upto=claim
                )
                assert seqs(found) == [control]

    async def test_it_does_not_answer_beyond_the_end(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.append(engine, site.control())
            with refused(Unavailable):
                await engine.log.confirm(subjects.all_control(site.mesh), after=0, upto=2)


class PurgeSuite(EngineSuite):
    """What the owner's archiver may do."""

    async def test_only_what_matches_up_to_the_sequence_goes(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            last = 0
            for _ in range(3):
                last = await site.append(engine, site.job(1), after=last)  # 1, 2, 3
            await site.append(engine, site.job(2))
            assert await engine.log.purge(site.job(1), upto=2) == 2
            assert seqs((await engine.log.read(0, limit=9)).records) == [3, 4]
            assert await engine.log.fetch(1) is None
            assert await engine.log.purge(site.job(1), upto=2) == 0

    async def test_all_subjects_of_a_lane_go_with_one_request(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(2))
            await site.append(engine, site.job(0))
            await site.append(engine, site.job(1))
            lane = f"ap.{site.mesh}.jobs.*.render.{job_id(0)}"
            assert await engine.log.purge(lane, upto=4) == 2
            assert seqs((await engine.log.read(0, limit=9)).records) == [2, 4]

    async def test_all_lanes_of_a_kind_go_below_a_sequence_and_no_other_kind(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(2))
            below = job_subjects.job(site.mesh, "render.video", job_id(0))
            await site.append(engine, below)  # 3
            await site.append(engine, site.job(0))
            await site.append(engine, site.job(1))
            assert await engine.log.purge(f"ap.{site.mesh}.jobs.*.render.*", upto=4) == 3
            assert seqs((await engine.log.read(0, limit=9)).records) == [3, 5]

    async def test_sequences_are_not_reused(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.announce(engine, range(3))
            assert await engine.log.purge(f"ap.{site.mesh}.>", upto=3) == 3
            assert await engine.log.last() is None
            assert await site.append(engine, site.job(9)) == 4

    async def test_a_purged_subject_is_empty_for_the_compare_and_set(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            seq = await site.append(engine, site.job(1))
            await site.append(engine, site.job(2))
            await engine.log.purge(site.job(1), upto=seq)
            with refused(LostRace):
                await site.append(engine, site.job(1), after=seq)
            assert await site.append(engine, site.job(1)) == 3
