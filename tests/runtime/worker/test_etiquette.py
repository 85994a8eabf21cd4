"""How workers treat each other: leases they keep, races they lose, kinds that are not theirs."""

import asyncio
from itertools import pairwise

import msgspec
import pytest

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import (
    CancelBody,
    ClaimBody,
    ExpireBody,
    JobCancel,
    JobClaim,
    JobComplete,
    JobExpire,
    JobOffer,
    JobSchedule,
    JobYield,
)
from antiphon.core.families.mesh.ops import MeshRoute, RouteBody
from antiphon.core.policy import selection
from antiphon.core.policy.claim_delay import JITTER_S
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.caller import submission
from antiphon.runtime.log.session import RETRY_BASE_MS
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.worker import job_claims
from tests.patience import NEVER_S
from tests.runtime.meshes import KIND, OFFERED, QUICK, a_mesh, call, eventually, on_both_engines

LEASE_MS = 6_000
BRIEF = msgspec.structs.replace(QUICK, lease_ms=LEASE_MS, lease_ms_max=LEASE_MS)


class Overtaken:
    """A node's log on which others may be quicker; it records when the node wrote to a job."""

    def __init__(self, log, quicker) -> None:
        self._log, self._quicker = log, quicker
        self.tries: list[tuple[float, str]] = []
        """When it tried, and for which job."""

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, payload, **rest):
        await self._tries(subject)
        return await self._log.append(subject, payload, **rest)

    async def append_many(self, records, **rest):
        for record in records:
            await self._tries(record.subject)
        return await self._log.append_many(records, **rest)

    async def _tries(self, subject):
        if ".job." in subject:
            self.tries.append((asyncio.get_running_loop().time(), subject[-64:]))
            await self._quicker(len(self.tries), subject[-64:])


async def nobody(_number: int) -> None:
    return


# --- finishing within the lease ---------------------------------------------------------------


@pytest.mark.virtual_time
@pytest.mark.req("M21")
async def test_every_lease_that_a_worker_takes_lasts_until_its_job_has_ended():
    """Jobs of up to three leases, five to a slot, beside a node that would expire them."""

    async def long(tenths: int) -> int:
        await asyncio.sleep(tenths * LEASE_MS / 10_000)
        return tenths

    async with a_mesh("memory", BRIEF) as mesh:
        node = await mesh.node()
        caller = (await mesh.connection()).session
        jobs = [await call(caller, tenths) for tenths in range(1, 31, 2)]
        await mesh.worker(long, slots=3)
        for job in jobs:
            ended = await submission.wait_for_end(caller, KIND, job.id)
            assert (ended.job.outcome, ended.job.attempts) == ("succeeded", 0)
        await node.reached(ended.job.ended_seq)
        held: dict[str, int] = {}
        for seq in range(1, node.applied + 1):
            stored = node.replica.record(seq)
            op, at_ms = node.session.open(stored.record).op, stored.record.commit_ms
            assert not isinstance(op, JobExpire | JobYield)
            if isinstance(op, JobClaim):
                assert at_ms <= held.get(op.body.job, at_ms), "renewed before it ended"
                held[op.body.job] = op.hlc[0] + op.body.lease_ms
            elif isinstance(op, JobComplete):
                assert at_ms <= held.pop(op.body.job)
            assert len(held) <= 3, "and none for a job that only waits for a slot"
        assert not held


# --- races that are lost ----------------------------------------------------------------------


