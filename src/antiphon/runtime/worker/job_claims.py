"""How an announced job becomes this worker's: its claim, and its lane read back.

The claim is a compare-and-set on the job's own subject, and nothing runs before its whole lane has
been read (decision 0006). Whoever cannot have the job now stays away until it can be claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from antiphon.core.clock.hlc import pack
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobSchedule, JobYield, ScheduleBody
from antiphon.core.families.jobs.state import EMPTY, HELD, Job, JobLane, State
from antiphon.core.history.tenures import lost_tenures
from antiphon.core.policy import attempt_end
from antiphon.core.policy.claim_delay import (
    LONGEST_S,
    SIBLING_LEAST_S,
    SiblingTurns,
    claim_delay_s,
)
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, LostRace
from antiphon.runtime.caller.holdings import holdings_of
from antiphon.runtime.log.writer import Intent, Policy
from antiphon.runtime.worker.runs.run_beats import phrase_of
from antiphon.runtime.worker.tenure import Leases, Tenure
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.policy.phrase_run import PhraseRun
    from antiphon.ports import Delivery
    from antiphon.runtime.executors.executor import Executor, Executors
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.worker.plain_jobs import Leaving

log = LazyLogger(__name__)


class JobClaims:
    """The claims of one worker."""

    def __init__(self, executors: Executors, leases: Leases, clock: BeatClock) -> None:
        """Nothing is claimed yet."""
        self.session: Session = leases.session
        self._executors = executors
        self._leases = leases
        self._clock = clock
        self._siblings = SiblingTurns()
        self._began = pack(self.session.author.now())
        """No fence of this process is older."""

    async def of_announcement(
        self, delivery: Delivery, opened: OpenedRecord, job: tuple[str, str], loan_s: float
    ) -> tuple[Tenure, Executor] | None:
        """The tenure of a job that is this worker's now, and its executor; None: it is settled."""
        kind, job_id = job
        lane = self._assumed_lane(delivery, opened)
        body = opened.op.body if isinstance(opened.op, JobSchedule) else None
        if lane is None:
            view = await self.session.read_lane(kind, job_id, at_least=delivery.record.seq)
            lane, body = view.lane, view.submitted_with
            if lane.job is None:
                verdict = view.verdict_of(opened.op_id)
                log.debug("announcement_dropped", kind=kind, job=job_id, verdict=verdict)
                delivery.ack()
                return None
        if body is None:
            raise AntiphonError(f"the schedule of job {job_id} is not on its lane")
        executor = self._executors.find(kind, body.manifest)
        if executor is None:
            # Another worker of this kind may be able to run it.
            delivery.nak(self.jitter_s(LONGEST_S))
            return None
        if body.replica is not None:
            now_s = self.session.wall.boot_s()
            left_s = self._siblings.delay_s((kind, body.replica.of), job_id, now_s)
            if left_s is not None:
                delivery.nak(left_s + self.jitter_s(SIBLING_LEAST_S))
                return None
        tenure = await self.claim(delivery, lane, body, loan_s)
        return None if tenure is None else (tenure, executor)

    def _assumed_lane(self, delivery: Delivery, opened: OpenedRecord) -> JobLane | None:
        """The lane of a job that was just submitted for the first time: only its schedule.

        It only saves a read. The claim's compare-and-set against nothing shows whether the job's
        own subject was empty, and the whole lane is read back before anything runs.
        """
        if delivery.deliveries != 1 or not isinstance(opened.op, JobSchedule):
            return None
        outcome = self.session.judge_first(opened, EMPTY)
        if outcome is None or not outcome.changed:
            return None
        return cast("JobLane", outcome.lane)

    async def claim(
        self,
        delivery: Delivery,
        lane: JobLane,
        submitted: ScheduleBody,
        loan_s: float,
        begun: Leaving | None = None,
    ) -> Tenure | None:
        """Claim the job, and read its lane back; None if that failed, and it is settled.

        `begun` is a plain job whose claim is written already, as far as that came.
        """
        drafted_boot_s = 0.0
        phrase: PhraseRun | None = None

        def wanted(lane: JobLane) -> Intent | None:
            nonlocal drafted_boot_s, phrase
            drafted_boot_s = self.session.wall.boot_s()
            job = lane.job
            if job is None:
                return None
            if job.state in HELD and job.claimer == self.session.author.did:
                # A tenure that is not running here: its process died, or lost its end. A claim
                # would renew it, and two runs would share one fence. It counts as an expiry.
                return Intent(JobYield, attempt_end.lost(job), lane)
            phrase = phrase_of(self._clock, job, submitted)
            lease_ms = job.lease_ms
            if phrase is not None:
                lease_ms = phrase.lease_ms(
                    self._clock.now_ms(),
                    wanted_ms=lease_ms,
                    least_ms=self.session.control.rules.lease_min_ms,
                    most_ms=job.lease_ms_max,
                )
            body = ClaimBody(kind=job.kind, job=job.id, lease_ms=lease_ms, begin=True)
            return Intent(JobClaim, body, lane)

        intent = wanted(lane)
        if intent is None:
            delivery.ack()
            return None
        policy = Policy(again=lambda now: wanted(now.lane), foresees=True, insists=False)
        turns = self._leases.turns
        try:
            if begun is not None and begun.claim is not None:
                drafted_boot_s = begun.one.boot_s
                written = await turns.go_on(intent, policy, begun.claim)
            else:
                written = await turns.write_one(intent, policy)
        except LostRace:
            delivery.nak(self.jitter_s(LONGEST_S))
            return None
        job, verdict = written.lane.job, written.verdict
        if verdict is Verdict.OK and written.intent.op is JobYield:
            return await self.claim(delivery, written.lane, submitted, loan_s)
        is_held = verdict is Verdict.OK and job and job.claimer == self.session.author.did
        if not is_held or written.view is None:
            self.stay_away(delivery, job, verdict or Verdict.HELD)
            return None
        body = written.view.submitted_with
        if job is None or body is None:
            raise AntiphonError("the schedule of a claimed job is not on its lane")
        tenure = Tenure(
            self._leases, delivery, written.lane, body, boot_s=drafted_boot_s, loan_s=loan_s
        )
        tenure.phrase = phrase or phrase_of(self._clock, job, body)
        if job.attempts >= attempt_end.LOST_MAX:
            history = ((one.opened, one.verdict) for one in written.view.history)
            lost = lost_tenures(history, living=(self.session.author.did, self._began))
            name = holdings_of(self.session).name
            tenure.fault = attempt_end.too_many_lost(job, body.retry, lost, name)
        return tenure

    def stay_away(self, delivery: Delivery, job: Job | None, verdict: Verdict) -> None:
        """Settle an announcement that cannot be claimed now: not before it can be."""
        if job is None or job.is_terminal or job.state is State.WAITING:
            delivery.ack()  # the offer that ends a wait is another announcement
            return
        wait_s = claim_delay_s(
            job,
            verdict,
            by=self.session.author.did,
            deliveries=delivery.deliveries,
            now_ms=self.session.wall.now_ms(),
            chance=self.session.entropy.random(),
        )
        delivery.nak(wait_s)

    def jitter_s(self, most_s: float) -> float:
        """A moment of chance, so that workers do not come back together."""
        return self.session.entropy.random() * most_s
