"""The reverb: a report for each bar, kept and published, also of what came late."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import msgspec
import pytest
from structlog.testing import capture_logs

from antiphon.core.bus.signed_message import MessageType
from antiphon.core.bus.subjects import BAR_REPORT, PROMISE, STATUS
from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobYield, YieldBody
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.tempo.messages import HelpAnswer, HelpPromise, StatusClaim
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.policy import read_policy
from antiphon.core.tempo.score import Score
from antiphon.core.tempo.time_text import hlc_text
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_reports import ReplicaReports
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.tempo.pulse import Pulse
from antiphon.runtime.tempo.reverb import Reverb
from antiphon.runtime.tempo.tempo_messages import BAR_REPORTS, STATUS_CLAIMS, TALKS
from tests.runtime.by_hand import called
from tests.runtime.meshes import CALM, KIND, a_mesh, call, eventually, on_both_engines

BRISK = read_policy(
    {"initial_bpm": 120, "bar_len_beats": 4, "limits": {"min_bpm": 60, "max_bpm": 150}}
)
"""A bar is two seconds; beats 1 plan, 2 and 3 work, 4 review."""
ADAPTIVE = read_policy(
    {
        "initial_bpm": 60,
        "bar_len_beats": 4,
        "limits": {"min_bpm": 30, "max_bpm": 90},
        "adaptation": {"enable": True},
    }
)
virtual = pytest.mark.parametrize(
    "engine", [pytest.param("memory", marks=pytest.mark.virtual_time)]
)


class Agent:
    """Somebody who says what it does."""

    def __init__(self, connection):
        self.session, self.key = connection.session, connection.keyring
        self.did = self.key.did

    async def send(self, messages, where, body, *, at_ms=None):
        payload = messages.sign(
            body,
            (self.did, self.key.sign),
            mesh=self.session.mesh,
            subject=where,
            at_ms=self.session.wall.now_ms() if at_ms is None else at_ms,
        )
        await self.session.engine.bus.publish(where, payload)

    async def claim(self, state="executing", *, kind=KIND, task="sweeping", at_ms=None, **more):
        at_ms = self.session.wall.now_ms() if at_ms is None else at_ms
        body = StatusClaim(
            agent_id=more.pop("agent_id", self.did),
            task_id=task,
            beat_index=1,
            state=state,
            hlc=hlc_text((at_ms, 0)),
            **more,
        )
        await self.send(STATUS_CLAIMS, STATUS.at(kind=kind), body)


class Stage:
    """A mesh with one reverb."""

    def __init__(self, mesh, node, connection):
        self.mesh, self.node = mesh, node
        self.clock = BeatClock(connection.session)
        self.reverb = Reverb(node, self.clock, connection.keyring)
        self.reports = node.replica.reports
        self.connection = connection

    async def set_policy(self, policy):
        owner = await self.mesh.connection(self.mesh.owner)
        await write_one(owner.session, Intent(MeshTempo, TempoBody(policy=policy)), BEHIND)

    async def agent(self):
        return Agent(await self.mesh.connection())

    async def is_listening(self):
        """Wait until what is said about a task is heard."""
        metrics, bus = self.reverb.metrics, self.connection.session.engine.bus
        while not metrics.claims_refused:
            await bus.publish(STATUS.at(kind=KIND), b"no claim")
            with suppress(TimeoutError):
                await eventually(lambda: metrics.claims_refused, within_s=1)
        metrics.claims_refused = 0

    @asynccontextmanager
    async def leading(self):
        """A pulse on this node that leads while the block runs."""
        pulse = Pulse(self.clock, self.connection.keyring, suggest=self.reverb.suggestion)
        leading = asyncio.ensure_future(pulse.run())
        try:
            await eventually(lambda: pulse.is_leader, within_s=60)
            yield pulse
        finally:
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)

    def bar_ms(self):
        return self.clock.meter().downbeat_before(self.clock.now_ms())

    async def next_bar(self):
        """Wait for a downbeat; its time."""
        now = self.bar_ms()
        await eventually(lambda: self.bar_ms() > now, within_s=60)
        return self.bar_ms()

    async def report_of(self, start_ms, is_so=lambda _: True):
        """The report of a bar, once it is there and this holds."""

        def found():
            for kept in self.reports.between(start_ms, start_ms, limit=1):
                if kept.start_ms == start_ms and is_so(kept.report):
                    return kept
            return None

        return await eventually(found, within_s=60)


@asynccontextmanager
async def a_stage(engine, policy=BRISK, **how):
    async with a_mesh(engine, CALM) as mesh:
        connection = await mesh.connection()
        node = await mesh.node(caretaking=False, connection=connection, **how)
        stage = Stage(mesh, node, connection)
        await stage.set_policy(policy)
        await eventually(lambda: connection.session.control.tempo == policy)
        running = stage.running = asyncio.ensure_future(stage.reverb.run())
        await eventually(lambda: stage.reverb.windows.starts)
        await stage.is_listening()
        try:
            yield stage
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def published(stage):
    """The reports that are on the bus."""
    heard, is_listening = [], asyncio.Event()

    async def listen():
        async with stage.connection.session.engine.bus.subscribe(BAR_REPORT.at()) as messages:
            is_listening.set()
            async for message in messages:
                opened = BAR_REPORTS.open(
                    message.payload, mesh=stage.mesh.mesh, subject=BAR_REPORT.at()
                )
                heard.append(opened)

    listening = asyncio.ensure_future(listen())
    await is_listening.wait()
    try:
        yield heard
    finally:
        listening.cancel()


@pytest.mark.req("B4", "B24", "B26")
@on_both_engines
async def test_each_bar_is_reported_after_its_end_kept_and_published(engine):
    async with a_stage(engine) as stage, published(stage) as heard:
        agent = await stage.agent()
        await stage.node.reached((await call(agent.session, 1)).seq)
        start_ms = await stage.next_bar()
        await agent.claim("planning", at_ms=start_ms + 5)
        await agent.claim("waiting", task="cooking", cpu=0.5, at_ms=start_ms + 5)
        kept = await stage.report_of(start_ms, lambda report: len(report.counts) == 2)
        report = kept.report
        assert report.counts == {"planning": 1, "waiting": 1}
        assert report.queue_depth == {"test": 1}
        assert report.utilisation == {"cpu": 0.5}
        assert report.tempo_bpm == 120
        assert kept.end_ms - kept.start_ms == 2_000
        assert kept.tally.beats_used == 2
        assert stage.reverb.metrics.claims_received == 2
        assert stage.reverb.metrics.bars_reported >= 1
        assert stage.reverb.metrics.kpis == report.kpis
        await eventually(lambda: any(one.body == report for one in heard))


@pytest.mark.req("B25")
@pytest.mark.virtual_time
async def test_a_policy_without_reports_on_the_bus_has_them_kept_and_not_published():
    told = msgspec.structs.replace(BRISK.observability, emit_bar_reports=False)
    silent = msgspec.structs.replace(BRISK, observability=told)
    async with a_stage("memory", silent) as stage, published(stage) as heard:
        for _ in range(3):
            start_ms = await stage.next_bar()
            assert await stage.report_of(start_ms)
        assert heard == []
        await stage.set_policy(BRISK)
        await eventually(lambda: heard, within_s=60)


@pytest.mark.req("B4", "B9", "B27")
@on_both_engines
async def test_what_comes_late_is_added_on_review_beats_and_reported_again(engine):
    async with a_stage(engine) as stage:
        agent = await stage.agent()
        start_ms = await stage.next_bar()
        assert (await stage.report_of(start_ms)).report.counts == {}
        await agent.claim(at_ms=start_ms + 5)
        kept = await stage.report_of(start_ms, lambda report: report.counts)
        assert kept.report.counts == {"executing": 1}
        assert kept.report.claims_late == 1
        if engine == "memory":
            assert stage.clock.phase() == "review"
        assert stage.reverb.metrics.claims_late == 1


@pytest.mark.req("B4")
@virtual
async def test_claims_of_others_of_another_kind_or_badly_signed_count_nothing(engine):
    async with a_stage(engine) as stage:
        agent, other = await stage.agent(), await stage.agent()
        start_ms = await stage.next_bar()
        await agent.claim(agent_id=other.did)
        await agent.claim(kind="other", task=f"{KIND}/{'a' * 64}")
        await agent.session.engine.bus.publish(STATUS.at(kind=KIND), b"{}")
        await agent.claim(task=f"{KIND}/{'b' * 64}")
        assert (await stage.report_of(start_ms)).report.counts == {"executing": 1}
        assert stage.reverb.metrics.claims_refused == 3


@pytest.mark.req("B5")
@virtual
async def test_a_claim_in_the_older_form_counts_and_its_author_is_warned_about_once(engine):
    async with a_stage(engine) as stage:
        agent = await stage.agent()
        start_ms = await stage.next_bar()
        old = {
            "agent_id": agent.did,
            "task_id": "sweeping",
            "bar": 1287,
            "beat": 3,
            "state": "waiting",
            "beats_left": 2,
            "hlc": hlc_text((start_ms + 1, 17)).replace("+17", "+1287:3+17"),
        }
        as_it_was = MessageType("status", dict, max_bytes=STATUS_CLAIMS.max_bytes)
        with capture_logs() as logged:
            await agent.send(as_it_was, STATUS.at(kind=KIND), old)
            later = {**old, "state": "executing", "hlc": old["hlc"].replace("+17", "+18")}
            await agent.send(as_it_was, STATUS.at(kind=KIND), later)
            await agent.send(as_it_was, STATUS.at(kind=KIND), {**old, "beat": "third"})
            report = (await stage.report_of(start_ms)).report
        assert report.counts == {"executing": 1}
        assert (stage.reverb.metrics.claims_received, stage.reverb.metrics.claims_refused) == (2, 1)
        warned = [one for one in logged if one["event"] == "deprecated_message"]
        assert [(one["author"], "beat_index" in one["warning"]) for one in warned] == [
            (agent.did, True)
        ]


@pytest.mark.req("B4", "B26")
@virtual
async def test_promises_are_due_and_broken_as_the_threads_on_the_bus_say(engine):
    async with a_stage(engine) as stage:
        agent = await stage.agent()
        start_ms = await stage.next_bar()
        for thread in ("thread01", "thread02"):
            where = PROMISE.at(kind=KIND, thread=thread)
            promise = HelpPromise(thread_id=thread, promise_beats=1, fail_after_beats=2)
            await agent.send(TALKS, where, promise)
        where = PROMISE.at(kind=KIND, thread="thread01")
        await agent.send(TALKS, where, HelpAnswer(thread_id="thread01", answer="yes"))
        report = (await stage.report_of(start_ms)).report
        assert (report.promises_due, report.promises_broken) == (2, 1)
        assert report.kpis["pmr"] == 0.5


@pytest.mark.req("B4", "B22")
@virtual
async def test_jobs_are_counted_as_the_log_has_them(engine):
    async with a_stage(engine) as stage:
        agent = await stage.agent()
        await call(agent.session, 1)

        async def work(_: int) -> int:
            return 1

        first_ms = await stage.next_bar()
        assert (await stage.report_of(first_ms)).report.queue_depth == {"test": 1}
        start_ms = await stage.next_bar()
        await stage.mesh.worker(work)
        kept = await stage.report_of(start_ms)
        assert kept.report.counts == {"done": 1}
        assert kept.report.queue_depth == {}
        assert kept.report.kpis["tnt"] == 0.25
        assert kept.report.kpis["ttfu"] > 4


@pytest.mark.req("B4", "B16")
@virtual
async def test_a_run_that_was_cut_is_an_overrun(engine):
    async with a_stage(engine) as stage:
        worker = (await stage.agent()).session
        start_ms = await stage.next_bar()
        job, fence, seq = await claimed(worker)
        back = YieldBody(kind=KIND, job=job, fence=fence, reason="overrun", retry_after_ms=1)
        await worker.commit(worker.draft(JobYield, back, prev=seq))
        report = (await stage.report_of(start_ms)).report
        assert (report.overruns, report.queue_depth) == (1, {"test": 1})


@pytest.mark.req("B4")
@virtual
async def test_reports_outlast_a_restart_and_the_bar_that_was_missed_is_not_made_up(
    engine, tmp_path
):
    async with a_stage(engine, path=tmp_path / "replica.db") as stage:
        agent = await stage.agent()
        await call(agent.session, 1)
        start_ms = await stage.next_bar()
        await agent.claim()
        kept = await stage.report_of(start_ms)
        again = Reverb(stage.node, BeatClock(stage.connection.session), stage.connection.keyring)
        await stage.next_bar()
        await asyncio.sleep(0.3)
        partial_ms = stage.bar_ms()
        stage.running.cancel()
        running = asyncio.ensure_future(again.run())
        full_ms = await stage.next_bar()
        later = await stage.report_of(full_ms)
        running.cancel()
        assert later.report.queue_depth == {"test": 1}
        assert stage.reports.between(partial_ms, partial_ms, limit=1) == []
        with_file = Replica(tmp_path / "replica.db", mesh=stage.mesh.mesh, read_only=True)
        found = with_file.reports.between(start_ms, start_ms, limit=1)
        with_file.close()
        assert found[-1].report == kept.report


async def claimed(worker):
    """A job that somebody holds, and says nothing about; its id, and its claim's sequence."""
    job = await called(worker, KIND)
    body = ClaimBody(kind=KIND, job=job.id, lease_ms=worker.control.rules.lease_ms, begin=True)
    claim = worker.draft(JobClaim, body, prev=0)
    return job.id, hlc.pack(claim.op.hlc), await worker.commit(claim)


