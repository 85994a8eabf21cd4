"""What a full node counts about jobs while it follows the log, for its metrics.

Everything follows from accepted records, so two nodes that follow the same records count the same.
Kinds are labels of metrics: beyond `MAX_KINDS` they are counted together as `OTHERS`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import JobExpire
from antiphon.core.families.jobs.state import HELD, Job
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.histogram import Histogram

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import Applied, FullNode

MAX_KINDS: Final = 200
OTHERS: Final = "(others)"


class JobFigures:
    """Counts from the moment it is made; jobs by state and kind are all there are."""

    def __init__(self, node: FullNode) -> None:
        """Looks at every job on the replica once, and then at every record."""
        sizes = node.replica.sizes
        self._kinds: set[str] = set()
        self.jobs: Counter[tuple[str, str]] = Counter()
        """By kind and state."""
        for (kind, state), number in sizes.by_kind_and_state().items():
            self.jobs[self._kind(kind), state] += number
        self.log_bytes = sizes.log_bytes()
        self.records: Counter[str] = Counter()
        """By verdict."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """By kind and outcome."""
        self.lease_losses: Counter[str] = Counter()
        """By kind: leases that somebody expired."""
        self.claim_s: dict[str, Histogram] = defaultdict(Histogram)
        """By kind: from when a job could be claimed to its claim."""
        self.run_s: dict[str, Histogram] = defaultdict(Histogram)
        """By kind: from a claim to the end of the tenure, unless that expired."""
        node.watchers.append(self.note)

    def _kind(self, kind: str) -> str:
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            return OTHERS
        self._kinds.add(kind)
        return kind

    def note(self, applied: Applied) -> None:
        """Count one record."""
        self.records[applied.verdict] += 1
        self.log_bytes += len(applied.record.payload)
        job, before = applied.after, applied.before
        if applied.verdict is not Verdict.OK or not isinstance(job, Job):
            return
        kind, commit_ms = self._kind(job.kind), applied.record.commit_ms
        before = before if isinstance(before, Job) else None
        if before is not None:
            self._leave(kind, before)
        self.jobs[kind, job.state.value] += 1
        if before is None:
            return
        if job.is_terminal and not before.is_terminal:
            self.ended[kind, job.outcome or job.state.value] += 1
        was_held, is_held = before.state in HELD, job.state in HELD
        if is_held and not was_held:
            self.claim_s[kind].add((commit_ms - before.open_since_ms) / 1000)
        if was_held and not is_held:
            if isinstance(applied.opened.op, JobExpire):
                self.lease_losses[kind] += 1
            else:
                began_ms = hlc.unpack(before.fence).wall_ms
                self.run_s[kind].add((commit_ms - began_ms) / 1000)

    def _leave(self, kind: str, before: Job) -> None:
        key = kind, before.state.value
        self.jobs[key] -= 1
        if self.jobs[key] <= 0:
            del self.jobs[key]


__all__ = ["Histogram", "JobFigures"]
