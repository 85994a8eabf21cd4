"""One way to write: what becomes of intents whose place another takes, or whose answer is lost."""

import asyncio
import re
from pathlib import Path

import pytest

import antiphon
from antiphon.core.families.jobs.ops import CancelBody, ClaimBody, JobCancel, JobClaim
from antiphon.core.families.jobs.state import State
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.record.verdict import Verdict
from antiphon.errors import LostRace, OutcomeUnknown, Rejected, Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.log.writer import (
    AT_ONCE,
    BEHIND,
    Intent,
    Policy,
    Written,
    give_up,
    go_behind,
    own_record,
    whole_lane,
    write,
    write_one,
)
from tests.runtime.meshes import KIND, a_mesh, call


class Spy:
    """A log that counts what is asked of it, and does something before or instead of a write."""

    def __init__(self, session) -> None:
        self._log, session.log = session.log, self
        self.asked: list[str] = []
        self.first: list = []
        """Done before the next writes, one each."""
        self.silent = self.unreadable = False
        """Whether writes are stored without an answer, and whether nothing can be read."""
        self.lagging: int | None = None
        """Up to where the copy reaches that answers the next read of a lane."""
        self.under_way = self.most = 0

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self._log, name)

    async def append(self, subject, payload, **rest):
        self.asked.append("append")
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.first:
            await self.first.pop(0)()
        await asyncio.sleep(0)
        try:
            return await self._log.append(subject, payload, **rest)
        finally:
            self.under_way -= 1
            if self.silent:
                raise OutcomeUnknown("no answer")

    async def read_lane(self, filters, *, after=0):
        self.asked.append("read_lane")
        if self.unreadable:
            raise Unavailable("nothing can be read")
        reach = 2**63
        if self.lagging is not None and len(filters) > 1:
            reach, self.lagging = self.lagging, None
        async for page in self._log.read_lane(filters, after=after):
            if found := [record for record in page if record.seq <= reach]:
                yield found


async def claimed(session, job, *, lease_ms=600):
    """What another worker's claim looks like."""
    view = await session.read_lane(KIND, job)
    body = ClaimBody(kind=KIND, job=job, lease_ms=lease_ms)
    return await session.commit(session.draft(JobClaim, body, prev=view.lane.job_tail))


async def a_cancel(session, job) -> Intent:
    lane = (await session.read_lane(KIND, job)).lane
    return Intent(JobCancel, CancelBody(kind=KIND, job=job), lane)


@pytest.fixture
def unhurried(monkeypatch):
    """Pauses between tries pass at once."""
    monkeypatch.setattr("antiphon.runtime.log.session.Session.pause", lambda *_: asyncio.sleep(0))


@pytest.mark.parametrize("look", [whole_lane, own_record])
async def test_what_is_still_wanted_after_a_conflict_goes_behind_the_other_record(look):
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        job = (await call(session, 1)).id
        intent, spy = await a_cancel(session, job), Spy(session)
        spy.first = [lambda: claimed(other, job)]
        seen = []

        def again(now: Written) -> Intent:
            seen.append((now.seq, now.verdict, now.lane.job.state))
            return go_behind(now)

        written = await write_one(session, intent, Policy(again=again, look=look))
        assert seen == [(0, None, State.CLAIMED)]
        assert written.verdict is Verdict.OK
        assert written.lane.job.outcome == "cancelled"
        view = await other.read_lane(KIND, job)
        assert view.lane == written.lane
        assert view.opened_at(written.seq).op.prev == written.intent.lane.job_tail > 0


async def test_what_is_no_longer_wanted_after_a_conflict_is_not_written():
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        job = (await call(session, 1)).id
        spy = Spy(session)
        spy.first = [lambda: submission.cancel(other, KIND, job, reason="first")]
        after = await submission.cancel(session, KIND, job, reason="second")
        assert after.outcome == "cancelled"
        assert spy.asked.count("append") == 1
        assert len((await other.read_lane(KIND, job)).history) == 2


@pytest.mark.parametrize("is_overtaken", [True, False])
async def test_a_copy_that_lags_behind_what_is_known_is_not_believed(is_overtaken, unhurried):
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        job = (await call(session, 1)).id
        intent, spy = await a_cancel(session, job), Spy(session)
        spy.lagging = max(intent.lane.tails)
        if is_overtaken:
            await claimed(other, job)
            spy.lagging -= 1
        written = await write_one(session, intent, Policy(again=give_up))
        assert spy.lagging is None
        assert written.lane == (await other.read_lane(KIND, job)).lane


async def test_without_a_policy_a_conflict_is_raised_and_nothing_is_read():
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        job = (await call(session, 1)).id
        intent = await a_cancel(session, job)
        await claimed(other, job)
        with pytest.raises(LostRace):
            await write_one(session, intent)
        left = await write_one(session, intent, Policy(again=give_up))
        assert (left.seq, left.verdict, left.lane.job.state) == (0, None, State.CLAIMED)


