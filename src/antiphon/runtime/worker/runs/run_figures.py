"""What a worker counts about its runs, for its metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from antiphon.core.clock import hlc
from antiphon.runtime.histogram import Histogram

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job


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

    def over(self, kind: str, outcome: str, seconds: float) -> None:
        """A run has ended."""
        self.ended[kind, outcome] += 1
        self.run_s[kind].add(seconds)
