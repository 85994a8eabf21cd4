"""One run of a job: what its handler and its executor tell the worker and ask of it.

What a plain job does not use is made when it is first used: the gauge of what it used, the sender
of its output, its checkpoints, its steps, its beats, the timer of its budget.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import structs

from antiphon.core.cost.job_cost import cost_of
from antiphon.core.cost.usage import Usage, storage_kbh
from antiphon.core.policy.budget_watch import BeatCount
from antiphon.core.tempo.policy import DEFAULT_POLICY, policy_hash
from antiphon.runtime.executors.usage_gauge import UsageGauge
from antiphon.runtime.worker.job_output import LiveOutputSender
from antiphon.runtime.worker.runs.budget_timer import BudgetTimer
from antiphon.runtime.worker.runs.checkpoint_saver import CheckpointSaver
from antiphon.runtime.worker.runs.kept_output import KeptOutput
from antiphon.runtime.worker.runs.run_beats import RunBeats
from antiphon.runtime.worker.runs.stored_steps import StoredSteps
from antiphon.runtime.worker.runs.stream_writer import StreamWriter

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence
    from concurrent.futures import Future

    from antiphon.core.cost.job_cost import Cost
    from antiphon.core.cost.usage import Reported
    from antiphon.core.families.jobs.ops import Checkpoint
    from antiphon.core.policy.phrase_run import RunTime
    from antiphon.core.proof.output import Output
    from antiphon.core.tempo.messages import TaskState
    from antiphon.core.tempo.phases import Phase
    from antiphon.core.tempo.score import Waited
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.executors.printed_output import Stream
    from antiphon.runtime.executors.run_services import Help, PartSink, Saved, StoredStep
    from antiphon.runtime.inference.recorder import Recorder
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.worker.runs.model_calls import ModelCalls
    from antiphon.runtime.worker.runs.status_sender import StatusSender
    from antiphon.runtime.worker.tenure import Tenure

T = TypeVar("T")

_making: Final = threading.Lock()
"""For what any thread of a handler may be the first to use."""


class JobRun:
    """The run of one tenure."""

    beats: RunBeats | None = None
    budget: BudgetTimer | None = None
    saver: CheckpointSaver | None = None
    steps: StoredSteps | None = None
    stream: StreamWriter | None = None
    model_calls: ModelCalls | None = None
    """Its model calls, if these are audited."""
    kept: KeptOutput | None = None
    """What it printed, if its task wants that stored."""
    artifacts: Artifacts | None = None
    """Where checkpoints and kept output are stored; the executor says it."""
    live: LiveOutputSender | None = None
    """Sends what it prints, from the first of it on."""
    call: asyncio.Future[Any] | None = None
    """Its handler, if that was called before there was a run."""
    _gauge: UsageGauge | None = None
    _is_released = False
    began_s = ended_s = 0.0
    """On the clock that runs in suspend."""

    def __init__(self, tenure: Tenure, clock: BeatClock, status: StatusSender) -> None:
        """Nothing runs yet."""
        self.tenure = tenure
        self.job = tenure.job
        """As it was claimed."""
        self.slot: object = self
        """Under what name it has its slot."""
        self.body = body = tenure.body
        self.clock = clock
        self._status = status
        if body.score is not None:
            self.in_time()
        if tenure.job.is_audited:
            from antiphon.runtime.worker.runs.model_calls import ModelCalls

            self.model_calls = ModelCalls(tenure, lambda: self.artifacts)

    def in_time(self) -> RunBeats:
        """Its beats; from any thread."""
        with _making:
            if self.beats is None:
                self.beats = RunBeats(
                    self.tenure, self.clock, self._status, self.ask_for_checkpoint
                )
            return self.beats

    # --- its limits -------------------------------------------------------------------------------

    def keep(self, work: asyncio.Future[Any], give_up: Callable[[], object]) -> None:
        """End the work where its beats or its budget end; `give_up` if it does not end then."""
        if self.body.score is not None or self.clock.mode() == "leader":
            self.in_time().keep(work, give_up)
        if self.body.budget is not None:
            self.budget = BudgetTimer(self.tenure, self.body.budget, self.gauge, self.clock)
            self.budget.watch(work, give_up)

    def end_call(self, _: object) -> None:
        """End its handler, if that was called before there was a run."""
        if self.call is not None:
            self.call.cancel()

    def release(self) -> None:
        """The work is over, or is no longer waited for."""
        with _making:
            self._is_released = True
        for used in (self.beats, self.budget, self.saver, self.steps, self.stream, self.live):
            if used is not None:
                used.close()

    @property
    def is_cut(self) -> bool:
        """Whether it was ended for its beats or its budget: what it returns then does not count."""
        beats, budget = self.beats, self.budget
        return bool((beats and beats.over) or (budget and budget.over))

    @property
    def gave_up(self) -> bool:
        """Whether the work did not end when it was cut, so that the wait for it was."""
        beats, budget = self.beats, self.budget
        return bool((beats and beats.gave_up) or (budget and budget.gave_up))

    def speak(self, state: TaskState) -> None:
        """Send its state, if it has sent one before."""
        if self.beats is not None:
            self.beats.speak(state, first=False)

    # --- what it tells and asks -------------------------------------------------------------------

    @property
    def gauge(self) -> UsageGauge:
        """What it has used."""
        with _making:
            if self._gauge is None:
                self._gauge = UsageGauge()
            return self._gauge

    @property
    def recorder(self) -> Recorder | None:
        """Who is told of its model calls; None: they are not audited."""
        return None if self.model_calls is None else self.model_calls.recorder

    def store_in(self, artifacts: Artifacts | None, *, keeps_output: bool = False) -> None:
        """Where checkpoints are stored, and what is printed if that is to be kept."""
        self.artifacts = artifacts
        if keeps_output:
            self.kept = KeptOutput()

    def output(self, stream: Stream, data: bytes) -> None:
        """Tell followers what the job wrote; from any thread."""
        if self.kept is not None:
            self.kept.add(data)
        live = self._sender()
        if live is not None:
            live.output(stream, data)

    def progress(self, done: float, note: str = "") -> None:
        """Tell followers how far it is; from any thread."""
        live = self._sender()
        if live is not None:
            live.progress(done, note)

    def _sender(self) -> LiveOutputSender | None:
        with _making:
            if self.live is None and not self._is_released:
                tenure, job = self.tenure, self.tenure.job
                name = (job.kind, job.id, tenure.fence)
                self.live = LiveOutputSender(tenure.session, *name, loop=tenure.loop)
                self.live.on_progress = self._progressed
            return self.live

    def _progressed(self, done: float, note: str) -> None:
        """In the event loop."""
        if self.beats is not None:
            self.beats.progressed(done, note)
        self.tenure.progressed(done, note)

    def reported(self, said: Reported) -> None:
        """What the handler says that it used; from any thread."""
        self.gauge.reported(said)

    def checkpoint(self, data: bytes) -> Saved:
        """Store what the job has done so far; from any thread."""
        return self._checkpoints().give(data)

    def save_with(self, saver: Callable[[], bytes]) -> None:
        """Ask this function for a checkpoint when the run is cut or given back."""
        self._checkpoints().saver = saver

    def _checkpoints(self) -> CheckpointSaver:
        with _making:
            if self.saver is None:
                self.saver = CheckpointSaver(self.tenure, self.clock, self.artifacts)
                if self._is_released:
                    self.saver.close()
            return self.saver

    def find_step(self, name: str) -> Future[StoredStep | None]:
        """The stored result of a step; from any thread."""
        return self._steps().find(name)

    def store_step(self, name: str, step: StoredStep) -> Future[None]:
        """Store the result of a step; from any thread."""
        return self._steps().store(name, step)

    def _steps(self) -> StoredSteps:
        with _making:
            if self.steps is None:
                self.steps = StoredSteps(self.tenure, self.artifacts)
                if self._is_released:
                    self.steps.close()
            return self.steps

    def parts(self) -> PartSink:
        """Where the parts of its stream go; in the event loop."""
        self.stream = StreamWriter(self.tenure, self.artifacts)
        return self.stream

    def time(self) -> tuple[RunTime, int]:
        """The job's place in time, and the time that beats are counted in."""
        return self.in_time().time()

    def next_phase(self) -> Phase:
        """Move on; `Overrun` if the phase before has used up its beats. From any thread."""
        return self.in_time().next_phase()

    async def wait_for(self, awaited: Awaitable[T], what: Waited, name: str) -> T:
        """Wait, within the budget for such waits."""
        return await self.in_time().wait_for(awaited, what, name)

    def help(self, about: str) -> Help:
        """Ask whoever works on this kind; in the event loop."""
        return self.in_time().help(about)

    async def escalated(self) -> None:
        """Wait until what it emitted is stored, which comes before the end of its tenure."""
        if self.beats is not None:
            await self.beats.escalated()

    # --- its checkpoints --------------------------------------------------------------------------

    def ask_for_checkpoint(self) -> None:
        """Have the handler's own function make one, for the end of the tenure."""
        if self.saver is not None:
            self.saver.ask()

    def forget_checkpoint(self) -> None:
        """Do not store what is not stored yet."""
        if self.saver is not None:
            self.saver.forget()

    async def last_checkpoint(self) -> Checkpoint | None:
        """What the handler gave last, stored for the end of the tenure."""
        return None if self.saver is None else await self.saver.last()

    # --- what it has used -------------------------------------------------------------------------

    def usage(self, outputs: Sequence[Output]) -> Usage:
        """What it has used, with what it takes to keep its outputs."""
        stored = sum(output.size for output in outputs if output.text is None)
        kept_ms = self.tenure.session.control.rules.artifact_ttl_ms
        kbh, wall_ms = storage_kbh(stored, kept_ms), self.tenure.held_ms
        if self._gauge is None:
            return Usage(wall_ms=wall_ms, storage_kbh=kbh)
        used = structs.replace(self._gauge.now(), storage_kbh=kbh)
        return Usage(wall_ms=wall_ms, **structs.asdict(used))

    def cost(self, usage: Usage) -> Cost | None:
        """What it has cost; None on a mesh without a tempo policy, for a job without a budget.

        Then the beats follow from the time that it took, and nothing has a price.
        """
        policy = self.tenure.session.control.tempo
        if self.budget is not None:
            beats_milli = self.budget.beats_milli()
        elif self.body.budget is None and policy == DEFAULT_POLICY:
            return None
        else:
            counted = BeatCount()
            counted.count(self.tenure.held_ms, self.clock.meter().beat_ms)
            beats_milli = counted.milli
        kind = self.tenure.job.kind
        return cost_of(policy_hash(policy), policy.rates, kind, beats_milli=beats_milli, used=usage)
