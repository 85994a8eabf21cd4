"""Plain short jobs go together, and leave that way for everything that is not as hoped."""

import asyncio
import json
import time
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import CompleteBody, JobClaim, JobComplete
from antiphon.core.opened_record import as_read, open_own
from antiphon.core.policy.queue_credit import SHORT_S
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.core.record.op import subject_of
from antiphon.core.record.verdict import Verdict
from antiphon.errors import OutcomeUnknown
from antiphon.runtime import tracing
from antiphon.runtime.caller import submission
from antiphon.runtime.executors import handler_call
from antiphon.runtime.executors.handler_call import INLINE_BYTES
from antiphon.runtime.executors.printed_output import passing_on_prints
from antiphon.runtime.log import author, write_turns
from antiphon.runtime.worker import job_deliveries
from antiphon.runtime.worker.job_output import listening
from antiphon.runtime.worker.runs.job_run import JobRun
from tests.runtime.meshes import CALM, KIND, QUICK, a_mesh, call, eventually, on_both_engines


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    """The runs that a worker makes for jobs that are not plain, or no longer."""
    made = []

    class Counted(JobRun):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(job_deliveries, "JobRun", Counted)
    # Other tests of this process may have set OpenTelemetry up, for good.
    monkeypatch.setattr(tracing, "is_wanted", lambda _trace: False)
    return made


class Deaf:
    """A log that does not tell what became of some records, and counts how they were sent."""

    def __init__(self, session, *op_types) -> None:
        self._session, self._log, self._unheard = session, session.log, list(op_types)
        self.groups: list[int] = []
        session.log = self

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append_many(self, records, **rest):
        self.groups.append(len(records))
        answers = await self._log.append_many(records, **rest)
        for at, seq in enumerate(answers):
            op = type(self._session.open(await self._session.record_at(seq)).op)
            if op in self._unheard:
                self._unheard.remove(op)
                answers[at] = OutcomeUnknown("lost")
        return answers


async def number(value: int) -> int:
    return value


async def verdicts(session, job):
    """The types and verdicts of a job's records, as another session reads them."""
    view = await session.read_lane(KIND, job.id)
    return [(type(one.opened.op).__name__, one.verdict) for one in view.history]


WELL = [(name, Verdict.OK) for name in ("JobSchedule", "JobClaim", "JobComplete")]


@on_both_engines
async def test_many_are_claimed_and_ended_in_few_writes_and_others_judge_each_of_them_well(
    engine, runs
):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        jobs = [await call(caller, value) for value in range(40)]
        connection = await mesh.connection()
        heard = Deaf(connection.session)
        worker = await mesh.worker(number, slots=40, connection=connection)
        await eventually(lambda: worker.done == 40)
        assert sum(heard.groups) == 80
        assert len(heard.groups) < 40
        assert not runs
        for value, job in enumerate(jobs):
            ended = await submission.wait_for_end(caller, KIND, job.id)
            assert [one.text for one in ended.outputs] == [str(value)]
            assert await verdicts(caller, job) == WELL
        assert worker.figures.ended == {(KIND, "succeeded"): 40}


@dataclass
class Slow:
    """An argument that takes its time."""

    value: int

    def __post_init__(self) -> None:
        time.sleep(SHORT_S / 4)


async def test_a_loop_that_was_busy_makes_no_job_long(runs):
    async def number(given: Slow) -> int:
        return given.value

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        for value in range(10):
            await call(caller, {"value": value})
        worker = await mesh.worker(number, slots=10)
        await eventually(lambda: worker.done == 10)
        assert not runs


@pytest.mark.virtual_time
async def test_one_that_is_not_short_keeps_its_lease_as_any_other_does(runs):
    async def slow(value: int) -> int:
        await asyncio.sleep(3 * QUICK.lease_ms / 1000)
        return value

    async with a_mesh("memory", QUICK) as mesh:
        await mesh.node()
        caller = (await mesh.connection()).session
        worker = await mesh.worker(slow)
        job = await call(caller, 1)
        ended = await submission.wait_for_end(caller, KIND, job.id)
        assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 0)
        await eventually(lambda: worker.done == 1)
        assert len(runs) == 1
        (seconds,) = [one.ended_s - one.began_s for one in runs]
        assert seconds == pytest.approx(3 * QUICK.lease_ms / 1000)


@pytest.mark.virtual_time
async def test_what_one_prints_is_told_in_one_stream_however_long_it_runs():
    gate = asyncio.Event()

    async def talk(parts: int) -> None:
        await gate.wait()
        for part in range(parts):
            print("part", part)
            await asyncio.sleep(0.04)

    with passing_on_prints():
        async with a_mesh("memory") as mesh:
            caller = (await mesh.connection()).session
            worker = await mesh.worker(talk)
            for parts in (1, 6):
                wanted = b"".join(b"part %d\n" % part for part in range(parts))
                found = b""
                gate.clear()
                job = await call(caller, parts)
                async with listening(caller, KIND, job.id) as words:
                    gate.set()
                    async for one in words:
                        assert one.at == len(found)
                        found += one.data
                        if len(found) >= len(wanted):
                            break
                assert found == wanted
            await eventually(lambda: worker.done == 2)


