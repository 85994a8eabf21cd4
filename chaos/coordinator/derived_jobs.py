"""What must have been derived, and what was: counted from the raw log and the verdicts on it.

Nothing of `antiphon.core` decides here: ops are read as plain JSON, and the ticks of the run's
expressions, `*/N` seconds, are multiples.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from msgspec import Struct

from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record

Pair = tuple[str, str]
"""A plan's op id, and the tick or the cause's id as text."""


class Counted(Struct):
    """The end of a run in numbers."""

    ticks: int = 0
    reactions: int = 0
    fired_twice: int = 0
    missed: int = 0
    unasked: int = 0
    """Derived jobs that no plan calls for."""
    refused: int = 0
    """Records of coordinators that were none any more, or that came second."""


class DerivedJobs:
    """Adds up records in order."""

    def __init__(self) -> None:
        self.fired: defaultdict[Pair, list[str]] = defaultdict(list)
        """The subjects of accepted schedules, by what they were derived from."""
        self.ended: dict[str, tuple[int, str, str]] = {}
        """By job: where it ended, its kind, and how."""
        self.refused: Counter[str] = Counter()

    def add(self, record: Record, verdict: Verdict) -> None:
        """Count one record with the verdict that a full node gave it."""
        try:
            op: dict[str, Any] = json.loads(record.payload.partition(b"\n")[0])
        except ValueError:
            return
        body = op.get("body", {})
        derived = body.get("derived") if isinstance(body, dict) else None
        if op.get("type") == "job.schedule" and derived:
            if verdict is Verdict.OK:
                what = str(derived.get("tick_ms") or derived["job"])
                self.fired[op["deps"][0][1], what].append(record.subject)
            else:
                self.refused[verdict.value] += 1
        elif op.get("type") == "job.complete" and verdict is Verdict.OK:
            self.ended[body["job"]] = (record.seq, body["kind"], body["status"])

    def compare(
        self, cron: dict[str, tuple[int, int, int]], reactions: dict[str, tuple[int, str, int]]
    ) -> Counted:
        """Compare with what the plans call for.

        `cron` has by op id: the time of the put, the seconds between ticks, and the last tick that
        counts. `reactions`: the put's sequence, the kind, and the last sequence that counts.
        """
        counted = Counted(refused=self.refused.total())
        wanted: set[Pair] = set()
        for plan, (put_ms, every_s, until_ms) in cron.items():
            step = every_s * 1000
            first = (put_ms // step + 1) * step
            wanted |= {(plan, str(tick)) for tick in range(first, until_ms + 1, step)}
        counted.ticks = len(wanted)
        for plan, (put_seq, kind, until_seq) in reactions.items():
            causes = {
                (plan, job)
                for job, (seq, of, how) in self.ended.items()
                if of == kind and how == "succeeded" and put_seq < seq <= until_seq
            }
            counted.reactions += len(causes)
            wanted |= causes
        counted.missed = len(wanted - self.fired.keys())
        counted.fired_twice = sum(len(subjects) - 1 for subjects in self.fired.values())
        counted.unasked = sum(
            self._is_unasked(pair, wanted, cron, reactions) for pair in self.fired
        )
        return counted

    def _is_unasked(
        self,
        pair: Pair,
        wanted: set[Pair],
        cron: dict[str, tuple[int, int, int]],
        reactions: dict[str, tuple[int, str, int]],
    ) -> bool:
        """Whether nothing calls for it; what is later than what counts is left aside."""
        plan, what = pair
        if pair in wanted:
            return False
        if plan in cron:
            put_ms, every_s, until_ms = cron[plan]
            return int(what) <= until_ms or int(what) % (every_s * 1000) != 0 or put_ms >= int(what)
        seq = self.ended.get(what, (0, "", ""))[0]
        return plan not in reactions or seq <= reactions[plan][2]
