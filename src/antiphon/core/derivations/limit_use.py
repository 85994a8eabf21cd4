"""How much of the mesh-wide limits is in use (spec §7.3).

What counts is on the log: for `at_once`, jobs with the label that were offered and have not ended;
for `rate`, when each was first offered. The coordinator offers while there is room, and full nodes
count again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from antiphon.core.authority.rules import Limit, Rules
    from antiphon.core.families.jobs.state import Job

UNLIMITED: Final = 1 << 30


class LimitUse:
    """The use of each label that has a limit, from the states of the jobs that name it.

    Whoever submits jobs may name any number of others: nothing is kept of them.
    """

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        """Nothing is in use yet."""
        known = {one.label: one for one in limits}
        self._open: dict[str, set[tuple[str, str]]] = {label: set() for label in known}
        self._offered = {
            label: deque[int](maxlen=one.rate)
            for label, one in known.items()
            if one.rate is not None
        }
        """When the newest were offered: as many as the rate allows tell whether there is room."""

    def see(self, job: Job) -> None:
        """Count a job as its state says, before or after any other."""
        counted = self._open.get(job.concurrency)
        if counted is None:
            return
        if job.is_open_under_limit:
            counted.add((job.kind, job.id))
        else:
            counted.discard((job.kind, job.id))

    def offered(self, label: str, at_ms: Iterable[int]) -> None:
        """Note when jobs with a label were first offered, oldest first."""
        if label in self._offered:
            self._offered[label].extend(at_ms)

    def open(self, label: str) -> int:
        """How many jobs with this label are offered and have not ended."""
        return len(self._open.get(label, ()))

    def room(self, limit: Limit | None, now_ms: int) -> int:
        """How many more jobs with the label may be offered now."""
        if limit is None:
            return UNLIMITED
        room = UNLIMITED
        if limit.at_once is not None:
            room = limit.at_once - self.open(limit.label)
        if limit.rate is not None:
            recent = self._recent(limit, now_ms)
            room = min(room, limit.rate - len(recent))
        return max(room, 0)

    def next_ms(self, limit: Limit, now_ms: int) -> int | None:
        """When the rate lets another one begin; None if it does now, or there is no rate."""
        if limit.rate is None:
            return None
        recent = self._recent(limit, now_ms)
        return None if len(recent) < limit.rate else recent[-limit.rate] + limit.per_ms

    def _recent(self, limit: Limit, now_ms: int) -> deque[int]:
        times = self._offered.get(limit.label, deque())
        while times and times[0] <= now_ms - limit.per_ms:
            times.popleft()
        return times


def limit_of(rules: Rules, label: str) -> Limit | None:
    """The limit with this label."""
    return next((one for one in rules.limits if one.label == label), None)
