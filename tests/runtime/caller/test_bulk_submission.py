"""Many jobs submitted at once: each as if alone, with few appends in flight."""

import asyncio
import random

import pytest
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.authority.rules import Limit
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.families.mesh.ops import MeshRules, RulesBody
from antiphon.core.policy.circuit_breaker import CircuitBreaker
from antiphon.core.policy.write_pace import FORGIVEN_S, SHARED_RECORDS, WINDOW_MS
from antiphon.core.record import signing
from antiphon.errors import CircuitOpen, OutcomeUnknown, PartlySubmitted, Rejected, Unavailable
from antiphon.runtime.caller import bulk_submission, submission
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.log.session import PAUSED_PATIENCE_S
from antiphon.runtime.log.writer import Intent, write_one
from tests.runtime.meshes import CALM, KIND, LONG_MS, a_mesh, on_both_engines

TOO_LONG_MS = 1000 * LONG_MS
"""A lease that the rules do not allow."""


def body(number: int, **fields) -> ScheduleBody:
    content = manifest.author({"command": [f"@{KIND}"], "args": [f"[{number}]"], "timeout": 30})
    return ScheduleBody(kind=KIND, manifest=content, **fields)


@on_both_engines
async def test_every_job_of_a_list_is_on_the_log_in_its_place(engine):
    async with a_mesh(engine) as mesh:
        session = (await mesh.connection()).session
        bodies = [body(number) for number in range(250)]
        found = await submit_many(session, bodies)
        assert [one.id for one in found] == [manifest.job_id(one.manifest) for one in bodies]
        assert all(one.is_new for one in found)
        assert sorted(one.seq for one in found) == list(range(2, 252)), "genesis is the first"
        other = (await mesh.connection()).session
        for one in found[::50]:
            job = (await other.read_lane(KIND, one.id)).lane.job
            assert job is not None
            assert job.scheduled_seq == one.seq


@pytest.mark.virtual_time
async def test_on_an_engine_without_delays_the_log_has_the_order_of_the_list():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        found = await submit_many(session, [body(number) for number in range(150)])
        assert [one.seq for one in found] == list(range(2, 152))


@on_both_engines
async def test_a_job_that_exists_is_found_and_not_written_again(engine):
    async with a_mesh(engine) as mesh:
        session = (await mesh.connection()).session
        first = await submission.submit(session, body(1))
        otherwise = await submission.submit(session, body(2, priority="high"))
        found = await submit_many(session, [body(0), body(1), body(2), body(0)])
        assert [one.is_new for one in found].count(True) == 1, "0, although it is there twice"
        assert found[1] == submission.Submitted(KIND, first.id, first.seq, is_new=False)
        assert found[2].seq == otherwise.seq, "although its other subject was free"
        assert not found[2].is_new
        assert found[0].id == found[3].id


@on_both_engines
async def test_what_others_left_on_a_jobs_subject_does_not_stop_it(engine):
    async with a_mesh(engine) as mesh:
        session = (await mesh.connection()).session
        wanted = body(1)
        subject = job_subjects.call(session.mesh, "normal", KIND, manifest.job_id(wanted.manifest))
        junk = await session.log.append(subject, b"junk", message_id="junk", expected_last=0)
        found = await submit_many(session, [body(0), wanted])
        assert [one.is_new for one in found] == [True, True]
        assert found[1].seq > junk


@pytest.mark.virtual_time
async def test_appends_in_flight_and_tasks_are_bounded(monkeypatch):
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        append, in_flight, most, tasks = session.log.append_many, 0, 0, 0

        async def slow(records, **how):
            nonlocal in_flight, most, tasks
            in_flight += len(records)
            most, tasks = max(most, in_flight), max(tasks, len(asyncio.all_tasks()))
            await asyncio.sleep(0.01)
            in_flight -= len(records)
            return await append(records, **how)

        monkeypatch.setattr(session.log, "append_many", slow)
        before = len(asyncio.all_tasks())
        assert len(await submit_many(session, [body(number) for number in range(500)])) == 500
        assert most == bulk_submission.GROUPS_IN_FLIGHT * bulk_submission.TOGETHER
        assert tasks <= before + bulk_submission.GROUPS_IN_FLIGHT + 1, "one confirms control"


