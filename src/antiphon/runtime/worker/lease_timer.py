"""One timer for all tenures of a worker.

Most jobs end long before their lease needs attention, so a tenure has no timer for itself: it
gives the time of its next check, and one timer is set to the earliest of these. What is
done then is in `Tenure.look`.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol


class TimedLease(Protocol):
    """Something that needs a check now and then."""

    due_s: float
    """Loop time of the next check."""

    def look(self) -> None:
        """Do what is due and move `due_s` forward. Must not raise."""


class LeaseTimer:
    """Calls `look` on everything it keeps when that is due."""

    def __init__(self) -> None:
        """Nothing is kept, and no timer is set."""
        self._kept: dict[TimedLease, None] = {}  # in order: the same seed must give the same run
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_s = math.inf

    def keep(self, kept: TimedLease) -> None:
        """Check it from now on."""
        self._kept[kept] = None
        if kept.due_s < self._wakes_s:
            self._arm(kept.due_s)

    def drop(self, kept: TimedLease) -> None:
        """Stop checking it; safe twice. A timer that finds nothing due costs one wake-up."""
        self._kept.pop(kept, None)

    def close(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._disarm()

    def _arm(self, due_s: float) -> None:
        self._disarm()
        self._wakes_s = due_s
        self._timer = asyncio.get_running_loop().call_at(due_s, self._wake)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._wakes_s = math.inf

    def _wake(self) -> None:
        self._disarm()
        now_s = asyncio.get_running_loop().time()
        for kept in [kept for kept in self._kept if kept.due_s <= now_s]:
            kept.look()
        earliest_s = min((kept.due_s for kept in self._kept), default=math.inf)
        if earliest_s < math.inf:
            self._arm(earliest_s)
