"""Samples the resource use of all processes of a run together, and what no kernel limit counts.

Samples several times a second, less often when sampling gets expensive. Where there is no cgroup
this bounds the memory of many processes together; everywhere it bounds their processor time and
the number of their files. What it finds is part of the proof: from the run's cgroup where there is
one, from the processes themselves otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

from antiphon.core.cost.memory_time import MemoryTime
from antiphon.core.cost.usage import Resources
from antiphon.processes import procfs, tree_usage
from antiphon.sandbox.command import Limits, StopReason
from antiphon.sandbox.isolation.isolation_check import Room
from antiphon.sandbox.process.child_process import Child

FIRST_S: Final = 0.03
PAUSE_S: Final = 0.1
SHARE: Final = 20
"""A sample may take at most 1/this of the time between two samples."""

OnUsage = Callable[[Resources], None]


class Watch:
    """One run under observation."""

    def __init__(self, child: Child, room: Room, on_usage: OnUsage | None = None) -> None:
        self._child = child
        self._room = room
        self._on_usage = on_usage
        self._timer: asyncio.TimerHandle | None = None
        self.max_rss_kb: int | None = None
        self.cpu_ms = 0
        self.was_full = False
        self._memory = MemoryTime(time.perf_counter())
        self._disk_io: int | None = None
        self._sent: int | None = None

    def start(self) -> None:
        """Take the first sample soon, for short runs; what costs next to nothing, at once."""
        self._note_group()
        self._note_network()
        self._timer = asyncio.get_running_loop().call_later(FIRST_S, self._look)

    def stop(self) -> None:
        """Stop sampling; safe twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def used(self, *, told_cpu_ms: int = 0, waited_io: int | None = None) -> Resources:
        """What the run has used so far.

        `told_cpu_ms` and `waited_io` are what its end said: it includes the last moments, which no
        sample saw.
        """
        counted_ms = self._room.group.cpu_ms() if self._room.group is not None else None
        counted_io = self._room.group.disk_io_bytes() if self._room.group is not None else None
        return Resources(
            cpu_ms=max(counted_ms or 0, told_cpu_ms, self.cpu_ms),
            max_rss_kb=self.max_rss_kb,
            mem_kbs=self._memory.kbs(time.perf_counter()),
            disk_io_bytes=_most(waited_io, self._disk_io) if counted_io is None else counted_io,
            net_egress_bytes=self._sent,
        )

    def _look(self) -> None:
        began = time.perf_counter()
        reason = self._offence()
        if reason is not None:
            self._child.stop(reason)
        if self._on_usage is not None:
            self._on_usage(self.used())
        took = time.perf_counter() - began
        pause = max(PAUSE_S, took * SHARE)
        self._timer = asyncio.get_running_loop().call_later(pause, self._look)

    def _note_group(self) -> None:
        in_use = self._room.group.memory_bytes() if self._room.group is not None else None
        if in_use is not None:
            self._memory.sample(time.perf_counter(), in_use)

    def _note_network(self) -> None:
        """A run in the machine's own network shares its counters: then nothing is known."""
        if not self._room.command.network:
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._sent = procfs.sent_bytes(self._room.first)

    def _offence(self) -> StopReason | None:
        limits: Limits = self._room.command.limits
        pids = [self._room.first, *procfs.descendants(self._room.first)]
        cpu_s, resident_kb, most_kb, disk_io = tree_usage.sample(pids)
        if most_kb:
            self.max_rss_kb = max(self.max_rss_kb or 0, most_kb)
        self.cpu_ms = max(self.cpu_ms, round(cpu_s * 1000))
        self._disk_io = _most(self._disk_io, disk_io)
        self._note_network()
        if self._room.group is None:
            self._memory.sample(time.perf_counter(), resident_kb * 1024)
        else:
            self._note_group()
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


def _most(one: int | None, other: int | None) -> int | None:
    """The larger of two counts, if there is one."""
    return max((count for count in (one, other) if count is not None), default=None)
