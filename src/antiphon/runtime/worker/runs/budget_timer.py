"""One run under its budget: its beats are counted, and a timer enforces its caps.

Only a job with a budget has one. When a cap is exceeded the work is cancelled: a coroutine at
its next `await`, a process or a command by being killed. A thread cannot be stopped: its job ends,
and the thread goes on until its function returns; it should look at `ctx.cancelled`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.families.jobs.ops import Failure
from antiphon.core.policy.attempt_end import Fault
from antiphon.core.policy.budget_watch import OVER_BUDGET, BeatCount, BudgetWatch, Exceeded
from antiphon.runtime.executors.executor import Ran
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.tempo.budget import Budget
    from antiphon.runtime.executors.usage_gauge import UsageGauge
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.worker.tenure import Tenure

STUBBORN_S: Final = 5.0
"""How long work that was cancelled may take to end before its job ends without it."""

log = LazyLogger(__name__)


class BudgetTimer:
    """Watches one run that has a budget."""

    def __init__(self, tenure: Tenure, budget: Budget, gauge: UsageGauge, clock: BeatClock) -> None:
        """`gauge` knows what was used, `clock` which beat it is."""
        self._tenure = tenure
        self._gauge = gauge
        self._clock = clock
        self._counted = BeatCount()
        self._watch = BudgetWatch(
            budget,
            kind=tenure.job.kind,
            earlier=tenure.job.total_spent,
            rates=tenure.session.control.tempo.rates,
            start_ms=clock.now_ms() - tenure.held_ms,
            meter=clock.meter(),
        )
        self._work: asyncio.Future[Any] | None = None
        self._give_up: Callable[[], object] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self.gave_up = False
        """Whether the work did not end when it was cancelled, so that its task was."""
        self.over: Exceeded | None = None
        """The cap for which the run was cancelled."""

    def watch(self, work: asyncio.Future[Any], give_up: Callable[[], object]) -> None:
        """Cancel `work` when it exceeds the budget; `give_up` if it does not end then."""
        self._work, self._give_up = work, give_up
        self._gauge.on_report = partial(self._reported, asyncio.get_running_loop())
        self._look()

    def close(self) -> None:
        """Watch no longer; safe twice."""
        self._gauge.on_report = None
        self._work = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _reported(self, loop: asyncio.AbstractEventLoop) -> None:
        """The handler has reported something, in the loop or in its thread."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        with suppress(RuntimeError):  # a thread may outlive the loop
            (loop.call_soon if here is loop else loop.call_soon_threadsafe)(self._look_again)

    def _look_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._look()

    def _look(self) -> None:
        watch, work = self._watch, self._work
        if work is None or work.done() or self.over is not None:
            return
        now_ms, meter = self._clock.now_ms(), self._clock.meter()
        beats = self.beats_milli()
        loop = asyncio.get_running_loop()
        over = watch.look(now_ms, meter, beats_milli=beats, used=self._gauge.now())
        if over is not None and work.cancel():
            self.over = over
            log.info("job_over_budget", job=self._tenure.job.id, cap=over.cap, why=over.words)
            self._timer = loop.call_later(STUBBORN_S, self._insist)
            return
        wait_ms = watch.next_look_ms(now_ms, meter, beats_milli=beats)
        self._timer = loop.call_later(wait_ms / 1000, self._look)

    def _insist(self) -> None:
        self.gave_up = True
        self._give_up()

    def beats_milli(self) -> int:
        """The beats of this run so far, in thousandths."""
        self._counted.count(self._tenure.held_ms, self._clock.meter().beat_ms)
        return self._counted.milli

    def failure(self) -> Ran:
        """The result of a run that was over its budget."""
        words = self.over.message if self.over is not None else ""
        failure = Failure(name=OVER_BUDGET, message=words)
        return Ran(runner=python_runner(), fault=Fault(failure=failure, is_final=True))