@pytest.mark.parametrize("is_stored", [True, False])
async def test_answers_that_are_missing_are_looked_for_one_by_one(monkeypatch, is_stored):
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        append = session.log.append_many

        async def torn(records, **how):
            half = len(records) // 2
            told = await append(records if is_stored else records[:half], **how)
            unknown = OutcomeUnknown("the connection was lost")
            return [*told[:half], *[unknown] * (len(records) - half)]

        monkeypatch.setattr(session.log, "append_many", torn)
        found = await submit_many(session, [body(number) for number in range(20)])
        assert [one.is_new for one in found] == [True] * 20
        assert len({one.seq for one in found}) == 20
        stored = (await session.log.read(0, limit=100)).records
        assert sum(job_subjects.is_call(one.subject) for one in stored) == 20


async def test_many_jobs_have_few_signatures():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        found = await submit_many(session, [body(number) for number in range(40)])
        records = [await session.record_at(one.seq) for one in found]
        signatures = {signing.unframe(one.payload)[1].sig for one in records}
        assert len(signatures) == 5


@on_both_engines
async def test_the_job_that_cannot_be_submitted_is_named_with_those_that_were(engine):
    async with a_mesh(engine, CALM) as mesh:
        session = (await mesh.connection()).session
        bodies = [body(number) for number in range(200)]
        bodies[3] = body(3, lease_ms_max=TOO_LONG_MS)
        with pytest.raises(PartlySubmitted, match=r"job 4 of 200 \(test.work\) was not") as told:
            await submit_many(session, bodies)
        assert told.value.position == 3
        assert isinstance(told.value.__cause__, Rejected)
        there = {one.id for one in told.value.submitted}
        assert {manifest.job_id(one.manifest) for one in bodies[:3]} <= there
        assert len(there) < 200, "the rest was not sent"
        for number, one in enumerate(bodies):
            job_id = manifest.job_id(one.manifest)
            is_there = (await session.read_lane(KIND, job_id)).lane.job is not None
            assert is_there == (job_id in there), number


@pytest.mark.virtual_time
async def test_where_nothing_was_submitted_the_error_is_the_jobs_own():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        with pytest.raises(Rejected):
            await submit_many(session, [body(0, lease_ms_max=TOO_LONG_MS), body(1)][:1])
        assert await submit_many(session, []) == []


@pytest.mark.virtual_time
async def test_an_open_breaker_sends_nothing():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        session.breaker = CircuitBreaker(failures=2, reset_s=1e9)
        session.engine.sever()
        with pytest.raises(Unavailable):
            await submit_many(session, [body(number) for number in range(5)])
        with pytest.raises(CircuitOpen):
            await submit_many(session, [body(number) for number in range(5)])
        session.engine.heal()
        found = await submit_many(session, [body(number) for number in range(5)])
        assert all(one.is_new for one in found)


def key(one: ScheduleBody) -> tuple[str, str]:
    return one.kind, manifest.job_id(one.manifest)