async def test_whoever_is_always_overtaken_stops_after_so_many_tries(unhurried):
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        job = (await call(session, 1)).id
        intent, spy = await a_cancel(session, job), Spy(session)
        spy.first = [lambda: claimed(other, job)] * 3
        with pytest.raises(LostRace, match="cancelling") as told:
            await write_one(session, intent, Policy(again=go_behind, tries=3, what="cancelling"))
        assert told.value.hint == "try again"
        assert spy.asked.count("append") == 3


@pytest.mark.parametrize("foresees", [True, False])
async def test_what_the_rules_refuse_is_raised_with_their_reason(foresees):
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        job = (await call(session, 1)).id
        await claimed(other, job)
        lane, spy = (await session.read_lane(KIND, job)).lane, Spy(session)
        intent = Intent(JobClaim, ClaimBody(kind=KIND, job=job, lease_ms=600), lane)
        says = "would be" if foresees else "was"
        with pytest.raises(Rejected, match=f"the claim {says} rejected: ") as told:
            await write_one(session, intent, Policy(foresees=foresees, what="the claim"))
        assert told.value.reason == Verdict.HELD.value
        assert spy.asked.count("append") == (0 if foresees else 1)
        taken = await write_one(session, intent, Policy(foresees=True, insists=False))
        assert (taken.seq, taken.verdict) == (0, Verdict.HELD)
        assert taken.problem is None


async def test_a_write_without_an_answer_is_unknown_and_says_where_to_look(unhurried):
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        job = (await call(session, 1)).id
        intent, spy = await a_cancel(session, job), Spy(session)
        spy.silent = spy.unreadable = True
        with pytest.raises(OutcomeUnknown) as told:
            await write_one(session, intent, BEHIND)
        assert (told.value.kind, told.value.job_id) == (KIND, job)
        assert job[:8] in told.value.hint
        assert (await other.read_lane(KIND, job)).lane.job.outcome == "cancelled"


async def test_what_is_stored_and_cannot_be_read_back_still_has_its_place():
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        job = (await call(session, 1)).id
        intent, spy = await a_cancel(session, job), Spy(session)
        spy.unreadable = True
        [told] = await write(session, [intent])
        assert isinstance(told.problem, Unavailable)
        assert told.seq == (await other.read_lane(KIND, job)).lane.job_tail


async def test_of_several_intents_one_that_loses_or_is_refused_leaves_the_others_alone():
    async with a_mesh("memory") as mesh:
        session, other = [(await mesh.connection()).session for _ in range(2)]
        jobs = [(await call(session, number)).id for number in range(AT_ONCE + 3)]
        intents = [await a_cancel(session, job) for job in jobs]
        await claimed(other, jobs[1])
        owners = Intent(MeshCoordinator, CoordinatorBody(node=session.author.did))
        spy = Spy(session)
        told = await write(session, [*intents, owners])
        assert spy.most == AT_ONCE
        assert [one.intent.body for one in told] == [one.body for one in [*intents, owners]]
        assert isinstance(told[1].problem, LostRace)
        assert told[1].seq == 0
        assert isinstance(told[-1].problem, Rejected)
        assert (told[-1].seq > 0, told[-1].verdict) == (True, Verdict.NOT_OWNER)
        for one in [told[0], *told[2:-1]]:
            assert one.check().verdict is Verdict.OK
        with pytest.raises(LostRace):
            told[1].check()
        ended = [(await other.read_lane(KIND, job)).lane.job.is_terminal for job in jobs]
        assert ended == [True, False, *[True] * (len(jobs) - 2)]


async def test_a_control_op_goes_behind_what_others_wrote_on_its_subject():
    async with a_mesh("memory") as mesh:
        owner, same = [(await mesh.connection(mesh.owner)).session for _ in range(2)]
        await asyncio.sleep(0.002)  # one key, two processes: no timestamp twice
        body = CoordinatorBody(node=owner.author.did)
        first = await write_one(owner, Intent(MeshCoordinator, body))
        await asyncio.sleep(0.002)
        second = await write_one(same, Intent(MeshCoordinator, body), BEHIND)
        assert second.seq > first.seq
        assert second.verdict.is_accepted


async def test_one_intent_costs_one_write_and_one_look():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        jobs = [(await call(session, number)).id for number in range(2)]
        whole, alone = [await a_cancel(session, job) for job in jobs]
        spy = Spy(session)
        await write_one(session, whole)
        assert sorted(spy.asked) == ["append", "confirm", "read_lane"]
        spy.asked.clear()
        await write_one(session, alone, Policy(look=own_record))
        assert sorted(spy.asked) == ["append", "confirm", "fetch"]


def test_nothing_else_drafts_or_commits():
    source = Path(antiphon.__file__).parent
    writing = re.compile(r"(?:peer|author|by)\.draft\(|peer\.commit\(")
    places = {path.name for path in source.rglob("*.py") if writing.search(path.read_text())}
    # The outbox drafts to see whether a record would be accepted, and keeps what was meant.
    places.discard("connection_outbox.py")
    assert places == {"session.py", "writer.py"}, "a session drafts for the writer, by its author"