@pytest.mark.req("B19", "B16")
@virtual
async def test_a_running_job_that_is_silent_for_a_bar_raises_an_alarm_and_freezes_the_tempo(engine):
    async with a_stage(engine, ADAPTIVE) as stage:
        worker = (await stage.agent()).session
        async with stage.leading():
            await stage.next_bar()
            job, fence, seq = await claimed(worker)
            start_ms = await stage.next_bar()
            kept = await stage.report_of(start_ms)
            assert [alarm.name for alarm in kept.alarms] == ["no_status_claims"]
            assert job in kept.alarms[0].why
            assert stage.reverb.metrics.alarms == {"no_status_claims"}
            assert "alarm" in kept.report.suggested.why
            back = YieldBody(kind=KIND, job=job, fence=fence, reason="drain")
            await worker.commit(worker.draft(JobYield, back, prev=seq))
            await eventually(lambda: not stage.reverb.metrics.alarms, within_s=60)


@pytest.mark.req("B19")
@virtual
async def test_without_a_leader_nobody_has_to_say_anything(engine):
    async with a_stage(engine) as stage:
        await claimed((await stage.agent()).session)
        await stage.next_bar()
        start_ms = await stage.next_bar()
        assert (await stage.report_of(start_ms)).alarms == ()
        async with stage.leading():
            await stage.next_bar()
            start_ms = await stage.next_bar()
            assert (await stage.report_of(start_ms)).alarms == ()


