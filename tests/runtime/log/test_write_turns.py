"""Writes in turns: what goes together, and that the fate of one record is never another's."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobYield, YieldBody
from antiphon.core.families.jobs.state import State
from antiphon.core.record import signing
from antiphon.core.record.verdict import Verdict
from antiphon.errors import LostRace, OutcomeUnknown, Rejected, Unavailable
from antiphon.runtime.log import write_turns
from antiphon.runtime.log.write_turns import TOGETHER, UNDER_WAY, WriteTurns
from antiphon.runtime.log.writer import Intent, Policy, go_behind, own_record
from tests.runtime.meshes import KIND, a_mesh, call

CLAIM = Policy(foresees=True, insists=False)


class Spy:
    """A log that counts what is asked of it, and changes what becomes of records together."""

    def __init__(self, session) -> None:
        self._log, session.log = session.log, self
        self.asked: list[str] = []
        self.groups: list[int] = []
        self.first = None
        """Done before the next records that are sent together."""
        self.unheard: set[int] = set()
        """Places among the next records whose answer is lost."""
        self.lost: set[int] = set()
        """Places among the next records that never arrive."""
        self.is_away = self.is_unreadable = False
        self.behind = 0
        """How many of the next reads of several are answered by a copy without the newest."""

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self._log, name)

    async def append_many(self, records, **rest):
        self.asked.append("append_many")
        self.groups.append(len(records))
        first, self.first = self.first, None
        if first is not None:
            await first()
        if self.is_away:
            raise Unavailable("away")
        lost, unheard, self.lost, self.unheard = self.lost, self.unheard, set(), set()
        sent = [one for at, one in enumerate(records) if at not in lost]
        answers = iter(await self._log.append_many(sent, **rest))
        told = [
            OutcomeUnknown("lost") if at in lost else next(answers) for at in range(len(records))
        ]
        return [OutcomeUnknown("lost") if at in unheard else one for at, one in enumerate(told)]

    async def read_lanes(self, lanes):
        self.asked.append("read_lanes")
        if self.is_unreadable:
            raise Unavailable("nothing can be read")
        found = await self._log.read_lanes(lanes)
        return [one[:-1] for one in found] if self._is_behind() else found

    async def newest(self, subjects):
        self.asked.append("newest")
        found = await self._log.newest(subjects)
        return [] if self._is_behind() else found

    def _is_behind(self):
        self.behind -= 1
        return self.behind >= 0


@asynccontextmanager
async def a_writer(jobs=3):
    """Turns of one session, a spy on its log, claims of some jobs, and another session."""
    async with a_mesh("memory") as mesh, asyncio.TaskGroup() as tasks:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        ids = [(await call(session, number)).id for number in range(jobs)]
        intents = []
        for job in ids:
            lane = (await session.read_lane(KIND, job)).lane
            intents.append(Intent(JobClaim, ClaimBody(kind=KIND, job=job, lease_ms=600), lane))
        yield WriteTurns(session, tasks.create_task), Spy(session), intents, other


async def written(turns, intents, policy=CLAIM):
    tries = (turns.write_one(one, policy) for one in intents)
    return await asyncio.gather(*tries, return_exceptions=True)


async def lanes_of(other, intents):
    return [(await other.read_lane(KIND, one.body.job)) for one in intents]


def types_on(view):
    return [type(one.opened.op).__name__ for one in view.history if one.verdict is Verdict.OK]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    monkeypatch.setattr("antiphon.runtime.log.session.Session.pause", lambda *_: asyncio.sleep(0))


async def test_what_is_wanted_now_shares_a_signature_a_write_and_a_read():
    async with a_writer() as (turns, spy, intents, other):
        found = await written(turns, intents)
        assert [one.verdict for one in found] == [Verdict.OK] * 3
        assert [one.lane.job.id for one in found] == [one.body.job for one in intents]
        assert spy.groups == [3]
        assert spy.asked.count("read_lanes") == 1
        assert "append" not in spy.asked
        assert "read_lane" not in spy.asked
        blocks = [signing.unframe((await other.record_at(one.seq)).payload)[1] for one in found]
        assert len({block.sig for block in blocks}) == 1
        assert [(block.at, block.of) for block in blocks] == [(0, 3), (1, 3), (2, 3)]
        for view, one in zip(await lanes_of(other, intents), found, strict=True):
            assert view.lane == one.lane


async def test_one_alone_is_written_as_if_there_were_no_turns():
    async with a_writer(1) as (turns, spy, intents, other):
        (one,) = await written(turns, intents)
        assert one.verdict is Verdict.OK
        assert spy.asked.count("append") == 1
        assert not spy.groups
        block = signing.unframe((await other.record_at(one.seq)).payload)[1]
        assert block.of == 0


async def test_more_than_a_turn_takes_go_in_several():
    async with a_writer(TOGETHER + 5) as (turns, spy, intents, _):
        found = await written(turns, intents)
        assert {one.verdict for one in found} == {Verdict.OK}
        assert spy.groups == [TOGETHER, 5]


async def test_while_turns_are_under_way_the_others_gather(monkeypatch):
    monkeypatch.setattr(write_turns, "SLOW_S", 3600.0)
    async with a_writer(UNDER_WAY * 2 + 6) as (turns, spy, intents, _):
        gate = asyncio.Event()
        tasks = []
        for number in range(UNDER_WAY):
            spy.first = gate.wait
            pair = intents[2 * number : 2 * number + 2]
            tasks.append(asyncio.ensure_future(written(turns, pair)))
            while len(spy.groups) <= number:
                await asyncio.sleep(0)
        rest = [asyncio.ensure_future(written(turns, [one])) for one in intents[2 * UNDER_WAY :]]
        for _ in range(20):
            await asyncio.sleep(0)
        assert spy.groups == [2] * UNDER_WAY
        gate.set()
        found = await asyncio.gather(*tasks, *rest)
        assert {one.verdict for group in found for one in group} == {Verdict.OK}
        assert spy.groups == [*[2] * UNDER_WAY, 6]


async def test_a_turn_without_an_answer_holds_nobody_up_for_long(monkeypatch):
    monkeypatch.setattr(write_turns, "SLOW_S", 0.01)
    async with a_writer(4) as (turns, spy, intents, _):
        gate = asyncio.Event()
        spy.first = gate.wait
        stuck = asyncio.ensure_future(written(turns, intents[:3]))
        while not spy.groups:
            await asyncio.sleep(0)
        (other,) = await written(turns, intents[3:])
        assert other.verdict is Verdict.OK
        assert not stuck.done()
        gate.set()
        assert [one.verdict for one in await stuck] == [Verdict.OK] * 3


async def test_whose_place_was_taken_is_told_so_and_nobody_else():
    async with a_writer() as (turns, spy, intents, other):

        async def overtake():
            job = intents[1].body.job
            body = ClaimBody(kind=KIND, job=job, lease_ms=600)
            await other.commit(other.draft(JobClaim, body, prev=0))

        spy.first = overtake
        found = await written(turns, intents)
        assert [type(one) for one in found][1] is LostRace
        assert [found[at].verdict for at in (0, 2)] == [Verdict.OK] * 2
        views = await lanes_of(other, intents)
        assert [view.lane.job.claimer for view in views] == [
            found[0].lane.job.claimer,
            other.author.did,
            found[2].lane.job.claimer,
        ]


async def test_whoever_wants_it_still_goes_behind_the_other_record():
    async with a_writer() as (turns, spy, intents, other):

        async def overtake():
            body = ClaimBody(kind=KIND, job=intents[0].body.job, lease_ms=600)
            await other.commit(other.draft(JobClaim, body, prev=0))

        spy.first = overtake
        found = await written(turns, intents, Policy(again=go_behind, insists=False))
        assert [one.verdict for one in found] == [Verdict.HELD, Verdict.OK, Verdict.OK]
        assert found[0].lane.job.claimer == other.author.did


@pytest.mark.parametrize("fate", ["lost", "unheard"])
@pytest.mark.parametrize("places", [{0}, {2}, {0, 1, 2}])
async def test_an_answer_that_is_missing_is_looked_for_by_itself(fate, places):
    async with a_writer() as (turns, spy, intents, other):
        setattr(spy, fate, places)
        found = await written(turns, intents)
        assert [one.verdict for one in found] == [Verdict.OK] * 3
        for view, one in zip(await lanes_of(other, intents), found, strict=True):
            assert types_on(view) == ["JobSchedule", "JobClaim"]
            assert len(view.history) == 2
            assert view.lane == one.lane


async def test_where_nothing_can_be_sent_together_each_goes_alone():
    async with a_writer() as (turns, spy, intents, other):
        spy.is_away = True
        found = await written(turns, intents)
        assert [one.verdict for one in found] == [Verdict.OK] * 3
        assert spy.asked.count("append") == 3
        assert [len(view.history) for view in await lanes_of(other, intents)] == [2, 2, 2]


async def test_where_nothing_can_be_read_together_each_reads_alone():
    async with a_writer() as (turns, spy, intents, _):
        spy.is_unreadable = True
        found = await written(turns, intents)
        assert [one.verdict for one in found] == [Verdict.OK] * 3
        assert spy.asked.count("append") == 0


async def test_what_would_be_rejected_is_not_written_and_the_rest_is():
    async with a_writer() as (turns, spy, intents, other):
        late = ClaimBody(kind=KIND, job=intents[1].body.job, lease_ms=1)
        intents[1] = Intent(JobClaim, late, intents[1].lane)
        found = await written(turns, intents)
        assert [one.verdict for one in found] == [Verdict.OK, Verdict.LEASE, Verdict.OK]
        assert found[1].seq == 0
        assert [len(view.history) for view in await lanes_of(other, intents)] == [2, 1, 2]
        assert spy.groups == [2]


async def test_what_cannot_be_an_op_is_refused_and_the_rest_is_written():
    async with a_writer() as (turns, _, intents, other):
        body = YieldBody(kind=KIND, job=intents[1].body.job, fence="no fence", reason="error")
        intents[1] = Intent(JobYield, body, intents[1].lane)
        found = await written(turns, intents, Policy(insists=False))
        assert [type(one).__name__ for one in found] == ["Written", "Rejected", "Written"]
        assert isinstance(found[1], Rejected)
        assert [len(view.history) for view in await lanes_of(other, intents)] == [2, 1, 2]


def ends_of(found):
    return [
        Intent(
            JobYield,
            YieldBody(kind=KIND, job=one.lane.job.id, fence=one.lane.job.fence, reason="drain"),
            one.lane,
        )
        for one in found
    ]


@pytest.mark.parametrize("behind, reads, alone", [(1, 2, 0), (3, 3, 3)])
async def test_a_copy_that_is_behind_is_asked_again_before_each_reads_alone(behind, reads, alone):
    async with a_writer() as (turns, spy, intents, _):
        spy.behind = behind
        found = await written(turns, intents)
        assert [one.verdict for one in found] == [Verdict.OK] * 3
        assert spy.asked.count("read_lanes") == reads
        assert spy.asked.count("read_lane") == alone
        spy.asked.clear()
        spy.behind = behind
        told = await written(turns, ends_of(found), Policy(look=own_record, insists=False))
        assert [one.verdict for one in told] == [Verdict.OK] * 3
        assert spy.asked.count("newest") == reads
        assert spy.asked.count("fetch") == alone


async def test_ends_are_judged_on_the_lanes_that_they_follow():
    async with a_writer() as (turns, spy, intents, other):
        found = await written(turns, intents)
        ends = ends_of(found)
        spy.asked.clear()
        told = await written(turns, ends, Policy(look=own_record, insists=False))
        assert [one.verdict for one in told] == [Verdict.OK] * 3
        assert [one.lane.job.state for one in told] == [State.PENDING] * 3
        assert spy.asked.count("newest") == 1
        assert "read_lane" not in spy.asked
        views = await lanes_of(other, intents)
        assert [view.lane for view in views] == [one.lane for one in told]


@pytest.mark.parametrize("when", ["before", "while"])
async def test_whoever_leaves_takes_nobody_along(when):
    async with a_writer() as (turns, spy, intents, other):
        tasks = [asyncio.ensure_future(turns.write_one(one, CLAIM)) for one in intents]

        async def leave():
            tasks[1].cancel()

        if when == "while":
            spy.first = leave
        else:
            await asyncio.sleep(0)
            await leave()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[1], asyncio.CancelledError)
        assert [found[at].verdict for at in (0, 2)] == [Verdict.OK] * 2
        held = [len(view.history) for view in await lanes_of(other, intents)]
        assert held == [2, 2 if when == "while" else 1, 2]


async def test_everyone_is_told_when_the_turn_is_cancelled():
    async with a_writer() as (_, _, intents, other):
        spawned = []

        def spawn(work):
            spawned.append(asyncio.ensure_future(work))
            return spawned[-1]

        spy = Spy(other)
        spy.first = asyncio.Event().wait
        turns = WriteTurns(other, spawn)
        tasks = [asyncio.ensure_future(turns.write_one(one, CLAIM)) for one in intents]
        while not spy.groups:
            await asyncio.sleep(0)
        spawned[0].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in found] == [asyncio.CancelledError] * 3


async def test_an_owner_that_starts_nothing_any_more_still_gets_its_writes():
    def refuse(_work):
        raise RuntimeError("shutting down")

    async with a_writer() as (_, _, intents, other):
        found = await written(WriteTurns(other, refuse), intents)
        assert [one.verdict for one in found] == [Verdict.OK] * 3


async def test_a_flush_begins_a_turn_at_once_and_only_at_rest():
    async with a_writer(4) as (turns, spy, intents, _):
        told = []
        spy.asked.clear()
        for one in intents[:2]:
            turns.begin(one, CLAIM, told.append)
        turns.flush()
        turns.begin(intents[2], CLAIM, told.append)
        turns.flush()
        assert spy.groups == [], "a flush itself sends nothing"
        await asyncio.sleep(0)
        assert spy.groups == [2], "what was there at the flush, before anything else was done"
        turns.begin(intents[3], CLAIM, told.append)
        while len(told) < 4:
            await asyncio.sleep(0)
        assert spy.groups == [2, 2], "what came meanwhile went together"
        assert {one.written.verdict for one in told} == {Verdict.OK}


async def test_control_is_asked_for_before_what_is_judged_by_it():
    async with a_writer(2) as (turns, spy, intents, _):
        spy.asked.clear()
        for one in await written(turns, intents):
            assert one.verdict is Verdict.OK
        assert spy.asked.index("confirm") < spy.asked.index("read_lanes")
