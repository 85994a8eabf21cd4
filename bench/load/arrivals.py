"""What was due, what has arrived, and how long it waited; in memory that does not grow with a run.

The worker's process appends a line to a file for each arrival. This reads on from where it was, so
an hour of lines is read once. A wait is counted in a bucket, one per cent wide, and forgotten.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Final

from msgspec import Struct

WIDTH: Final = 1.01
"""Of a bucket: its upper end by its lower."""
SOONEST_MS: Final = 0.01


class Waits:
    """A histogram of waits."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, wait_ms: float) -> None:
        self._counts[math.ceil(math.log(max(wait_ms, SOONEST_MS), WIDTH))] += 1

    @property
    def count(self) -> int:
        return self._counts.total()

    def percentile(self, share: float) -> float:
        """In milliseconds, rounded up by at most a bucket; 0 if there is none."""
        left = math.ceil(self.count * share)
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return round(WIDTH**bucket, 2)
        return 0.0

    def later_than(self, limit_ms: float) -> int:
        """How many waited for longer, in whole buckets."""
        limit = math.ceil(math.log(limit_ms, WIDTH))
        return sum(count for bucket, count in self._counts.items() if bucket > limit)


class Course(Struct, frozen=True):
    """One list for each figure, with a value for each look."""

    at_s: list[float]
    waiting: list[int]
    p50_ms: list[float]
    p99_ms: list[float]
    worker_mb: list[float]
    server_mb: list[float]


class Arrivals:
    """Of one sort: `start` for handlers, `bare` for records."""

    def __init__(self, times: Path, word: str) -> None:
        self._times, self._word = times, word
        self._read, self._rest = 0, b""
        self._due: dict[str, int] = {}
        self.waits = Waits()
        """Since the last `begin`."""
        self._recent = Waits()

    def begin(self) -> None:
        """Count from here."""
        self.waits, self._recent = Waits(), Waits()

    def expect(self, name: str, due_ns: int) -> None:
        """It should have been sent at that time."""
        self._due[name] = due_ns

    def refused(self, name: str) -> None:
        """It will not come."""
        self._due.pop(name, None)

    @property
    def waiting(self) -> int:
        """How many have not arrived, as far as was read."""
        return len(self._due)

    def read(self) -> None:
        """What has arrived since."""
        if not self._times.exists():
            return
        with self._times.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, name, at_ns = line.decode().split()
            due_ns = self._due.pop(name, None) if word == self._word else None
            if due_ns is not None:
                for one in (self.waits, self._recent):
                    one.add((int(at_ns) - due_ns) / 1e6)

    def recent(self) -> Waits:
        """The waits since this was last asked."""
        found, self._recent = self._recent, Waits()
        return found
