"""A run's output: progress on standard error, one JSON object last on standard output."""

from __future__ import annotations

import json
import sys


def say(text: str) -> None:
    """A line of progress, for people."""
    print(text, file=sys.stderr, flush=True)


def conclude(**values: object) -> None:
    """The report: the last line."""
    print(json.dumps(values), flush=True)


def spread(values: list[float]) -> str:
    """A median with the smallest and largest, for people."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:,.0f} ({ordered[0]:,.0f}…{ordered[-1]:,.0f})"


def median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