@pytest.mark.req("B2", "B4", "B19")
@virtual
async def test_what_a_worker_says_on_every_beat_is_what_a_report_counts(engine):
    async with a_stage(engine) as stage:
        agent = await stage.agent()
        ends = asyncio.Event()

        async def work(_: int) -> int:
            await ends.wait()
            return 1

        async with stage.leading():
            await stage.mesh.worker(work)
            await stage.next_bar()
            await call(agent.session, 1)
            start_ms = await stage.next_bar()
            kept = await stage.report_of(start_ms)
            assert kept.tally.tasks == 1
            assert kept.tally.beats_used == 4
            assert kept.alarms == ()
            assert 0 <= kept.report.utilisation.get("cpu", 0.0) <= 1
            ends.set()
            start_ms = await stage.next_bar()
            found = await eventually(
                lambda: [one for one in stage.reports.newest(limit=9) if one.tally.succeeded]
            )
            assert found[0].report.counts == {"done": 1}


@pytest.mark.req("B16")
@virtual
async def test_the_leader_follows_what_its_reverb_suggests(engine):
    async with a_stage(engine, ADAPTIVE) as stage, AsyncExitStack() as stack:
        agent = await stage.agent()
        await stack.enter_async_context(stage.leading())
        began_s = asyncio.get_running_loop().time()
        while stage.clock.meter().bpm == 60:
            await agent.claim(cpu=1.0)
            await asyncio.sleep(1)
        assert stage.clock.meter().bpm == 59
        assert asyncio.get_running_loop().time() - began_s < 180
        kept = await stage.report_of(stage.bar_ms())
        assert (kept.report.tempo_bpm, kept.report.tempo_changes) == (59, 1)
        said = [one.report.suggested for one in stage.reports.newest(limit=5)]
        assert any(one.tempo_bpm == 59 and "in use" in one.why for one in said)