@pytest.mark.virtual_time
@pytest.mark.parametrize("lost", [JobClaim, JobComplete])
async def test_one_whose_answer_is_lost_runs_once_and_ends_once(lost, runs):
    ran = []

    async def counted(value: int) -> int:
        ran.append(value)
        return value

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        connection = await mesh.connection()
        jobs = [await call(caller, value) for value in range(3)]
        Deaf(connection.session, lost)
        worker = await mesh.worker(counted, connection=connection)
        await eventually(lambda: worker.done == 3 and worker.held == 0)
        assert sorted(ran) == [0, 1, 2]
        assert len(runs) == 1
        assert [await verdicts(caller, job) for job in jobs] == [WELL] * 3
        assert worker.figures.ended == {(KIND, "succeeded"): 3}


@pytest.mark.virtual_time
async def test_one_that_raises_fails_as_any_other_does():
    tries = count()

    async def at_second_try(value: int) -> int:
        if next(tries) == 0:
            raise ValueError("not yet")
        return value

    async with a_mesh("memory", QUICK) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        await mesh.worker(at_second_try)
        job = await call(caller, 1)
        ended = await submission.wait_for_end(caller, KIND, job.id)
        assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 1)
        view = await node.session.read_lane(KIND, job.id)
        error = view.history[2].opened.op.body.error
        assert (error.name, error.message) == ("ValueError", "not yet")
        assert "at_second_try" in error.traceback


@pytest.mark.virtual_time
async def test_a_result_that_does_not_fit_into_a_record_is_stored():
    async def long(length: int) -> str:
        return "x" * length

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(long)
        job = await call(caller, INLINE_BYTES)
        ended = await submission.wait_for_end(caller, KIND, job.id)
        (output,) = ended.outputs
        assert (output.text, output.size) == (None, INLINE_BYTES + 2)


@pytest.mark.virtual_time
async def test_a_worker_that_stops_cancels_and_gives_back_what_it_has_just_begun():
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(_value: int) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        worker = await mesh.worker(endless, drain_s=0)
        job = await call(caller, 1)
        await began.wait()
        await worker.pause("sleep", within_s=0)
        assert cancelled.is_set()
        assert worker.held == 0
        found = await verdicts(caller, job)
        assert found[-1] == ("JobYield", Verdict.OK)


@pytest.mark.virtual_time
async def test_a_worker_does_not_believe_its_own_mistakes(monkeypatch):
    """Its proofs are signed wrongly, which it would not see: it has signed them itself."""

    def statement_of(mesh, did, body, proof):
        return really_state("another mesh", did, body, proof)

    really_state = author.statement_of
    monkeypatch.setattr(author, "statement_of", statement_of)
    async with a_mesh("memory", structs.replace(CALM, lease_ms=600, lease_ms_max=600)) as mesh:
        caller = (await mesh.connection()).session
        jobs = [await call(caller, value) for value in range(20)]
        worker = await mesh.worker(number, slots=20)
        await eventually(lambda: worker.figures.ended.total() >= 20)
        assert worker.done == 0
        assert set(worker.figures.ended) == {(KIND, "lost")}
        assert (await verdicts(caller, jobs[0]))[2] == ("JobComplete", Verdict.PROOF)


@given(st.text(max_size=200))
def test_every_reader_can_read_a_completion_whatever_its_result_is(text):
    """What a worker takes for granted of its own records that it does not read again."""
    fence = hlc.pack(hlc.Hlc(1_700_000_000_000, 0))
    result = handler_call.inline_output("result", json.dumps(text, ensure_ascii=False), "text/json")
    end = CompleteBody(kind=KIND, job="a" * 64, fence=fence, status="succeeded", outputs=(result,))
    op = JobComplete(
        v=1,
        mesh="a" * 16,
        author="did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp",
        hlc=(1_700_000_000_000, 1),
        prev=1,
        deps=(),
        auth=(),
        body=end,
    )
    op_bytes, subject = codec.encode(op), subject_of(op)
    read = open_own(PROTOCOL, op_bytes, subject, digest(op_bytes))
    assert read == as_read(PROTOCOL, op, subject, digest(op_bytes))


@pytest.mark.virtual_time
async def test_of_own_records_some_are_read_as_a_strangers_also_in_small_turns(monkeypatch):
    opened = []
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        connection = await mesh.connection()
        session = connection.session
        really_forget = session.forget_own

        def forget_own(seq):
            opened.append(seq)
            really_forget(seq)

        session.forget_own = forget_own
        worker = await mesh.worker(number, connection=connection)
        rounds = 2 * write_turns.SAMPLE_EVERY + 1
        for value in range(rounds):
            await call(caller, value)
            await eventually(lambda done=value + 1: worker.done == done)
        page = await session.log.read(0, limit=10_000)
        types = {one.seq: type(session.open(one).op) for one in page.records}
        drawn = [types[seq] for seq in opened]
        assert drawn.count(JobClaim) == drawn.count(JobComplete) == 3
