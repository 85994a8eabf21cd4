"""One line in the worker's own log for each run: what ran, for whom, how long, how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.telemetry import TRACEBACK, LazyLogger

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import Failure
    from antiphon.core.families.jobs.state import Job
    from antiphon.ports import WallClock
    from antiphon.runtime.executors.executor import Ran
    from antiphon.runtime.worker.runs.run_figures import RunFigures

log = LazyLogger(__name__)


class RunReport:
    """Begins with the run; `ended` and `unfinished` write the line."""

    def __init__(self, job: Job, wall: WallClock, figures: RunFigures) -> None:
        """The run begins now."""
        self._job = job
        self._figures = figures
        figures.begun(job)
        self._wall = wall
        self._began_s = wall.boot_s()
        self._ran_s: float | None = None

    def stop_clock(self) -> None:
        """The run is over; what follows is writing its end."""
        self._ran_s = self._wall.boot_s() - self._began_s

    def unfinished(self, outcome: str) -> None:
        """It has no result here: `given_back`, `cancelled` or `lost`."""
        self._tell(outcome, None)

    def ended(self, ran: Ran, job: Job, *, is_accepted: bool) -> None:
        """The run's end was written; `job` is the job afterwards."""
        if not is_accepted:
            outcome = "lost"
        elif job.is_terminal:
            outcome = job.outcome or job.state.value
        else:
            outcome = "waits" if ran.after else "retries"
        self._tell(outcome, ran.failure)

    def _tell(self, outcome: str, failure: Failure | None) -> None:
        job = self._job
        if self._ran_s is None:
            self.stop_clock()
        seconds = round(self._ran_s or 0.0, 3)
        self._figures.over(job.kind, outcome, seconds)
        fields: dict[str, Any] = {
            "kind": job.kind,
            "job": job.id,
            "caller": job.scheduler,
            "attempt": job.attempts + 1,
            "seconds": seconds,
            "outcome": outcome,
        }
        if failure is None:
            log.info("job_ran", **fields)
            return
        first, *more = failure.message.split("\n")
        fields["problem"] = f"{failure.name}: {first}"
        # A command has no traceback; its message ends with the last lines of its standard error.
        if failure.traceback or more:
            fields[TRACEBACK] = failure.traceback or failure.message
        log.warning("job_ran", **fields)