@on_both_engines
@pytest.mark.req("M24", "P6", "M12", "M23")
async def test_workers_that_lost_a_race_write_nothing_until_the_lease_is_over_and_not_together(
    engine, monkeypatch
):
    """Times are compared with the end of the lease, which a slow machine only comes to later."""
    jitters_s: dict[str, float] = {}
    claim_delay_s = job_claims.claim_delay_s

    def delay_s(job, verdict, *, by, now_ms, **more):
        waits_s = claim_delay_s(job, verdict, by=by, now_ms=now_ms, **more)
        until_free_s = (job.claimable_ms(now_ms, by) - now_ms) / 1000
        jitters_s.setdefault(job.id, waits_s - until_free_s)
        return waits_s

    monkeypatch.setattr(job_claims, "claim_delay_s", delay_s)
    rules = msgspec.structs.replace(QUICK, lease_ms=2_000, lease_ms_max=2_000)
    ran = []

    async def run(number: int) -> int:
        ran.append(number)
        return number

    async with a_mesh(engine, rules) as mesh:
        await mesh.node()  # it expires the winner's lease
        caller, winner = (await mesh.connection()).session, (await mesh.connection()).session
        claimed: set[str] = set()
        tries_ms: dict[str, list[int]] = {}

        async def quicker(_tries: int, job_id: str) -> None:
            if job_id not in claimed:
                claimed.add(job_id)
                await winner.read_lane(KIND, job_id)  # so its clock is not behind the schedule's
                body = ClaimBody(kind=KIND, job=job_id, lease_ms=2_000, begin=True)
                await winner.commit(winner.draft(JobClaim, body, prev=0))
                tries_ms[job_id] = []
            elif job_id in tries_ms:
                tries_ms[job_id].append(mesh.wall.now_ms())

        for _ in range(2):
            connection = await mesh.connection()
            connection.session.log = Overtaken(connection.session.log, quicker)
            await mesh.worker(run, slots=1, connection=connection)
        jobs = [await call(caller, number) for number in range(4)]
        for job in jobs:
            ended = await submission.wait_for_end(caller, KIND, job.id)
            assert ended.job.outcome == "succeeded"
            assert ended.job.attempts >= 1, "the winner let its lease run out"
            view = await caller.read_lane(KIND, job.id)
            won = view.history[1].opened.op
            assert won.author == winner.author.did
            free_ms = won.hlc[0] + won.body.lease_ms
            assert min(tries_ms[job.id]) >= free_ms, "nobody tried while the lease lasted"
        assert all(0 <= jitter_s < JITTER_S for jitter_s in jitters_s.values()), jitters_s
        assert jitters_s.keys() == {job.id for job in jobs}
        assert len(set(jitters_s.values())) == len(jobs), "and they do not come back together"
        assert set(ran) == {0, 1, 2, 3}


@pytest.mark.exact_times
@pytest.mark.virtual_time
@pytest.mark.req("P6")
async def test_each_further_lost_race_is_followed_by_a_longer_jittered_pause():
    pauses = []
    async with a_mesh("memory") as mesh:
        rival = (await mesh.connection()).session

        async def lose(number: int) -> None:
            session = (await mesh.connection()).session
            job = await call(session, number)
            view = await session.read_lane(KIND, job.id)

            async def quicker(tries: int, _job_id: str) -> None:
                if tries <= 6:  # too early to expire it: rejected, but it is there first
                    lane = (await rival.read_lane(KIND, job.id)).lane
                    body = ExpireBody(kind=KIND, job=job.id)
                    await rival.commit(rival.draft(JobExpire, body, prev=lane.job_tail))

            session.log = Overtaken(session.log, quicker)
            cancel = CancelBody(kind=KIND, job=job.id)
            written = await write_one(session, Intent(JobCancel, cancel, view.lane), BEHIND)
            assert written.verdict is Verdict.OK
            tries_s = [at_s for at_s, _ in session.log.tries]
            pauses.append([(late - early) * 1000 for early, late in pairwise(tries_s)])

        for number in range(2):
            await lose(number)
    for one in pauses:
        assert len(one) == 6
        for doublings, pause_ms in enumerate(one[1:]):  # after the first it only looks again
            floor_ms = RETRY_BASE_MS << doublings
            assert floor_ms - 1 <= pause_ms <= floor_ms + RETRY_BASE_MS
    assert pauses[0][1:] != pauses[1][1:], "two that lose together do not come back in step"