@pytest.mark.req("B11", "B17")
@virtual
async def test_an_adaptive_mesh_follows_the_tempo_that_the_score_of_a_running_job_asks_for(engine):
    async with a_stage(engine, ADAPTIVE) as stage:
        agent = await stage.agent()
        ends = asyncio.Event()

        async def work(_: int) -> int:
            await ends.wait()
            return 1

        async with stage.leading():
            await stage.mesh.worker(work)
            long = Phases(plan=1, work=10_000, review=1)
            await call(agent.session, 1, score=Score(tempo=80, phases=long))
            async with asyncio.timeout(300):
                while stage.clock.meter().bpm == 60:
                    await agent.claim(cpu=0.5)
                    await asyncio.sleep(1)
            assert stage.clock.meter().bpm == 61
            said = [one.report.suggested for one in stage.reports.newest(limit=5)]
            assert any("ask for 80 bpm" in one.why for one in said)
            ends.set()
            await eventually(lambda: not stage.reverb._hints)


@pytest.mark.req("B16")
@virtual
async def test_frozen_by_the_operator_nothing_changes_and_nothing_is_forgotten(engine):
    async with a_stage(engine, ADAPTIVE) as stage, AsyncExitStack() as stack:
        agent = await stage.agent()
        await stack.enter_async_context(stage.leading())
        for _ in range(30):  # under strain, but not long enough to change anything
            await agent.claim(cpu=0.9)
            await asyncio.sleep(1)
        said = stage.reports.newest(limit=1)[0].report.suggested
        assert "at most one a minute" in said.why
        held = stage.reverb.memory
        assert held.integral_bpm < 0
        adaptation = msgspec.structs.replace(ADAPTIVE.adaptation, frozen=True)
        frozen = msgspec.structs.replace(ADAPTIVE, adaptation=adaptation)
        await stage.set_policy(frozen)
        await eventually(lambda: stage.connection.session.control.tempo == frozen, within_s=60)
        for _ in range(100):
            await agent.claim(cpu=1.0)
            await asyncio.sleep(1)
        assert stage.clock.meter().bpm == 60
        assert "operator" in stage.reports.newest(limit=1)[0].report.suggested.why
        assert stage.reverb.memory == held


