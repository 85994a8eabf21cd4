"""Samples the resource use of all processes of a run together, which no kernel limit counts.

Samples several times a second, less often when sampling gets expensive. Where there is no cgroup
this bounds the memory of many processes together; everywhere it bounds their processor time and
the number of their files, and notes the largest of them for the proof.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from antiphon.sandbox import procfs
from antiphon.sandbox.command import Limits, StopReason
from antiphon.sandbox.isolation.isolation_check import Room
from antiphon.sandbox.process.child_process import Child

FIRST_S: Final = 0.03
PAUSE_S: Final = 0.1
SHARE: Final = 20
"""A sample may take at most 1/this of the time between two samples."""


class Watch:
    """One run under observation."""

    def __init__(self, child: Child, room: Room) -> None:
        self._child = child
        self._room = room
        self._timer: asyncio.TimerHandle | None = None
        self.max_rss_kb: int | None = None
        self.cpu_ms = 0
        self.was_full = False

    def start(self) -> None:
        """Take the first sample soon, for short runs."""
        self._timer = asyncio.get_running_loop().call_later(FIRST_S, self._look)

    def stop(self) -> None:
        """Stop sampling; safe twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        began = time.perf_counter()
        reason = self._offence()
        if reason is not None:
            self._child.stop(reason)
        took = time.perf_counter() - began
        pause = max(PAUSE_S, took * SHARE)
        self._timer = asyncio.get_running_loop().call_later(pause, self._look)

    def _offence(self) -> StopReason | None:
        limits: Limits = self._room.command.limits
        pids = [self._room.first, *procfs.descendants(self._room.first)]
        cpu_s, resident_kb = 0.0, 0
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                cpu_s += procfs.cpu_s(pid)
                now_kb, most_kb = procfs.resident_kb(pid)
                resident_kb += now_kb
                self.max_rss_kb = max(self.max_rss_kb or 0, most_kb)
        self.cpu_ms = max(self.cpu_ms, round(cpu_s * 1000))
        self.was_full |= not self._room.has_room()
        if self._room.has_too_many_files():
            return "disk"
        if limits.cpu_s is not None and cpu_s > limits.cpu_s:
            return "cpu"
        if (
            self._room.group is None
            and resident_kb * 1024 > limits.memory_bytes
            and sum(map(procfs.share_kb, pids)) * 1024 > limits.memory_bytes
        ):
            return "memory"
        return None