# --- kinds ------------------------------------------------------------------------------------


@on_both_engines
@pytest.mark.req("M25", "M13")
async def test_a_routed_prefix_takes_every_kind_below_it_and_no_word_that_only_begins_so(engine):
    below, beside = "com.example.render.frame", "com.examples"
    async with a_mesh(engine, OFFERED) as mesh:
        await mesh.node()  # it offers again what nobody has claimed
        ran: list[tuple[str, str]] = []

        def by(name: str):
            async def run(kind: str) -> None:
                ran.append((name, kind))

            return run

        target = await mesh.connection()
        owner = (await mesh.connection(mesh.owner)).session
        route = RouteBody(kind="com.example", target=target.session.author.did)
        await write_one(owner, Intent(MeshRoute, route))
        for kind in (below, beside):
            await mesh.worker(by("other"), kind=kind)
        caller = (await mesh.connection()).session
        jobs = [await call(caller, kind, kind=kind) for kind in (below, beside)]
        await submission.wait_for_end(caller, beside, jobs[1].id)
        assert ran == [("other", beside)], "the route covers whole words"
        view = await caller.read_lane(below, jobs[0].id)
        assert {type(one.opened.op) for one in view.history} <= {JobSchedule, JobOffer}
        await mesh.worker(by("target"), kind=below, connection=target)
        await eventually(lambda: ("target", below) in ran)
        assert ("other", below) not in ran


# --- the queue --------------------------------------------------------------------------------


@on_both_engines
@pytest.mark.req("P1")
async def test_what_announces_a_job_to_the_queue_is_its_accepted_schedule_itself(engine):
    """Nothing is published beside the log, and nobody has to do it: no step can be forgotten."""
    heard = asyncio.Event()

    async def hear(_number: int) -> None:
        heard.set()

    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        await mesh.worker(hear)
        before = (await caller.log.last()).seq
        job = await call(caller, 1)
        await heard.wait()
        ended = await submission.wait_for_end(caller, KIND, job.id)
        assert (job.seq, ended.job.calls) == (before + 1, 1), "one record, and no offer was needed"
        delayed = await call(caller, 2, not_before=mesh.wall.now_ms() + 3_600_000)
        heard.clear()
        await asyncio.sleep(0.2)
        assert not heard.is_set(), "one that may not begin yet is not announced"
        assert (await caller.read_lane(KIND, delayed.id)).lane.job.calls == 0


@on_both_engines
@pytest.mark.req("G11")
@pytest.mark.parametrize("workers", [1, 6])
async def test_under_queue_selection_a_job_costs_the_same_however_many_workers_there_are(
    engine, workers, monkeypatch
):
    drawn = []
    monkeypatch.setattr(selection, "draw", lambda *texts: drawn.append(texts) or b"")
    async with a_mesh(engine) as mesh:
        mesh.loan_s = NEVER_S  # a slow worker's announcement would be looked at by another
        opened = []
        for number in range(workers):
            connection = await mesh.connection()
            really_open = connection.session.open

            def counting(record, by=number, really_open=really_open):
                opened.append((by, record.subject))
                return really_open(record)

            connection.session.open = counting
            await mesh.worker(nobody, connection=connection)
        caller = (await mesh.connection()).session
        opened.clear()
        before = (await caller.log.last()).seq
        jobs = [await call(caller, number) for number in range(10)]
        for job in jobs:
            await submission.wait_for_end(caller, KIND, job.id)
        last = (await caller.log.last()).seq
        assert last - before == 3 * len(jobs), "schedule, claim, completion"
        looked = {(by, subject) for by, subject in opened if job_subjects.is_call(subject)}
        assert len(looked) == len(jobs), "each announcement was looked at by one worker"
        assert len(opened) <= 5 * len(jobs), "its own records, and nobody else's"
        assert drawn == []
