"""What a worker counts about its runs, for its metrics, and one line in its own log for each."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from antiphon.core.clock import hlc
from antiphon.runtime.histogram import Histogram
from antiphon.telemetry import TRACEBACK, LazyLogger

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import Failure
    from antiphon.core.families.jobs.state import Job
    from antiphon.runtime.executors.executor import Ran
    from antiphon.runtime.worker.runs.job_run import JobRun

log = LazyLogger(__name__)


class RunFigures:
    """Runs since the worker began. Its kinds are few: those that it has handlers for."""

    def __init__(self) -> None:
        """Nothing ran yet."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """By kind and outcome, as in the worker's log (`job_ran`)."""
        self.claim_s: dict[str, Histogram] = defaultdict(Histogram)
        """By kind: from when a job could be claimed to its claim."""
        self.run_s: dict[str, Histogram] = defaultdict(Histogram)
        """By kind: how long runs took."""

    def begun(self, job: Job) -> None:
        """A run begins under the job's present fence."""
        claimed_ms = hlc.unpack(job.fence).wall_ms
        self.claim_s[job.kind].add((claimed_ms - job.open_since_ms) / 1000)

    def succeeded(self, job: Job, seconds: float) -> None:
        """A run that took so long has ended its job, by the log."""
        self._count(job, seconds, "succeeded", None)

    def over(self, run: JobRun, ran: Ran, *, is_accepted: bool) -> None:
        """A run's end was written."""
        job = run.tenure.job
        if not is_accepted:
            outcome = "lost"
        elif job.is_terminal:
            outcome = job.outcome or job.state.value
        else:
            outcome = "waits" if ran.after else "retries"
        self._count(run.job, run.ended_s - run.began_s, outcome, ran.failure)

    def unfinished(self, run: JobRun) -> None:
        """A run has no result here."""
        tenure = run.tenure
        outcome = "given_back" if tenure.lost is None else "lost"
        outcome = "cancelled" if tenure.job.outcome == "cancelled" else outcome
        self._count(run.job, run.ended_s - run.began_s, outcome, None)

    def _count(self, job: Job, took_s: float, outcome: str, failure: Failure | None) -> None:
        seconds = round(took_s, 3)
        self.ended[job.kind, outcome] += 1
        self.run_s[job.kind].add(seconds)
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
