"""What one run has used so far: its executor tells it, its budget and its proof ask.

What cannot be measured for one run alone stays absent. A coroutine shares its thread with every
other job of its worker, so nothing is measured for it; a thread has its own processor time and
input and output, but shares its memory.
"""

from __future__ import annotations

import math
import re
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from antiphon.core.cost.usage import MAX_CLASSES, Reported, Resources

BLOCK_BYTES: Final = 512
"""What the kernel counts as a block, whatever the disk has."""
LONGEST_MS: Final = 10 * 365 * 24 * 3_600_000
_CLASS: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)

Seconds = Mapping[str, float]
"""By device class."""


class UsageGauge:
    """The resources of one run; safe to use from several threads."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lock = threading.Lock()
        self._measured = Resources()
        self._reading: Callable[[], Resources] | None = None
        self._gpu_ms: dict[str, int] = {}
        self._accel_ms: dict[str, int] = {}
        self.on_report: Callable[[], object] | None = None
        """Called after each report, in the thread that made it."""

    def measured(self, used: Resources) -> None:
        """What was measured so far; it replaces what was said before."""
        with self._lock:
            self._measured = used

    def reported(self, said: Reported) -> None:
        """What the handler has used since it last said so."""
        with self._lock:
            for known, new in ((self._gpu_ms, said.gpu_ms), (self._accel_ms, said.accel_ms)):
                for device, ms in new.items():
                    known[device] = min(known.get(device, 0) + ms, LONGEST_MS)
                    if len(known) > MAX_CLASSES:
                        del known[device]
                        raise ValueError(f"more than {MAX_CLASSES} device classes")
        tell = self.on_report
        if tell is not None:
            tell()

    def now(self) -> Resources:
        """What is known now."""
        with self._lock:
            used = self._measured if self._reading is None else self._reading()
            if not self._gpu_ms and not self._accel_ms:
                return used
            said = Reported(gpu_ms=dict(self._gpu_ms), accel_ms=dict(self._accel_ms))
            return replace(used, reported=said)

    @contextmanager
    def this_thread(self) -> Iterator[None]:
        """Measure the thread that runs the block; others can read the clock meanwhile."""
        before = _of_thread()
        clock = _clock_of_thread()
        began_s = time.clock_gettime(clock) if clock is not None else 0.0

        def read() -> Resources:
            if clock is None:
                return Resources()
            return Resources(cpu_ms=round((time.clock_gettime(clock) - began_s) * 1000))

        with self._lock:
            self._reading = read
        try:
            yield
        finally:
            after = _of_thread()
            with self._lock:  # nobody reads the clock of a thread that may have ended
                self._reading = None
                self._measured = Resources(
                    cpu_ms=round((after[0] - before[0]) * 1000),
                    disk_io_bytes=None if after[1] is None else after[1] - (before[1] or 0),
                )


def reported(gpu_sec: Seconds | None, accel_sec: Seconds | None) -> Reported:
    """A handler's own words, checked; `ValueError` for what cannot be used."""
    return Reported(gpu_ms=_checked("gpu_sec", gpu_sec), accel_ms=_checked("accel_sec", accel_sec))


def _checked(name: str, given: Seconds | None) -> dict[str, int]:
    found = {}
    for device, seconds in (given or {}).items():
        if not _CLASS.fullmatch(str(device)):
            raise ValueError(
                f"{name}: {device!r} is not a device class: use small letters, digits, '.', '_'"
                " and '-', as in a100"
            )
        if not math.isfinite(seconds) or not 0 <= seconds * 1000 <= LONGEST_MS:
            raise ValueError(f"{name}: {device} cannot have been used for {seconds} s")
        found[device] = round(seconds * 1000)
    return found


def _of_thread() -> tuple[float, int | None]:
    """Processor seconds of the calling thread, and its bytes to and from disks."""
    if not hasattr(resource, "RUSAGE_THREAD"):
        return time.thread_time(), None
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return time.thread_time(), (used.ru_inblock + used.ru_oublock) * BLOCK_BYTES


def _clock_of_thread() -> int | None:
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    return time.pthread_getcpuclockid(threading.get_ident())