@on_both_engines
async def test_a_job_is_sent_only_after_those_that_it_waits_for_are_stored(engine, monkeypatch):
    async with a_mesh(engine) as mesh:
        session = (await mesh.connection()).session
        send, dice = session.send, random.Random(7)

        async def slow(drafts, **how):
            await asyncio.sleep(dice.random() / 50)
            return await send(drafts, **how)

        monkeypatch.setattr(session, "send", slow)
        bodies = [body(0)]
        for number in range(1, 300):  # a tree, and a chain of every tenth
            before = [key(bodies[number // 3])]
            before += [key(bodies[number - 10])] if number % 10 == 0 else []
            bodies.append(body(number, after=tuple(before)))
        found = await submit_many(session, bodies)
        seqs = {(one.kind, one.id): one.seq for one in found}
        for one in bodies:
            assert all(seqs[before] < seqs[key(one)] for before in one.after)


@pytest.mark.virtual_time
async def test_a_failure_in_the_middle_ends_what_waits_for_it():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        bodies = [body(0), body(1, lease_ms=TOO_LONG_MS, lease_ms_max=TOO_LONG_MS)]
        bodies += [body(number, after=(key(bodies[1]),)) for number in range(2, 20)]
        with pytest.raises(PartlySubmitted) as partly:
            await submit_many(session, bodies)
        assert partly.value.position == 1
        assert [one.id for one in partly.value.submitted] == [key(bodies[0])[1]]


@on_both_engines
async def test_a_kind_under_a_limit_gets_its_label_unless_the_job_names_one(engine):
    limits = (Limit(label="gpu", kinds=(KIND,), at_once=1), Limit(label="eu", at_once=1))
    async with a_mesh(engine, replace(CALM, limits=limits)) as mesh:
        session = (await mesh.connection()).session
        found = await submit_many(session, [body(1), body(2)])
        found.append(await submission.submit(session, body(3)))
        for one in found:
            job = (await session.read_lane(KIND, one.id)).lane.job
            assert (job.concurrency, job.state.value) == ("gpu", "waiting")
        with pytest.raises(Rejected, match="limit"):
            await submission.submit(session, body(4, concurrency="eu"))


@on_both_engines
async def test_a_limit_that_is_newer_than_what_was_read_is_found_out(engine):
    async with a_mesh(engine) as mesh:
        session = (await mesh.connection()).session
        owner = (await mesh.connection(mesh.owner)).session
        rules = replace(CALM, limits=(Limit(label="gpu", kinds=(KIND,), at_once=1),))
        await write_one(owner, Intent(MeshRules, RulesBody(rules=rules)))
        one = await submission.submit(session, body(1))
        many = await submit_many(session, [body(2), body(3)])
        for found in (one, *many):
            job = (await session.read_lane(KIND, found.id)).lane.job
            assert job.concurrency == "gpu"


class Paused:
    """An engine whose mesh lets this node in again only after a while."""

    def __init__(self, engine, log) -> None:
        self._engine, self.log, self.until_s = engine, log, 0.0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    @property
    def paused_s(self) -> float:
        return max(self.until_s - asyncio.get_running_loop().time(), 0.0)

    @property
    def connected(self) -> bool:
        return not self.paused_s


def busiest(times: list[float]) -> int:
    """The most that was sent within the window that members are compared by."""
    return max(sum(at <= each < at + WINDOW_MS / 1000 for each in times) for at in times)


@pytest.mark.virtual_time
@pytest.mark.parametrize("pause_s", [30, 300])
async def test_a_list_goes_on_after_a_pause_of_this_machine_unless_that_is_long(
    monkeypatch, pause_s
):
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        engine = session.engine = Paused(session.engine, session.log)
        really_append, really_read = session.log.append_many, session.log.read_lanes
        sent, times = 0, []

        async def append_many(records, **rest):
            nonlocal sent
            if not engine.connected:
                raise Unavailable("not connected: nothing was sent")
            answers = await really_append(records, **rest)
            sent += len(records)
            times.extend([asyncio.get_running_loop().time()] * len(records))
            if sent == 4 * bulk_submission.TOGETHER:  # all that are in flight at a time
                engine.until_s = asyncio.get_running_loop().time() + pause_s
            return answers

        async def read_lanes(lanes):
            if not engine.connected:
                raise Unavailable("not connected")
            return await really_read(lanes)

        monkeypatch.setattr(session.log, "append_many", append_many)
        monkeypatch.setattr(session.log, "read_lanes", read_lanes)
        bodies = [body(number) for number in range(600)]
        if pause_s > PAUSED_PATIENCE_S:
            with pytest.raises((PartlySubmitted, Unavailable), match="not connected"):
                await submit_many(session, bodies)
        else:
            found = await submit_many(session, bodies)
            assert [one.id for one in found] == [manifest.job_id(one.manifest) for one in bodies]
            after = [when for when in times if when >= engine.until_s]
            assert busiest(after) <= SHARED_RECORDS, "no faster than nobody minds"
            begun_s = asyncio.get_running_loop().time()
            await asyncio.sleep(FORGIVEN_S)
            await submit_many(session, [body(number) for number in range(600, 900)])
            assert asyncio.get_running_loop().time() - begun_s < FORGIVEN_S + 1, "and forgiven"
