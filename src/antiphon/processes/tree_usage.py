"""What a process and everything below it use, sampled while they run.

For processes that are in no cgroup. What it finds is a lower bound for processes that came and went
between two samples; the caller adds what the kernel says at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from antiphon.core.cost.memory_time import MemoryTime
from antiphon.core.cost.usage import Resources
from antiphon.processes import procfs

PAUSE_S: Final = 0.25
SHARE: Final = 20
"""A sample may take at most 1/this of the time between two samples."""


class TreeSample(NamedTuple):
    """What some processes use together at one time."""

    cpu_s: float
    resident_kb: int
    most_kb: int
    """The most that one of them ever had."""
    disk_io_bytes: int | None
    """None: the kernel does not say."""


def sample(pids: list[int]) -> TreeSample:
    """Of these processes; those that end meanwhile are left out."""
    cpu_s, resident_kb, most_kb = 0.0, 0, 0
    disk_io: int | None = None
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            cpu_s += procfs.cpu_s(pid)
            now_kb, high_kb = procfs.resident_kb(pid)
            resident_kb += now_kb
            most_kb = max(most_kb, high_kb)
            disk_io = (disk_io or 0) + procfs.disk_io_bytes(pid)
    return TreeSample(cpu_s, resident_kb, most_kb, disk_io)


class TreeUsage:
    """Samples one process and everything below it."""

    def __init__(self, pid: int, on_usage: Callable[[Resources], None] | None = None) -> None:
        """`on_usage` is told after each sample what was used since the start."""
        self._pid = pid
        self._on_usage = on_usage
        self._memory = MemoryTime(time.perf_counter())
        self._timer: asyncio.TimerHandle | None = None
        self._before: TreeSample | None = None
        self._last: TreeSample | None = None

    def start(self) -> None:
        """Take the first sample: what was used before it does not count."""
        self._look()

    def stop(self) -> None:
        """Stop sampling; safe twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def used(self) -> Resources:
        """What was used so far, as of the last sample."""
        now, before = self._last, self._before
        if now is None:
            return Resources()
        disk_io = now.disk_io_bytes
        if disk_io is not None and before is not None:
            disk_io = max(disk_io - (before.disk_io_bytes or 0), 0)
        spent_s = now.cpu_s - (before.cpu_s if before is not None else 0.0)
        return Resources(
            cpu_ms=max(round(spent_s * 1000), 0),
            max_rss_kb=now.most_kb or None,
            mem_kbs=self._memory.kbs(time.perf_counter()),
            disk_io_bytes=disk_io,
        )

    def _look(self) -> None:
        began = time.perf_counter()
        found = sample([self._pid, *procfs.descendants(self._pid)])
        if found.resident_kb:  # nothing is left of a process that has just ended
            self._memory.sample(began, found.resident_kb * 1024)
            self._last = found
            self._before = self._before or found
        if self._on_usage is not None:
            self._on_usage(self.used())
        pause_s = max(PAUSE_S, (time.perf_counter() - began) * SHARE)
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._look)