@pytest.mark.req("B16")
@virtual
async def test_without_a_leader_nothing_is_suggested(engine):
    async with a_stage(engine, ADAPTIVE) as stage:
        agent = await stage.agent()
        for _ in range(100):
            await agent.claim(cpu=1.0)
            await asyncio.sleep(1)
        said = [one.report.suggested for one in stage.reports.newest(limit=100)]
        assert len(said) > 15
        assert not any(one.tempo_bpm or one.phases for one in said)
        assert stage.reverb.suggestion() is None


@pytest.mark.req("B4")
def test_old_reports_are_dropped():
    import sqlite3

    from antiphon.core.tempo.bars.kpis import Tally
    from antiphon.core.tempo.messages import BarReport
    from antiphon.runtime.replica.replica_reports import SCHEMA, KeptReport

    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    reports = ReplicaReports(db, kept=5)
    for start_ms in range(0, 100, 10):
        body = BarReport(cluster_id="m", window_start="", window_end="", tempo_bpm=15)
        reports.put(KeptReport(start_ms=start_ms, end_ms=start_ms + 10, report=body, tally=Tally()))
    assert [one.start_ms for one in reports.newest(limit=50)] == [50, 60, 70, 80, 90]
    assert [one.start_ms for one in reports.newest(limit=2, until_ms=75)] == [60, 70]
    assert [one.start_ms for one in reports.between(65, 80, limit=9)] == [60, 70, 80]
