"""How much of this machine's processors is in use, for status claims; where Linux tells it.

GPUs are not looked at: there is no way to do so that all of them have.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STAT: Final = Path("/proc/stat")
SOONEST_S: Final = 1.0
"""A value is used again for so long: many jobs on one machine ask."""
_IDLE: Final = slice(3, 5)
"""The times without work: idle, and waiting for a disk."""
_OF_GUESTS: Final = 8
"""Times from here on are contained in those before."""


def read_stat() -> str:
    """The line about all processors together; empty where there is none."""
    try:
        with STAT.open(encoding="ascii") as lines:
            return lines.readline()
    except OSError:
        return ""


class MachineUse:
    """The part of the processors' time that was used since it was last asked."""

    def __init__(
        self, read: Callable[[], str] = read_stat, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """The first answer is None: there is nothing before it."""
        self._read = read
        self._now_s = now_s
        self._looked_s = -SOONEST_S
        self._before: tuple[int, int] | None = None
        self._cpu: float | None = None

    def cpu(self) -> float | None:
        """0 to 1; None where it is not known."""
        now_s = self._now_s()
        if now_s - self._looked_s < SOONEST_S:
            return self._cpu
        self._looked_s = now_s
        before, self._before = self._before, _times(self._read())
        if before is None or self._before is None:
            self._cpu = None
            return None
        idle, whole = (new - old for new, old in zip(self._before, before, strict=True))
        if whole > 0:
            self._cpu = round(min(max(1 - idle / whole, 0.0), 1.0), 3)
        return self._cpu


def _times(line: str) -> tuple[int, int] | None:
    """Idle time and all time, in ticks."""
    name, *numbers = line.split()[: 1 + _OF_GUESTS] or [""]
    if name != "cpu" or not all(number.isdecimal() for number in numbers):
        return None
    ticks = [int(number) for number in numbers]
    return sum(ticks[_IDLE]), sum(ticks)
