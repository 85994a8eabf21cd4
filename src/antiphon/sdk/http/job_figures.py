"""What a full node counts about jobs while it follows the log, for its metrics.

Everything follows from accepted records, so two nodes that follow the same records count the same.
Kinds are labels of metrics, and anyone who may submit jobs can make up kinds. So at most
`MAX_KINDS` are labels, and the rest is counted together as `OTHERS`. Kinds that workers run come
first, those with the newest claims before others. A kind that nobody runs is a label only while
there is room.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final

from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import JobExpire
from antiphon.core.families.jobs.state import HELD, Job
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antiphon.runtime.node.full_node import Applied, FullNode

MAX_KINDS: Final = 200
OTHERS: Final = "(others)"


class KindLabels:
    """Which kinds are labels, `most` at the same time."""

    def __init__(self, most: int) -> None:
        """None is."""
        self._most = most
        self._run: dict[str, None] = {}
        """Kinds that a worker has claimed jobs of, the newest claim last."""
        self._not_run: dict[str, None] = {}

    def __iter__(self) -> Iterator[str]:
        return chain(self._run, self._not_run)

    def of(self, kind: str) -> str:
        """The label of a kind: its own if it has one, or if there is room."""
        if kind in self._run or kind in self._not_run:
            return kind
        if len(self._run) + len(self._not_run) >= self._most:
            return OTHERS
        self._not_run[kind] = None
        return kind

    def claimed(self, kind: str) -> str | None:
        """A worker has claimed a job of this kind, so it is a label; the one that gives way."""
        self._run.pop(kind, None)
        self._not_run.pop(kind, None)
        self._run[kind] = None
        if len(self._run) + len(self._not_run) <= self._most:
            return None
        least = self._not_run or self._run
        gone = next(iter(least))
        del least[gone]
        return gone


class JobFigures:
    """Counts from the moment it is made; jobs by state and kind are all there are."""

    def __init__(self, node: FullNode) -> None:
        """Looks at the kinds on the replica once, and then at every record."""
        self._sizes = node.replica.sizes
        self._labels = KindLabels(MAX_KINDS)
        for kind, is_run in self._sizes.kinds(MAX_KINDS):
            if is_run:
                self._labels.claimed(kind)
            else:
                self._labels.of(kind)
        self.log_bytes = self._sizes.log_bytes()
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

    @property
    def jobs(self) -> Counter[tuple[str, str]]:
        """By kind and state: all jobs on the replica."""
        found = Counter(self._sizes.of_kinds(list(self._labels)))
        others = Counter({(OTHERS, state): n for state, n in self._sizes.by_state().items()})
        for (_, state), number in found.items():
            others[OTHERS, state] -= number
        return found + others

    def note(self, applied: Applied) -> None:
        """Count one record."""
        self.records[applied.verdict] += 1
        self.log_bytes += len(applied.record.payload)
        job, before = applied.after, applied.before
        if applied.verdict is not Verdict.OK or not isinstance(job, Job):
            return
        is_held = job.state in HELD
        was_held = isinstance(before, Job) and before.state in HELD
        if is_held and not was_held:
            self._note_claimed(job.kind)
        kind, commit_ms = self._labels.of(job.kind), applied.record.commit_ms
        if not isinstance(before, Job):
            return
        if job.is_terminal and not before.is_terminal:
            self.ended[kind, job.outcome or job.state.value] += 1
        if is_held and not was_held:
            self.claim_s[kind].add((commit_ms - before.open_since_ms) / 1000)
        if was_held and not is_held:
            if isinstance(applied.opened.op, JobExpire):
                self.lease_losses[kind] += 1
            else:
                began_ms = hlc.unpack(before.fence).wall_ms
                self.run_s[kind].add((commit_ms - began_ms) / 1000)

    def _note_claimed(self, kind: str) -> None:
        """Make it a label. What the one counted that gives way is the others' from now on."""
        gone = self._labels.claimed(kind)
        if gone is None:
            return
        for (counted, outcome), number in list(self.ended.items()):
            if counted == gone:
                self.ended[OTHERS, outcome] += number
                del self.ended[counted, outcome]
        if lost := self.lease_losses.pop(gone, 0):
            self.lease_losses[OTHERS] += lost
        for histograms in (self.claim_s, self.run_s):
            if (histogram := histograms.pop(gone, None)) is not None:
                histograms[OTHERS].add_all(histogram)


__all__ = ["Histogram", "JobFigures", "KindLabels"]
