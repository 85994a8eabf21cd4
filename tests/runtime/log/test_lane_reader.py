"""Lanes that somebody hostile made long: read page by page, once, and never refused."""

import tracemalloc

import pytest

from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import ClaimBody, CompleteBody, JobClaim, JobComplete
from antiphon.core.families.jobs.state import State
from antiphon.core.proof.output import Output
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.caller import submission
from antiphon.runtime.log.lane_reader import LONG, REFUSED_KEPT
from tests.runtime.meshes import KIND, a_mesh, call, on_both_engines

OPEN = Rules(authority="open")
SEVERAL_PAGES = 1_200
MB = 1024 * 1024


async def bury(session, job, payloads):
    """Write on a job's own subject, whatever it is; the last sequence."""
    subject = job_subjects.job(session.mesh, KIND, job)
    last = (await session.read_lane(KIND, job)).lane.job_tail
    for number, payload in enumerate(payloads):
        last = await session.log.append(
            subject, payload, message_id=f"{job}-{last}-{number}", expected_last=last
        )
    return last


def junk(count):
    return (b"junk %d" % number for number in range(count))


def claim(session, job, prev):
    body = ClaimBody(kind=KIND, job=job, lease_ms=10_000, begin=True)
    return session.draft(JobClaim, body, prev=prev)


async def answer(*_args, **_kwargs):
    return 1


def reads_of(session, monkeypatch):
    """Where each reading of a lane began."""
    begun, read_lane = [], session.log.read_lane

    def noting(filters, *, after=0):
        begun.append(after)
        return read_lane(filters, after=after)

    monkeypatch.setattr(session.log, "read_lane", noting)
    return begun


@on_both_engines
async def test_a_job_whose_lane_is_buried_is_done_all_the_same(engine):
    async with a_mesh(engine, OPEN) as mesh:
        caller = (await mesh.connection()).session
        called = await call(caller)
        last = await bury(caller, called.id, junk(SEVERAL_PAGES))
        await mesh.worker(answer)
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert ended.job.state is State.SUCCEEDED
        assert ended.job.ended_seq > last


@on_both_engines
async def test_a_long_lane_is_continued_where_it_was_left(engine, monkeypatch):
    async with a_mesh(engine, OPEN) as mesh:
        session = (await mesh.connection()).session
        called = await call(session)
        last = await bury(session, called.id, junk(LONG + 1))
        first = await session.read_lane(KIND, called.id)
        begun = reads_of(session, monkeypatch)
        held = await session.commit(claim(session, called.id, last))
        view = await session.read_lane(KIND, called.id, at_least=held)
        assert begun == [last - 1]
        assert view.lane.job.state is State.RUNNING
        assert [judged.opened.seq for judged in view.history] == [first.first.seq, held]
        assert view.submitted_with == first.submitted_with is not None


@on_both_engines
async def test_a_short_lane_is_read_anew(engine, monkeypatch):
    async with a_mesh(engine, OPEN) as mesh:
        session = (await mesh.connection()).session
        called = await call(session)
        begun = reads_of(session, monkeypatch)
        await session.read_lane(KIND, called.id)
        await session.read_lane(KIND, called.id)
        assert begun == [0, 0]


async def test_of_what_was_refused_only_the_newest_is_kept():
    async with a_mesh("memory", OPEN) as mesh:
        session, stranger = (await mesh.connection()).session, (await mesh.connection()).session
        called = await call(session)
        refused = [claim(stranger, called.id, 1).payload for _ in range(4 * REFUSED_KEPT)]
        last = await bury(stranger, called.id, refused)
        held = await session.commit(claim(session, called.id, last))
        view = await session.read_lane(KIND, called.id, at_least=held)
        verdicts = [judged.verdict for judged in view.history]
        assert verdicts == [Verdict.OK, *[Verdict.PREV] * REFUSED_KEPT, Verdict.OK]
        assert [judged.opened.seq for judged in view.history][-2:] == [last, held]


@pytest.mark.slow
async def test_a_heavy_lane_weighs_little_on_its_reader():
    async with a_mesh("memory", OPEN) as mesh:
        reader, stranger = (await mesh.connection()).session, (await mesh.connection()).session
        called = await call(reader)
        text = "x" * 100_000
        outputs = tuple(Output(name=f"out-{number}", text=text) for number in range(2))
        body = CompleteBody(
            kind=KIND, job=called.id, fence="0" * 16, status="succeeded", outputs=outputs
        )
        heavy = [stranger.draft(JobComplete, body, prev=1).payload for _ in range(600)]
        assert sum(map(len, heavy)) > 100 * MB
        await bury(stranger, called.id, heavy)
        tracemalloc.start()
        try:
            await reader.read_lane(KIND, called.id)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 60 * MB


async def test_a_copy_of_an_accepted_record_says_nothing_about_it():
    async with a_mesh("memory", OPEN) as mesh:
        session, stranger = (await mesh.connection()).session, (await mesh.connection()).session
        called = await call(session)
        draft = claim(session, called.id, 0)
        await session.commit(draft)
        last = await bury(stranger, called.id, [draft.payload] * 3)
        view = await session.read_lane(KIND, called.id, at_least=last)
        assert view.verdict_of(draft.op_id) is Verdict.OK


async def test_copies_of_a_refused_record_do_not_change_why_it_was_refused():
    async with a_mesh("memory", OPEN) as mesh:
        session, winner = (await mesh.connection()).session, (await mesh.connection()).session
        called = await call(session)
        await winner.read_lane(KIND, called.id)
        won = await winner.commit(claim(winner, called.id, 0))
        await session.read_lane(KIND, called.id)
        late = claim(session, called.id, won)
        await session.commit(late)
        await bury(winner, called.id, [late.payload] * 3)
        for copies in (0, 3 * REFUSED_KEPT):
            await bury(winner, called.id, [late.payload] * copies)
            view = await session.read_lane(KIND, called.id)
            assert view.verdict_of(late.op_id) is Verdict.HELD


async def test_the_verdict_on_an_own_op_outlasts_the_op():
    async with a_mesh("memory", OPEN) as mesh:
        session, winner = (await mesh.connection()).session, (await mesh.connection()).session
        called = await call(session)
        await winner.read_lane(KIND, called.id)  # its clock has seen the call
        won = await winner.commit(claim(winner, called.id, 0))
        await session.read_lane(KIND, called.id)
        late = claim(session, called.id, won)
        await session.commit(late)
        await bury(winner, called.id, junk(3 * REFUSED_KEPT))
        for _ in range(2):
            view = await session.read_lane(KIND, called.id)
            assert view.opened_at(won) is not None
            assert view.verdict_of(late.op_id) is Verdict.HELD


async def test_a_lane_can_be_judged_up_to_a_record():
    async with a_mesh("memory", OPEN) as mesh:
        session = (await mesh.connection()).session
        called = await call(session)
        last = await bury(session, called.id, junk(2 * LONG))
        held = await session.commit(claim(session, called.id, last))
        await session.read_lane(KIND, called.id, at_least=held)
        before = await session.lanes.before(LaneKey("jobs", KIND, called.id), held)
        after = await session.lanes.before(LaneKey("jobs", KIND, called.id), held + 1)
        assert (before.job_tail, before.job.state) == (last, State.PENDING)
        assert (after.job_tail, after.job.state) == (held, State.RUNNING)
