"""One tenure: its lease renewed while the work runs, given up in time, ended once.

A tenure renews at a third of its lease; while the engine does not answer it tries again and again.
Without an acknowledged renewal it stops its own work at two thirds, measured on a clock that keeps
running in suspend (spec §7.2). Everything it writes names the last record it saw on the job's
subject. When another record comes first it reads the lane again, and continues only if the lease
is still its own.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, structs

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import (
    ArtifactBody,
    Checkpoint,
    ClaimBody,
    JobArtifact,
    JobClaim,
    JobOp,
    Progress,
)
from antiphon.core.families.jobs.state import HELD, Job, JobLane
from antiphon.core.policy.rate_limit import Tokens
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, LostRace, Unavailable
from antiphon.runtime.log.writer import Intent, Policy, Written, go_behind, own_record
from antiphon.runtime.outbox.worker_outbox import RunOutbox

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.policy.attempt_end import Fault
    from antiphon.core.policy.phrase_run import PhraseRun
    from antiphon.ports import Delivery
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.log.write_turns import WriteTurns
    from antiphon.runtime.log.writer import Begun
    from antiphon.runtime.outbox.worker_outbox import WorkerOutbox

RENEW_AT: Final = 1 / 3
STOP_AT: Final = 2 / 3
RENEW_AGAIN_S: Final = 0.5
"""How soon a renewal that the engine did not answer is tried again: the engine may be back at any
moment, and the time that is left is short."""
LEASE_GROWTH: Final = 2
FOLLOW_AFTER_S: Final = 1.0
"""Work that takes longer than this is worth a subscription to its lane."""
PROGRESS_AFTER_S: Final = 1.0
"""Work that takes longer than this is worth a renewal that says how far it is."""
PROGRESS_EVERY_S: Final = 10.0
"""Between two renewals that are written for that alone."""


class TenureLost(AntiphonError):
    """The lease is not, or may no longer be, this worker's. `verdict` is the log's."""

    def __init__(self, message: str, verdict: Verdict) -> None:
        """`verdict` is the one that the next op of this tenure would get."""
        super().__init__(message)
        self.verdict = verdict


class LeaseBeats(Protocol):
    """The beats of a job that has a score: its leases end with a phase or a bar."""

    def lease_ms(self, wanted_ms: int) -> int:
        """A lease about as long as wanted that ends there."""

    def beats_left(self) -> int:
        """Beats until the run is cut."""


class Timed(Protocol):
    """Something that needs a check now and then."""

    due_s: float
    """Loop time of the next check."""

    def look(self) -> None:
        """Do what is due and move `due_s` forward. Must not raise."""


class Leases:
    """The leases of one worker: how they are written, and one timer for all of them.

    Most jobs end long before their lease needs attention, so a tenure has no timer for itself: it
    gives the time of its next check, and one timer is set to the earliest of these.
    """

    def __init__(
        self,
        session: Session,
        turns: WriteTurns,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """Nothing is kept, and no timer is set."""
        self.session = session
        self.turns = turns
        self.spawn = spawn
        self._kept: dict[Timed, None] = {}  # in order: the same seed must give the same run
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_s = math.inf
        self.escalations = Tokens(math.inf, 0)
        """How many more may be stored."""

    def keep(self, kept: Timed) -> None:
        """Check it from now on."""
        self._kept[kept] = None
        if kept.due_s < self._wakes_s:
            self._arm(kept.due_s)

    def drop(self, kept: Timed) -> None:
        """Stop checking it; safe twice. A timer that finds nothing due costs one wake-up."""
        self._kept.pop(kept, None)

    def close(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._disarm()

    def _arm(self, due_s: float) -> None:
        self._disarm()
        self._wakes_s = due_s
        self._timer = asyncio.get_running_loop().call_at(due_s, self._wake)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._wakes_s = math.inf

    def _wake(self) -> None:
        self._disarm()
        now_s = asyncio.get_running_loop().time()
        for kept in [kept for kept in self._kept if kept.due_s <= now_s]:
            kept.look()
        earliest_s = min((kept.due_s for kept in self._kept), default=math.inf)
        if earliest_s < math.inf:
            self._arm(earliest_s)


class Tenure:
    """From an accepted claim to completion, yield or loss."""

    phrase: PhraseRun | None = None
    """What it has of its score's beats, counted from the claim."""
    beats: LeaseBeats | None = None
    """What its leases follow, if the job has a score."""
    fault: Fault | None = None
    """Why the job is not run, and fails at once."""
    outbox: RunOutbox | None = None
    """Keeps what its run makes while the engine does not answer, if the run goes on then."""
    lost: TenureLost | None = None
    is_out_of_time = False
    """Whether the work was stopped by its timeout."""
    due_s = _next_s = _limit_s = _follow_s = _progress_s = math.inf
    _late_s = 0.0
    _progress: Progress | None = None
    _told: Progress | None = None
    """What the log has of its progress, and from when on it may be told again."""
    _tell_from_s = 0.0
    _following: asyncio.Task[None] | None = None
    _work: asyncio.Future[Any] | None = None
    _goes_on = False

    def __init__(
        self,
        leases: Leases,
        delivery: Delivery,
        lane: JobLane,
        body: ScheduleBody,
        *,
        boot_s: float,
        loan_s: float,
    ) -> None:
        """`lane` is as it was read back; the lease is counted from `boot_s`, before the claim.

        The delivery is lent for `loan_s`, unless that is prolonged.
        """
        if lane.job is None:
            raise ValueError("a tenure is of a job")
        job = lane.job
        self.leases = leases
        self.session = leases.session
        self.loop = asyncio.get_running_loop()
        self.delivery = delivery
        self.lane = lane
        self.body = body
        self.job = job
        self.fence = job.fence
        self.results = job.results
        self._renewed_boot_s = self._claimed_boot_s = boot_s
        self._lease_ms = job.tenure_lease_ms
        self._loan_s = loan_s
        self._writing = asyncio.Lock()

    @property
    def held(self) -> Job:
        """The job under this tenure's own fence, whatever happened on the lane since."""
        job = self.job
        return job if job.fence == self.fence else structs.replace(job, fence=self.fence)

    @property
    def held_ms(self) -> int:
        """How long the job has been held so far."""
        return max(round((self.session.wall.boot_s() - self._claimed_boot_s) * 1000), 0)

    @property
    def standstill(self) -> dict[str, str]:
        """Why the lease may have been lost, if nothing could renew it for that long."""
        if self._late_s < self._period_s:
            return {}
        return {
            "why": f"the worker's event loop was blocked for {self._late_s:.1f} s, so the lease"
            " was not renewed: a coroutine blocked it, or the process was suspended",
            "hint": "make the handler a plain 'def', which runs in a thread, or wrap the blocking"
            " part in 'await asyncio.to_thread(...)'",
        }

    def keep_in(self, outbox: WorkerOutbox) -> None:
        """Have what its run makes kept there while the engine does not answer."""
        self.outbox = RunOutbox(outbox, lambda why: self._lose(TenureLost(why, Verdict.FENCE)))

    # --- renewing ---------------------------------------------------------------------------------

    @property
    def lease_left_s(self) -> float:
        """How long the lease lasts by this machine's clock."""
        return self._lease_ms / 1000 - self._held_for_s

    def keep(self, work: asyncio.Future[Any], *, limit_s: float = 0, goes_on: bool = False) -> None:
        """Renew the lease and the loan while `work` runs; cancel it if they are lost.

        `limit_s` is a timeout for the work. With `goes_on` it keeps running while the engine does
        not answer, and is cancelled only when the log shows that another worker has the job.
        """
        self._work = work
        self._goes_on = goes_on
        now_s = self.loop.time()
        self._limit_s = now_s + limit_s if limit_s else math.inf
        self._follow_s = now_s + FOLLOW_AFTER_S
        self._tell_from_s = now_s + PROGRESS_AFTER_S
        self._move_on(now_s)
        self.leases.keep(self)

    def release(self) -> None:
        """Stop renewing."""
        self._notice_lateness()
        self._work = None
        self.leases.drop(self)
        if self._following is not None:
            self._following.cancel()
            self._following = None

    def _move_on(self, now_s: float) -> None:
        if now_s >= self._next_s or self._next_s == math.inf:
            self._next_s = now_s + min(self._period_s, self._loan_s / 3)
        self.due_s = min(self._next_s, self._limit_s, self._follow_s, self._progress_s)

    @property
    def _period_s(self) -> float:
        return self._lease_ms / 1000 * RENEW_AT / 2

    @property
    def _held_for_s(self) -> float:
        """Since the last acknowledged renewal."""
        return self.session.wall.boot_s() - self._renewed_boot_s

    @property
    def _is_renewal_due(self) -> bool:
        # A little early rather than a whole period late: timers fire with jitter.
        return self._held_for_s >= self._lease_ms / 1000 * RENEW_AT * 0.9

    def _notice_lateness(self) -> None:
        """A check that comes late was delayed by something that blocked the event loop."""
        late_s = self.loop.time() - self.due_s
        self._late_s = max(self._late_s, late_s)

    def look(self) -> None:
        """Stop, follow, renew or prolong, whichever is due."""
        self._notice_lateness()
        work = self._work
        if work is None or work.done():
            self.leases.drop(self)
            return
        now_s = self.loop.time()
        if now_s >= self._limit_s:
            self.is_out_of_time = True
            self._limit_s = math.inf
            work.cancel()
        elif now_s >= self._follow_s:
            self._follow_s = math.inf
            self._following = self.leases.spawn(self._follow())
        elif now_s >= self._progress_s:
            self._progress_s = math.inf
            self.leases.spawn(self._renew(is_extra=True))
        elif now_s >= self._next_s:
            self.delivery.in_progress()
            if self._held_for_s >= self._lease_ms / 1000 * STOP_AT and not self._goes_on:
                why = "no renewal was acknowledged in time"
                self._lose(TenureLost(why, Verdict.LEASE_OVER), work)
            elif self._is_renewal_due:
                self.leases.spawn(self._renew())
        self._move_on(now_s)

    def _lose(self, why: TenureLost, work: asyncio.Future[Any] | None = None) -> None:
        self.lost = self.lost or why
        target = work or self._work
        if target is not None:
            target.cancel()

    async def _follow(self) -> None:
        """Watch the job's own subject, so that a cancellation does not wait for a renewal."""
        subject = job_subjects.job(self.session.mesh, self.job.kind, self.job.id)
        try:
            async with self.session.log.follow(self.lane.job_tail, subject=subject) as batches:
                async for batch in batches:
                    async with self._writing:
                        if batch[-1].seq > self.lane.job_tail:
                            await self._look_again(batch[-1].seq)
        except TenureLost as lost:
            self._lose(lost)
        except AntiphonError:
            return  # the next renewal finds it out, too

    async def _look_again(self, at_least: int) -> JobView:
        view = await self.session.read_lane(self.job.kind, self.job.id, at_least=at_least)
        self._move(view.lane)
        if not self._is_ours():
            raise TenureLost("another node ended the tenure", Verdict.FENCE)
        return view

    def _is_ours(self) -> bool:
        return self.job.state in HELD and self.job.fence == self.fence

    def progressed(self, done: float, note: str) -> None:
        """Have the next renewal say how far the work is; soon, but at most one for this every 10 s.

        Whoever asks later reads it on the log, also when this worker has died.
        """
        self._progress = Progress(permille=round(done * 1000), note=note)
        if self._work is None or self._progress == self._told or self._progress_s < math.inf:
            return
        now_s = self.loop.time()
        self._progress_s = max(now_s, self._tell_from_s)
        self._move_on(now_s)
        self.leases.keep(self)

    async def _renew(self, *, is_extra: bool = False) -> None:
        if self._writing.locked() or self._work is None:
            return
        # An error must not end the task, whose group is the whole worker: then nothing is known, so
        # nothing is renewed, and a later check tries again or gives up.
        with suppress(AntiphonError):
            try:
                verdict = await self.renew(is_extra=is_extra)
            except Unavailable:
                self._renew_again_soon()
                raise
            if verdict is not Verdict.OK and not (
                # The tenure has not been ended: until it is, its completion counts.
                verdict is Verdict.LEASE_OVER and self._goes_on
            ):
                self._lose(TenureLost(f"the renewal was rejected: {verdict.in_words}", verdict))

    def _renew_again_soon(self) -> None:
        self._next_s = min(self._next_s, self.loop.time() + RENEW_AGAIN_S)
        self.due_s = min(self.due_s, self._next_s)
        if self._work is not None:
            self.leases.keep(self)

    async def renew(
        self, checkpoint: Checkpoint | None = None, *, is_extra: bool = False
    ) -> Verdict:
        """Renew the lease, and say what was stored of the work and how far it is.

        Raises as `write` does. A renewal that is refused because of its checkpoint changes nothing.
        """
        lease_ms = min(self._lease_ms * LEASE_GROWTH, self.job.lease_ms_max)
        if checkpoint is not None or is_extra:
            lease_ms = self._lease_ms  # an extra renewal does not make leases longer
        if self.beats is not None:
            lease_ms = self.beats.lease_ms(lease_ms)
        sent_boot_s = self.session.wall.boot_s()
        progress = self._progress if self._progress != self._told else None
        body = ClaimBody(
            kind=self.job.kind,
            job=self.job.id,
            lease_ms=lease_ms,
            fence=self.fence,
            beats_left=None if self.beats is None else self.beats.beats_left(),
            checkpoint=checkpoint,
            progress=progress,
        )
        try:
            verdict = await self.write(JobClaim, body)
        except TenureLost as lost:
            self._lose(lost)
            raise
        if verdict is Verdict.OK:
            self._renewed_boot_s = sent_boot_s
            self._lease_ms = lease_ms
            if progress is not None:
                self._told = progress
                self._tell_from_s = self.loop.time() + PROGRESS_EVERY_S
        return verdict

    # --- what its runs store ----------------------------------------------------------------------

    async def stored(self) -> list[ArtifactBody]:
        """What the runs of the job have stored, as the log has it now; raises as `write` does."""
        async with self._writing:
            view = await self._look_again(self.lane.job_tail)
        ops = (one.opened.op for one in view.history if one.verdict is Verdict.OK)
        return [op.body for op in ops if isinstance(op, JobArtifact)]

    async def store(
        self, body: ArtifactBody, before: Callable[[Draft], None] | None = None
    ) -> Verdict:
        """Write what the run has made; as `write` does."""
        try:
            return await self.write(JobArtifact, body, before=before)
        except TenureLost as lost:
            self._lose(lost)
            raise

    # --- writing ------------------------------------------------------------------------------

    async def write(
        self,
        op_type: type[JobOp],
        body: Struct,
        begun: Begun | None = None,
        before: Callable[[Draft], None] | None = None,
    ) -> Verdict:
        """Commit one op of this tenure and read back its verdict.

        `begun` is how far a turn has written it already. `before` is told of each record before
        it is sent.

        Raises `TenureLost` when the lane shows that another worker has the lease, and
        `Unavailable` when the engine does not answer: then nothing is known.
        """

        def again(now: Written) -> Intent | None:
            self._move(now.lane)
            return go_behind(now) if self._is_ours() else None

        policy = Policy(again=again, look=own_record, insists=False, before=before)
        async with self._writing:
            try:
                intent, turns = Intent(op_type, body, self.lane), self.leases.turns
                if begun is None:
                    written = await turns.write_one(intent, policy)
                else:
                    written = await turns.go_on(intent, policy, begun)
            except LostRace as lost:
                raise Unavailable(lost.message) from lost
            self._move(written.lane)
            if written.verdict is not None:
                return written.verdict
            verdict = self.session.foresee(op_type, body, self.lane, prev=self.lane.job_tail)
            raise TenureLost(f"{op_type.type_name()} came too late: {verdict.in_words}", verdict)

    def _move(self, lane: JobLane) -> None:
        self.lane = lane
        if lane.job is not None:
            self.job = lane.job
