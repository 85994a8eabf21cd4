"""One run in time: its phrase, the waits and the help of its score, the status that it sends.

Only a run that has a score, that a leader's beats are heard for, or whose handler asks has one. The
worker's one timer looks at it on every beat, and where its phase ends. A run that uses up its beats
is cut there: what the score says for that case is done, and its tenure ends (`run_end`).
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from antiphon.core.policy.phrase_run import (
    PhraseRun,
    RunTime,
    WaitUse,
    beats_text,
    capped_phases,
    capped_waits,
)
from antiphon.core.tempo.budget import Budget
from antiphon.core.tempo.messages import StatusClaim, TaskState
from antiphon.core.tempo.time_text import hlc_text
from antiphon.errors import Overrun, WaitExhausted
from antiphon.runtime.tempo.help_threads import HelpThread
from antiphon.runtime.worker.runs.budget_timer import STUBBORN_S
from antiphon.runtime.worker.runs.escalation_writer import EscalationWriter
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.tempo.phases import Phase
    from antiphon.core.tempo.score import Score, Waited
    from antiphon.runtime.executors.run_services import Help
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.worker.runs.status_sender import StatusSender
    from antiphon.runtime.worker.tenure import Tenure

MAX_NOTE: Final = 512
STATES: Final[dict[str, TaskState]] = {
    "plan": "planning",
    "work": "executing",
    "review": "review",
}

T = TypeVar("T")
log = LazyLogger(__name__)


class RunBeats:
    """The beats of one run."""

    def __init__(
        self,
        tenure: Tenure,
        clock: BeatClock,
        status: StatusSender,
        on_cut: Callable[[], object],
    ) -> None:
        """Its phrase is the tenure's. `on_cut` is called before a run is cut that has a score."""
        self.tenure = tenure
        self.clock = clock
        self.score: Score | None = tenure.body.score
        self.phrase: PhraseRun | None = tenure.phrase
        self.over = ""
        """Why it was cut, in words; empty: it was not."""
        self.exhausted: WaitExhausted | None = None
        """The first wait that used up its budget."""
        self.gave_up = False
        """Whether the work did not end when it was cut, so that the wait for it was."""
        self.due_s = math.inf
        self._escalations: EscalationWriter | None = None
        self._on_cut = on_cut
        self._give_up: Callable[[], object] = lambda: None
        self._status = status
        self._loop = tenure.loop
        self._work: asyncio.Future[Any] | None = None
        self._budget = tenure.body.budget
        self._waits: WaitUse | None = None
        self._waiting: dict[str, int] = {}
        """What the handler waits for, and how many times at once."""
        self._threads: list[HelpThread] = []
        self._progress = (0.0, "")
        self._note = ""
        self._has_spoken = False
        self._beat_epoch_ms = 0
        """When the beat began that was looked at last."""
        if self.phrase is not None:
            tenure.beats = self

    @property
    def waits(self) -> WaitUse | None:
        """How long it has waited; None without a score."""
        if self._waits is None and self.score is not None and self.phrase is not None:
            caps = (self._budget or Budget()).wait_caps
            waits = capped_waits(self.score.wait_budget, caps)
            self._waits = WaitUse(budget=waits, beat_ms=self.phrase.meter.beat_ms)
        return self._waits

    # --- the timer --------------------------------------------------------------------------------

    def keep(self, work: asyncio.Future[Any], give_up: Callable[[], object]) -> None:
        """Look at it from now on; `give_up` ends the wait for work that does not end when cut."""
        self._work, self._give_up = work, give_up
        if self.phrase is None:
            self._set_due()
        else:
            # The claim was a moment ago, so the phrase's beat is the next one.
            ahead_ms = self.phrase.began_ms - self.clock.now_ms()
            self._beat_epoch_ms = self.phrase.began_ms
            self.due_s = self._loop.time() + max(ahead_ms, 0) / 1000
        self.tenure.leases.keep(self)

    def close(self) -> None:
        """Stop looking."""
        self._work = None
        self.tenure.leases.drop(self)
        for thread in self._threads:
            thread.close()

    def look(self) -> None:
        """Cut it or send a claim, whichever is due."""
        work = self._work
        if work is None or work.done():
            self.tenure.leases.drop(self)
            return
        self._notice_lateness()
        now_ms = self.clock.now_ms()
        if self.over:
            self._abandon()
            return
        if self.phrase is not None and self.phrase.is_over(now_ms):
            self._cut(f"it used up {self.phrase.overran}")
            return
        epoch_ms = self.clock.meter().beat_at(now_ms).epoch_ms
        if epoch_ms != self._beat_epoch_ms:
            self._beat_epoch_ms = epoch_ms
            self.speak()
        self._set_due()

    def _cut(self, why: str) -> None:
        """End the run: what the handler has is asked for first."""
        if self._work is None:
            return
        self.over = why
        self._on_cut()
        self._work.cancel()
        self.due_s = self._loop.time() + STUBBORN_S
        self.tenure.leases.keep(self)

    def _abandon(self) -> None:
        self.due_s = math.inf
        self.gave_up = True
        self._give_up()

    def _set_due(self) -> None:
        now_ms, meter = self.clock.now_ms(), self.clock.meter()
        beat = meter.beat_at(now_ms)
        self._beat_epoch_ms = self._beat_epoch_ms or beat.epoch_ms
        next_ms = beat.epoch_ms + meter.beat_ms
        if self.phrase is not None:
            next_ms = min(next_ms, self.phrase.ends_ms)
        self.due_s = self._loop.time() + max(next_ms - now_ms, 0) / 1000

    def _looked_at_again(self) -> None:
        """What is due has changed; in the event loop."""
        if self._work is not None and not self.over:
            self._set_due()
            self.tenure.leases.keep(self)

    def _notice_lateness(self) -> None:
        late_s = self._loop.time() - self.due_s
        if late_s >= self.clock.meter().beat_ms / 1000:
            job = self.tenure.job
            self._note = f"the worker's event loop was blocked for {late_s:.1f} s"
            log.warning(
                "event_loop_blocked",
                kind=job.kind,
                job=job.id,
                seconds=round(late_s, 1),
                why="a handler that does not await cannot be cut at the end of its beats",
                hint="make it a plain 'def', which runs in a thread, or give it run_in=\"process\"",
            )

    # --- its leases -------------------------------------------------------------------------------

    def lease_ms(self, wanted_ms: int) -> int:
        """A lease that ends with a phase or a bar."""
        job, rules = self.tenure.job, self.tenure.session.control.rules
        if self.phrase is None:
            return wanted_ms
        return self.phrase.lease_ms(
            self.clock.now_ms(),
            wanted_ms=wanted_ms,
            least_ms=rules.lease_min_ms,
            most_ms=job.lease_ms_max,
        )

    def time(self) -> tuple[RunTime, int]:
        """The job's place in time, and the time that beats are counted in."""
        clock = self.clock
        time = RunTime(meter=clock.meter(), phases=clock.phases(), phrase=self.phrase)
        return time, clock.now_ms()

    def beats_left(self) -> int:
        """Until the run is cut; without a score, until the bar ends."""
        time, now_ms = self.time()
        return time.beats_left(now_ms)

    def next_phase(self) -> Phase:
        """Move on; `Overrun` if the phase before has used up its beats. From any thread."""
        now_ms = self.clock.now_ms()
        if self.phrase is None:
            return self.time()[0].phase(now_ms)
        self.phrase = self.phrase.moved_on(now_ms)
        if self.phrase.is_over(now_ms):
            raise Overrun(f"it used up {self.phrase.overran}")
        self._loop.call_soon_threadsafe(self._looked_at_again)
        self._loop.call_soon_threadsafe(self.speak)
        return self.phrase.phase_at(now_ms)

    async def wait_for(self, awaited: Awaitable[T], what: Waited, name: str) -> T:
        """Wait, within the budget for such waits."""
        thread: object = awaited
        if isinstance(thread, HelpThread):
            what, name = "help", name or f"help {thread.thread_id[:8]}"
            awaited = cast("Awaitable[T]", thread.answered())
        waits, name = self.waits, name or what
        if waits is None:
            return await awaited
        began_ms = self.clock.now_ms()
        limit = asyncio.timeout(waits.left_ms(what) / 1000)
        self._waits_for(name, 1)
        try:
            async with limit:
                return await awaited
        except TimeoutError:
            if not limit.expired():
                raise  # somebody else's
            beats = waits.budget.help if what == "help" else waits.budget.io
            words = f"it used up its {beats_text(beats)} of waiting for {what}"
            raise self._spent(WaitExhausted(words, what=what, on=name)) from None
        except WaitExhausted as missing:
            raise self._spent(missing) from None
        finally:
            self._waits_for(name, -1)
            self._waits = waits.waited(what, self.clock.now_ms() - began_ms)

    def _spent(self, spent: WaitExhausted) -> WaitExhausted:
        """Note it, and tell listeners what the score says."""
        if self.exhausted is None:
            self.exhausted = spent
            if self.score is not None:
                self.emit(self.score.escalation.on_wait_exhausted, spent.message)
        return spent

    def _waits_for(self, name: str, change: int) -> None:
        self._waiting[name] = self._waiting.get(name, 0) + change
        if not self._waiting[name]:
            del self._waiting[name]
        self.speak(first=False)

    def help(self, about: str) -> Help:
        """Ask whoever works on this kind; in the event loop."""
        job, waits = self.tenure.job, self.waits
        meter, now_ms = self.clock.meter(), self.clock.now_ms()
        beats = meter.bar_len if waits is None else waits.left_ms("help") // meter.beat_ms
        thread = HelpThread(
            self.tenure.session,
            (job.kind, job.id),
            about,
            beats=beats,
            beat_ms=meter.beat_ms,
            promise_within_ms=meter.downbeat_after(now_ms) - now_ms,
            wait=lambda one: self.wait_for(one, "help", ""),
            missing=self._spent,
        )
        self._threads.append(thread)
        self.tenure.leases.spawn(thread.run())
        return thread

    # --- what it says -----------------------------------------------------------------------------

    def progressed(self, done: float, note: str) -> None:
        """What it says from now on."""
        self._progress = (done, note)

    def emit(self, escalations: Sequence[str], why: str) -> None:
        """Tell listeners by each name that is to be emitted, and whoever looks later."""
        job = self.tenure.job
        for one in escalations:
            action, _, name = one.partition(":")
            if action == "emit":
                log.warning("job_emits", name=name, kind=job.kind, job=job.id, why=why)
                if self._escalations is None:
                    self._escalations = EscalationWriter(self.tenure)
                self._escalations.put(name, why)
                self._note = f"{name}: {why}"
                self.speak()

    async def escalated(self) -> None:
        """Wait until what was emitted is stored."""
        if self._escalations is not None:
            await self._escalations.stored()

    def speak(self, state: TaskState | None = None, *, first: bool = True) -> None:
        """Send what is so now; with `first` False only if this job has sent one before."""
        if not (first or self._has_spoken) or not self._speaks:
            return
        self._has_spoken = True
        job, author = self.tenure.job, self.tenure.session.author
        done, said = self._progress
        time, now_ms = self.time()
        if state is None:
            state = "waiting" if self._waiting else STATES[time.phase(now_ms)]
        claim = StatusClaim(
            agent_id=author.did,
            task_id=f"{job.kind}/{job.id}",
            beat_index=time.beat(now_ms),
            state=state,
            hlc=hlc_text(author.now()),
            wait_for=tuple(self._waiting)[:16],
            beats_left=time.beats_left(now_ms),
            progress=done,
            notes=(self._note or said)[:MAX_NOTE],
        )
        self._status.say(job.kind, claim)

    @property
    def _speaks(self) -> bool:
        return self.score is not None or self.clock.mode() == "leader"


def phrase_of(clock: BeatClock, job: Job, body: ScheduleBody) -> PhraseRun | None:
    """The phrase of a tenure that begins now; None for a job without a score."""
    if body.score is None:
        return None
    caps = None if body.budget is None else body.budget.phase_caps
    phases = capped_phases(body.score, job.attempts, caps)
    return PhraseRun.begin(clock.meter(), phases, clock.now_ms())
