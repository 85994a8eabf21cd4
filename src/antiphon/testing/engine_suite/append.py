"""Writing to the log: order, compare-and-set, message ids."""

# A test's name states the behaviour; expected values are literal.
# ruff: noqa: D102, PLR2004

from __future__ import annotations

import asyncio
import time

from antiphon.errors import IdTaken, LostRace, OutcomeUnknown, Rejected
from antiphon.ports import APPENDS_AT_ONCE, Append, Engine
from antiphon.testing.engine_suite.harness import EngineSuite, persist, refused, seqs, whole_lane

EVERY_BYTE = bytes(range(256))
CLOCK_SLACK_MS = 60_000


class AppendSuite(EngineSuite):
    """What an appended record is, and who may append."""

    async def test_a_record_reads_back_as_it_was_stored(self) -> None:
        async with self.site() as site:
            engine, other = await site.connect_many(2)
            before_ms = time.time_ns() // 1_000_000
            seq = await site.append(engine, site.job(1), EVERY_BYTE)
            record = await other.log.fetch(seq)
            assert record is not None
            assert (record.seq, record.subject, record.payload) == (seq, site.job(1), EVERY_BYTE)
            assert abs(record.commit_ms - before_ms) < CLOCK_SLACK_MS
            assert (await other.log.read(0, limit=10)).records == [record]
            assert await other.log.last() == record
            assert await engine.log.fetch(seq) == record

    async def test_sequences_begin_at_one_and_rise_by_one(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            assert await site.announce(engine, range(5)) == [1, 2, 3, 4, 5]

    async def test_an_empty_payload_is_a_record(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            seq = await site.append(engine, site.job(1), b"")
            record = await engine.log.fetch(seq)
            assert record is not None
            assert record.payload == b""

    async def test_compare_and_set_against_nothing_succeeds_once(self) -> None:
        async with self.site() as site:
            first, second = await site.connect_many(2)
            assert await site.append(first, site.job(1), b"first") == 1
            for _ in range(3):  # the same question always gets the same answer
                with refused(LostRace):
                    await site.append(second, site.job(1), b"second")
            assert await site.append(second, site.job(1), b"second", after=1) == 2

    async def test_compare_and_set_names_the_last_sequence_on_the_subject(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.append(engine, site.job(1))
            await site.append(engine, site.job(2))
            await site.append(engine, site.job(1), after=1)
            for wrong in (0, 1, 2, 4, 1_000_000):
                with refused(LostRace):
                    await site.append(engine, site.job(1), after=wrong)
            assert await site.append(engine, site.job(1), after=3) == 4

    async def test_a_lost_race_stores_nothing(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.append(engine, site.job(1), b"kept")
            with refused(LostRace):
                await site.append(engine, site.job(1), b"lost")
            page = await engine.log.read(0, limit=10)
            assert [record.payload for record in page.records] == [b"kept"]

    async def test_of_racing_appenders_exactly_one_wins(self) -> None:
        rounds, racers = 25, 4
        async with self.site() as site:
            engines = await site.connect_many(racers)

            async def race(engine: Engine, name: int, number: int) -> int | None:
                try:
                    return await site.append(engine, site.job(number), f"racer {name}".encode())
                except LostRace:
                    return None

            for number in range(rounds):
                runs = [race(engine, name, number) for name, engine in enumerate(engines)]
                outcomes = await asyncio.gather(*runs)
                winners = [name for name, seq in enumerate(outcomes) if seq is not None]
                assert len(winners) == 1, outcomes
                lane = await whole_lane(engines[number % racers].log, [site.job(number)])
                assert [record.payload for record in lane] == [f"racer {winners[0]}".encode()]
            last = await engines[0].log.last()
            assert last is not None
            assert last.seq == rounds

    async def test_concurrent_appends_get_sequences_without_gaps(self) -> None:
        count = 200
        async with self.site() as site:
            engines = await site.connect_many(2)
            given = await asyncio.gather(
                *(site.append(engines[n % 2], site.job(n), b"%d" % n) for n in range(count))
            )
            assert sorted(given) == list(range(1, count + 1))
            for n in (0, count // 2, count - 1):
                record = await engines[0].log.fetch(given[n])
                assert record is not None
                assert record.payload == b"%d" % n

    async def test_a_stored_record_never_changes(self) -> None:
        async with self.site() as site:
            engine, reader = await site.connect_many(2)
            first = await site.append(engine, site.job(1), b"first", message_id="one")
            stored = await reader.log.fetch(first)
            second = await site.append(engine, site.job(1), b"second", after=first)
            with refused(LostRace):
                await site.append(engine, site.job(1), b"instead")
            with refused(IdTaken):
                await site.append(engine, site.job(1), b"instead", message_id="one", after=second)
            assert await reader.log.fetch(first) == stored
            assert seqs((await reader.log.read(0, limit=10)).records) == [first, second]

    async def test_nothing_is_stored_outside_the_meshs_own_subjects(self) -> None:
        async with self.site() as site, self.site() as other_site:
            engine = await site.connect()
            await other_site.connect()
            root = f"ap.{site.mesh}"
            for subject in (other_site.job(1), "ap.job", root, f"{root}.job.*", f"{root}.>"):
                with refused(Rejected):
                    await site.append(engine, subject)
            assert await engine.log.last() is None

    async def test_meshes_on_one_server_do_not_touch(self) -> None:
        async with self.site() as site, self.site() as other_site:
            here = await site.connect()
            there = await other_site.connect()
            await site.append(here, site.job(1), b"here")
            assert await there.log.last() is None
            assert await other_site.append(there, other_site.job(1), b"there") == 1


class AppendManySuite(EngineSuite):
    """Records that are sent together, and answered each for itself."""

    async def test_each_record_has_its_own_answer_in_its_own_place(self) -> None:
        for filler in (0, 60):  # few and many may take different ways to the engine
            async with self.site() as site:
                engine, other = await site.connect_many(2)
                taken = await site.append(other, site.job(1), b"taken", message_id="taken")
                records = [
                    Append(site.job(10), b"first", site.fresh_id(), 0),
                    Append(site.job(1), b"race", site.fresh_id(), 0),
                    Append(site.job(1), b"behind", site.fresh_id(), taken),
                    Append("ap.elsewhere.job", b"outside", site.fresh_id(), 0),
                    Append(site.job(11), b"other bytes", "taken", 0),
                    Append(site.job(12), b"last", site.fresh_id(), 0),
                    *(Append(site.job(n), b"", site.fresh_id(), 0) for n in range(20, 20 + filler)),
                ]
                answers = await engine.log.append_many(records)
                kinds = (int, LostRace, int, Rejected, IdTaken, *[int] * (1 + filler))
                assert [type(one) for one in answers] == list(kinds)
                for record, seq in zip(records, answers, strict=True):
                    if isinstance(seq, int):
                        found = await other.log.fetch(seq)
                        assert found is not None
                        assert (found.subject, found.payload) == (record.subject, record.payload)
                stored = (await other.log.read(0, limit=100)).records
                assert len(stored) == 4 + filler

    async def test_many_without_a_problem_are_all_stored_as_they_were_given(self) -> None:
        async with self.site() as site:
            engine, other = await site.connect_many(2)
            records = [
                Append(site.job(n), b"%d" % n * 40, site.fresh_id(), 0)
                for n in range(APPENDS_AT_ONCE)
            ]
            answers = await engine.log.append_many(records)
            assert sorted(one for one in answers if isinstance(one, int)) == [
                *range(1, len(records) + 1)
            ]
            lanes = await other.log.read_lanes([[one.subject] for one in records[:100]])
            for record, seq, lane in zip(records, answers, lanes, strict=False):
                assert lane is not None
                assert [(one.seq, one.payload) for one in lane] == [(seq, record.payload)]
            # The compare-and-set holds behind them as behind any other record.
            first = answers[0]
            assert isinstance(first, int)
            with refused(LostRace):
                await site.append(other, site.job(0))
            assert await site.append(other, site.job(0), after=first) == len(records) + 1

    async def test_what_was_sent_together_can_be_sent_again_in_any_grouping(self) -> None:
        async with self.site() as site:
            engine, other = await site.connect_many(2)
            records = [Append(site.job(n), b"x", site.fresh_id(), 0) for n in range(60)]
            answers = await engine.log.append_many(records)
            assert await other.log.append_many(records) == answers
            assert await engine.log.append_many(records[:7]) == answers[:7]
            one = records[30]
            again = await site.append(engine, one.subject, b"x", message_id=one.message_id)
            assert again == answers[30]
            assert len((await other.log.read(0, limit=200)).records) == len(records)

    async def test_of_two_on_one_subject_one_is_stored(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            records = [Append(site.job(n), b"x", site.fresh_id(), 0) for n in range(60)]
            records[40] = Append(site.job(5), b"second", site.fresh_id(), 0)
            answers = await engine.log.append_many(records)
            refusals = [one for one in answers if not isinstance(one, int)]
            assert [type(one) for one in refusals] == [LostRace]
            assert isinstance(answers[40], LostRace) or isinstance(answers[5], LostRace)

    async def test_nothing_is_nothing(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            assert await engine.log.append_many([]) == []


class MessageIdSuite(EngineSuite):
    """Storing something again, on purpose or not."""

    async def test_the_same_bytes_under_the_same_id_return_the_first_sequence(self) -> None:
        async with self.site() as site:
            first, second = await site.connect_many(2)
            seq = await site.append(first, site.job(1), b"once", message_id="m")
            await site.append(first, site.job(2))
            for engine in (first, second):
                again = await site.append(engine, site.job(1), b"once", message_id="m")
                assert again == seq
            assert len((await first.log.read(0, limit=10)).records) == 2

    async def test_other_bytes_under_the_same_id_are_refused(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.append(engine, site.job(1), b"these", message_id="m")
            with refused(IdTaken):
                await site.append(engine, site.job(1), b"those", message_id="m", after=1)
            with refused(IdTaken):
                await site.append(engine, site.job(2), b"these", message_id="m")
            assert len((await engine.log.read(0, limit=10)).records) == 1

    async def test_the_id_is_looked_at_before_the_compare_and_set(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            seq = await site.append(engine, site.job(1), b"these", message_id="m")
            await site.append(engine, site.job(1), b"later", after=seq)
            assert await site.append(engine, site.job(1), b"these", message_id="m", after=77) == seq
            with refused(IdTaken):
                await site.append(engine, site.job(1), b"those", message_id="m", after=77)

    async def test_a_lost_race_leaves_the_id_free(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            await site.append(engine, site.job(1), b"first")
            with refused(LostRace):
                await site.append(engine, site.job(1), b"second", message_id="m")
            seq = await site.append(engine, site.job(1), b"second", message_id="m", after=1)
            assert seq == 2

    async def test_racing_twins_are_stored_once(self) -> None:
        async with self.site() as site:
            engines = await site.connect_many(3)
            for number in range(10):
                given = await asyncio.gather(
                    *(
                        site.append(engine, site.job(number), b"twin", message_id=f"m{number}")
                        for engine in engines
                    )
                )
                assert given == [number + 1] * len(engines)

    async def test_too_large_a_record_is_refused_and_nothing_breaks(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            with refused(Rejected) as caught:
                await site.append(engine, site.job(1), bytes(9 * 1024 * 1024))
            assert isinstance(caught.error, Rejected)
            assert caught.error.reason == "too_large"
            assert await site.append(engine, site.job(1)) == 1

    async def test_an_append_that_timed_out_may_be_stored(self) -> None:
        async with self.site(own_server=True) as site:
            engine = await site.connect()
            append = engine.log.append
            async with site.harness.stalled_server():
                with refused(OutcomeUnknown):
                    await append(site.job(1), b"x", message_id="m", expected_last=0, timeout_s=0.3)
            seq = await persist(lambda: append(site.job(1), b"x", message_id="m", expected_last=0))
            assert seq == 1
            lane = await persist(lambda: whole_lane(engine.log, [site.job(1)]))
            assert [record.payload for record in lane] == [b"x"]
            assert seqs(lane) == [seq]
