"""A histogram of seconds: how many were at most so long, as monitoring systems read it."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
"""From a few milliseconds to an hour."""


class Histogram:
    """Counts by bound, and a sum."""

    def __init__(self) -> None:
        """Empty."""
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one; clocks of two machines may differ, so less than nothing is nothing."""
        seconds = max(seconds, 0.0)
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def add_all(self, other: Histogram) -> None:
        """Count everything that another one counted."""
        self._counts = [mine + its for mine, its in zip(self._counts, other._counts, strict=True)]
        self.sum_s += other.sum_s

    def buckets(self) -> list[tuple[str, int]]:
        """By upper bound, how many were at most that long."""
        found, so_far = [], 0
        for bound, number in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            so_far += number
            found.append((bound, so_far))
        return found
