"""The reverb: sums up each bar of a mesh when it has ended (spec §11).

Runs beside every full node. It listens to status claims and to promises on the bus, and to the
log through its node. Shortly after each downbeat it reports the bar before: the report is kept
beside the replica, and the pulse's leader publishes it. What arrives later is added on the next
review beats, when batch work is let in, and the report is stored and published again.

What a report says is decided in `antiphon.core.tempo.bars`, what should change of the tempo in
`antiphon.core.tempo.controller`; `suggestion` is what the pulse asks on downbeats.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.bus.signed_message import Refused
from antiphon.core.bus.subjects import BAR_REPORT, MESH, MESH_STATUS, PROMISE, STATUS
from antiphon.core.families.jobs.ops import JobComplete, JobSchedule, JobYield
from antiphon.core.families.jobs.state import HELD, Job, State
from antiphon.core.policy.backoff import backoff_ms
from antiphon.core.tempo import controller
from antiphon.core.tempo.bars import alarms as rhythm
from antiphon.core.tempo.bars.bar_facts import JobEnd, Noted
from antiphon.core.tempo.bars.bar_window import BarWindows
from antiphon.core.tempo.ingest_window import is_ingest_open
from antiphon.core.tempo.messages import HelpAnswer, HelpPromise
from antiphon.core.tempo.phases import PHASES
from antiphon.errors import AntiphonError, Overrun, Unavailable
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.replica.replica_reports import KeptReport
from antiphon.runtime.tempo.tempo_messages import BAR_REPORTS, STATUS_CLAIMS, TALKS, OlderForms
from antiphon.runtime.tempo.tempo_metrics import TempoMetrics
from antiphon.runtime.tempo.tempo_record import TempoRecord
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.tempo.bars.kpis import Tally
    from antiphon.core.tempo.messages import BarReport, Suggestion
    from antiphon.core.tempo.meter import Meter
    from antiphon.core.tempo.policy import TempoPolicy
    from antiphon.ports import BusMessage, Keyring
    from antiphon.runtime.node.full_node import Applied, FullNode
    from antiphon.runtime.tempo.beat_clock import BeatClock, Beats

MAX_PENDING: Final = 16_384
"""Messages that wait to be read; beyond it the oldest are lost."""
GRACE: Final = 4
"""A bar is reported this part of a beat after its end: by then its last claims have arrived."""
MAX_RUNNING: Final = 65_536
"""Running jobs that are watched for silence."""
RECONNECT_MS: Final = 100
RECONNECT_MOST_MS: Final = 5_000

log = LazyLogger(__name__)


class Reverb:
    """Sums up the bars of one mesh, beside one full node."""

    def __init__(
        self,
        node: FullNode,
        clock: BeatClock,
        keyring: Keyring,
        metrics: TempoMetrics | None = None,
    ) -> None:
        """Counts nothing before `run`."""
        self.node = node
        self.clock = clock
        self.metrics = metrics or TempoMetrics()
        self.windows = BarWindows(node.session.mesh)
        self.raised: tuple[rhythm.Alarm, ...] = ()
        self.reported = asyncio.Event()
        """Set whenever a report was stored; whoever waits for it clears it."""
        self._session = node.session
        self._reports = node.replica.reports
        self._tempo = TempoRecord(node.session, node.replica.tempo)
        self._signer = (keyring.did, keyring.sign)
        self._older = OlderForms()
        self._first_ms: int | None = None
        """The first bar that this process saw from its beginning; None before it began."""
        self._done_ms = 0
        self._seen = 0
        self._running: dict[str, int] = {}
        self._hints: dict[str, int] = {}
        """The tempo that a job's score asks for; of jobs that were scheduled since this began."""
        self._led_ms: int | None = None
        """Since when there has been a leader; None without one."""
        self._silent: dict[int, tuple[str, ...]] = {}
        self._suggested: dict[int, Suggestion] = {}
        self._due: Suggestion | None = None
        self._policy: TempoPolicy | None = None
        self.memory = controller.Memory()
        """What the adaptation remembers."""
        self._in_force: tuple[int, object] | None = None
        self._changed_ms = 0

    def suggestion(self) -> Suggestion | None:
        """What should change on this downbeat, once; the pulse asks for it when it leads."""
        due, self._due = self._due, None
        return due

    async def run(self) -> None:
        """Listen and report until cancelled; a node that may not hear everything does neither."""
        await self.node.ready.wait()
        if self._session.log.reads != WHOLE:
            return
        self._take_stock()
        try:
            with self._tempo.watching(self.clock):
                async with self.clock.listen() as beats, asyncio.TaskGroup() as tasks:
                    self._begin(self.clock.meter(), self._downbeat())
                    tasks.create_task(self._hear(STATUS.at(kind=">"), self._note_claim))
                    tasks.create_task(self._hear(MESH_STATUS.at(), self._note_claim))
                    tasks.create_task(self._hear(_below(PROMISE.pattern), self._note_talk))
                    tasks.create_task(self._follow(beats))
        finally:
            self.node.watchers.remove(self._applied)

    # --- the log ----------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """Begin with what the replica has, without missing or repeating a record."""
        replica, now_ms = self.node.replica, self.clock.now_ms()
        replica.flush()
        self._seen = replica.cursor.seq
        for kind, jobs in replica.ask(ReplicaJobs).pending_by_kind().items():
            self.windows.queued(_role(kind), jobs, 0)
        for job in replica.ask(ReplicaJobs).jobs(states=HELD, limit=MAX_RUNNING):
            self._running[_task(job)] = now_ms
        self.node.watchers.append(self._applied)

    def _applied(self, applied: Applied) -> None:
        """See a record; a replica that is built again shows old ones once more."""
        before, after = applied.before, applied.after
        if applied.record.seq <= self._seen or not isinstance(after, Job) or before is after:
            return
        self._seen = applied.record.seq
        at_ms = applied.opened.commit_ms
        was = before.state if isinstance(before, Job) else None
        waits = (after.state is State.PENDING) - (was is State.PENDING)
        if waits:
            self.windows.queued(_role(after.kind), waits, at_ms)
        if after.state not in HELD:
            self._running.pop(_task(after), None)
        elif was not in HELD and len(self._running) < MAX_RUNNING:
            self._running[_task(after)] = at_ms
        self._note_hint(applied.opened.op, after)
        if _is_cut(applied.opened.op):
            self.windows.overran(_task(after), at_ms)
        if after.is_terminal and not (isinstance(before, Job) and before.is_terminal):
            spent = after.total_spent
            self.windows.ended(
                JobEnd(
                    task_id=_task(after),
                    at_ms=at_ms,
                    scheduled_ms=after.scheduled_ms,
                    is_success=after.state is State.SUCCEEDED,
                    cost_nano=spent.amount_nano if spent.currency else None,
                )
            )

    def _note_hint(self, op: object, job: Job) -> None:
        score = op.body.score if isinstance(op, JobSchedule) else None
        if score is not None and score.tempo is not None and len(self._hints) < MAX_RUNNING:
            self._hints[_task(job)] = score.tempo
        elif job.is_terminal:
            self._hints.pop(_task(job), None)

    # --- the bus ----------------------------------------------------------------------------------

    async def _hear(self, where: str, note: Callable[[BusMessage], None]) -> None:
        attempt = 0
        while True:
            try:
                async with self._session.engine.bus.subscribe(
                    where, max_pending=MAX_PENDING
                ) as messages:
                    attempt = 0
                    async for message in messages:
                        note(message)
            except Unavailable:
                attempt += 1
                self.metrics.engine_failures += 1
            chance = self._session.entropy.random()
            pause_ms = backoff_ms(
                attempt, base_ms=RECONNECT_MS, cap_ms=RECONNECT_MOST_MS, chance=chance
            )
            await asyncio.sleep(pause_ms / 1000)

    def _note_claim(self, message: BusMessage) -> None:
        opened = STATUS_CLAIMS.open(
            message.payload, mesh=self._session.mesh, subject=message.subject
        )
        if isinstance(opened, Refused):
            self.metrics.claims_refused += 1
            return
        claim = opened.body
        kind, _, job = claim.task_id.partition("/")
        # Who may speak about a kind is decided by the subject: a job of another kind is not theirs.
        places = {STATUS.at(kind=kind), *([MESH_STATUS.at()] if kind == MESH else [])}
        is_foreign = bool(job) and message.subject not in places
        noted = Noted.FORGED if is_foreign else self.windows.claim(claim, opened.author)
        if noted.is_counted:
            self._older.note(opened)
            self.metrics.claims_received += 1
            self.metrics.claims_late += noted is Noted.LATE
        else:
            self.metrics.claims_refused += 1

    def _note_talk(self, message: BusMessage) -> None:
        session = self._session
        opened = TALKS.open(
            message.payload,
            mesh=session.mesh,
            subject=message.subject,
            now_ms=session.wall.now_ms(),
        )
        if isinstance(opened, Refused):
            return
        talk = opened.body
        if isinstance(talk, HelpPromise):
            self.windows.promise(talk, opened.author, opened.at_ms)
        elif isinstance(talk, HelpAnswer):
            self.windows.answer(talk.thread_id, opened.author, opened.at_ms)

    # --- bars -------------------------------------------------------------------------------------

    async def _follow(self, beats: Beats) -> None:
        async for beat in beats:
            meter, known_ms = self.clock.meter(), self.windows.starts[-1]
            if self.clock.mode() != "leader":
                self._led_ms = None
            elif self._led_ms is None:
                # By then every worker has heard it.
                self._led_ms = meter.next_beat(beat.epoch_ms).epoch_ms
            self._begin(meter, self._downbeat())
            await self._tempo.complete()
            if self.windows.starts[-1] > known_ms:
                await asyncio.sleep(meter.beat_ms / 1000 / GRACE)
                # The leader's first frame of the bar has arrived by now, perhaps with a new tempo.
                self._begin(self.clock.meter(), self._downbeat())
                await self._report()
            elif is_ingest_open(meter, self.clock.phases(), beat.epoch_ms):
                await self._fold()

    def _downbeat(self) -> int:
        return self.clock.meter().downbeat_before(self.clock.now_ms())

    def _begin(self, meter: Meter, start_ms: int) -> None:
        """Begin this bar, and before it those that nobody here was awake for."""
        known = self.windows.starts
        if known:
            _, end_ms = self.windows.span(known[-1])
            missed = min((start_ms - end_ms) // meter.bar_ms, self.windows.kept)
            for bars in range(missed, 0, -1):
                self.windows.begin(meter, start_ms - bars * meter.bar_ms)
            if self._first_ms is None and start_ms > known[-1]:
                self._first_ms = start_ms
        self.windows.begin(meter, start_ms)
        in_force = (meter.bpm, self.clock.phases())
        if self._in_force != in_force:
            self._in_force, self._changed_ms = in_force, start_ms

    async def _report(self) -> None:
        """Report the bars that have ended since the last time."""
        ended = [at for at in self.windows.starts[:-1] if at > self._done_ms]
        for start_ms in ended:
            self._done_ms = start_ms
            heard = self.windows.heard(start_ms)
            self._silent[start_ms] = rhythm.silent_jobs(self._speaking(), heard, start_ms)
            if self._is_whole(start_ms):
                self._judge(start_ms)
                await self._put(start_ms)
        for kept in (self._silent, self._suggested):
            for start_ms in [at for at in kept if at < self.windows.starts[0]]:
                del kept[start_ms]

    def _speaking(self) -> dict[str, int]:
        """Running jobs of which something should be heard.

        Without a score, workers say nothing about a job that began while nobody led.
        """
        led_ms = self._led_ms
        if led_ms is None:
            return {}
        return {task: since for task, since in self._running.items() if since > led_ms}

    async def _fold(self) -> None:
        """Report again what late claims have changed."""
        changed = sorted(self.windows.changed)
        self.windows.changed.clear()
        for start_ms in changed:
            if self._is_whole(start_ms) and start_ms <= self._done_ms:
                await self._put(start_ms)

    def _is_whole(self, start_ms: int) -> bool:
        return self._first_ms is not None and start_ms >= self._first_ms

    async def _put(self, start_ms: int) -> None:
        began_s = self._session.wall.boot_s()
        tally = self.windows.tally(start_ms)
        report = self.windows.report(start_ms, suggested=self._suggested.get(start_ms))
        _, end_ms = self.windows.span(start_ms)
        kept = KeptReport(
            start_ms=start_ms, end_ms=end_ms, report=report, tally=tally, alarms=self.raised
        )
        self._reports.put(kept)
        took_s = self._session.wall.boot_s() - began_s
        numbers = self.metrics
        numbers.bars_reported += 1
        numbers.aggregation_s += took_s
        numbers.last_aggregation_s = took_s
        if start_ms == self._done_ms:
            numbers.kpis = dict(report.kpis)
        self.reported.set()
        await self._publish(report)

    async def _publish(self, report: BarReport) -> None:
        """The leader's is published; without a leader, everybody's."""
        if not self._emits() or self.clock.leader() not in {"", self._signer[0]}:
            return
        mesh, where = self._session.mesh, BAR_REPORT.at()
        at_ms = self._session.wall.now_ms()
        try:
            payload = BAR_REPORTS.sign(report, self._signer, mesh=mesh, subject=where, at_ms=at_ms)
            await self._session.engine.bus.publish(where, payload)
        except AntiphonError as problem:
            self.metrics.engine_failures += 1
            log.warning("bar_report_not_published", problem=problem.message)

    def _emits(self) -> bool:
        """Whether the policy wants reports on the bus; they are kept here in any case."""
        return self._session.control.tempo.observability.emit_bar_reports

    # --- alarms and tempo -------------------------------------------------------------------------

    def _judge(self, start_ms: int) -> None:
        """Raise and clear alarms after a bar, and ask what should change."""
        seen = [at for at in self.windows.starts if at <= start_ms and self._is_whole(at)]
        recent = []
        for at_ms in seen[-rhythm.BARS :]:
            tally = self.windows.tally(at_ms)
            late, silent = sum(tally.overruns_in), self._silent.get(at_ms, ())
            recent.append(rhythm.AlarmBar(tally=tally, overruns=late, silent=silent))
        before = {alarm.name for alarm in self.raised}
        self.raised = rhythm.alarms(before, recent)
        self.metrics.alarms = frozenset(alarm.name for alarm in self.raised)
        for alarm in self.raised:
            if alarm.name not in before:
                hint = "antiphon report shows the bar"
                log.warning("tempo_alarm", alarm=alarm.name, why=alarm.why, hint=hint)
        for name in before - self.metrics.alarms:
            log.info("tempo_alarm_over", alarm=name)
        said = self._adapt(recent[-1].tally, self.windows.report(start_ms))
        self._suggested[start_ms] = said
        is_change = said.tempo_bpm is not None or said.phases is not None
        self._due = said if is_change else None

    def _adapt(self, tally: Tally, report: BarReport) -> Suggestion:
        policy, meter = self._session.control.tempo, self.clock.meter()
        # To freeze and unfreeze replaces the policy; what is remembered is held.
        thawed = replace(policy, adaptation=replace(policy.adaptation, frozen=False))
        if thawed != self._policy:
            self._policy, self.memory = thawed, controller.begin(policy, meter.bpm)
        load = controller.Load(
            bpm=report.tempo_bpm,
            queue_depth=report.queue_depth,
            tasks=tally.tasks,
            overruns=report.overruns,
            overruns_by_phase=dict(zip(PHASES, tally.overruns_in, strict=True)),
            promises_due=report.promises_due,
            promises_broken=report.promises_broken,
            cpu=report.utilisation.get("cpu"),
            gpu=report.utilisation.get("gpu"),
            hints=tuple(bpm for task, bpm in self._hints.items() if task in self._running),
        )
        moment = controller.Moment(
            meter=meter,
            phases=self.clock.phases(),
            at_ms=meter.downbeat_after(self.clock.now_ms()),
            changed_ms=self._changed_ms,
        )
        self.memory, said = controller.suggest(
            policy, self.memory, load, moment, self._frozen_by(policy)
        )
        return said

    def _frozen_by(self, policy: TempoPolicy) -> controller.Freeze | None:
        if policy.adaptation.frozen:
            return controller.Freeze.OPERATOR
        if self.raised:
            return controller.Freeze.ALARM
        return None if self.clock.mode() == "leader" else controller.Freeze.NO_LEADER


def _role(kind: str) -> str:
    """The first part of a kind."""
    return kind.partition(".")[0]


def _is_cut(op: object) -> bool:
    """Whether an op says that a run was ended because a phase had used up its beats."""
    match op:
        case JobYield(body=body):
            return body.reason == "overrun"
        case JobComplete(body=body):
            return body.error is not None and body.error.name == Overrun.__name__
    return False


def _task(job: Job) -> str:
    return f"{job.kind}/{job.id}"


def _below(pattern: str) -> str:
    """Every subject of a pattern."""
    return f"{pattern.partition('{')[0]}>"
