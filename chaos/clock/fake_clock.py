"""Wrong clocks for real processes: libfaketime for wall time, an event loop for suspends.

What libfaketime 0.9 does to a CPython process, as measured:

- Wall time (`time.time`, `CLOCK_REALTIME`) follows the file within microseconds, forwards and
  back. `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` are left alone if it is told so. Faked as well, they
  jump together with wall time; a step back then hangs every wait with a timeout. No machine has
  such clocks, so they stay real in every run.
- `time.sleep` fails with EINVAL: it sleeps until a monotonic moment that the library takes for a
  faked one. Waits of threads and of asyncio are right.
- A Go program asks the kernel and no library: libfaketime does not change nats-server's clock.

A suspend is something else: `CLOCK_BOOTTIME` goes on while `CLOCK_MONOTONIC` stands still. The
process is stopped, and its event loop is told afterwards how much monotonic time to leave out.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
from pathlib import Path
from typing import Final

LIBRARY: Final = "libfaketimeMT.so.1"
DIRECTORIES: Final = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime")
MISSING: Final = (
    "libfaketime is not installed here, so no clock can be set wrong: apt-get install libfaketime"
)
_SECONDS: Final = struct.Struct("d")


def library() -> Path | None:
    """The shared library, in its version for programs with threads; None if not installed."""
    for directory in DIRECTORIES:
        found = sorted(Path("/").glob(f"{directory[1:]}/{LIBRARY}"))
        if found:
            return found[0]
    return None


class FakeClock:
    """The clocks of one process, set from outside while it runs."""

    def __init__(self, preload: Path, directory: Path) -> None:
        """Right at first; `directory` belongs to this clock alone."""
        directory.mkdir(parents=True)
        self._preload = preload
        self._file = directory / "offset"
        self.suspended_file = directory / "suspended"
        self.suspended_file.write_bytes(_SECONDS.pack(0.0))
        self._suspended_s = 0.0
        self.off_s = 0.0
        self.set(0.0)

    def set(self, off_s: float) -> None:
        """Set it seconds ahead of true time, or behind if negative; the file changes at once."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{off_s:+.3f}\n")
        fresh.replace(self._file)
        self.off_s = off_s

    def add_suspend(self, seconds: float) -> None:
        """Take this much out of the process's monotonic time, as a suspend does."""
        self._suspended_s += seconds
        with self.suspended_file.open("r+b") as out:
            out.write(_SECONDS.pack(self._suspended_s))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that runs by this clock."""
        return {
            **os.environ,
            "LD_PRELOAD": str(self._preload),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


class SuspendableLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock leaves out the times that its machine was suspended."""

    def __init__(self, suspended_file: Path) -> None:
        """The file holds seconds as a double; it is read at every turn."""
        with suspended_file.open("rb") as held:
            self._suspended = mmap.mmap(held.fileno(), _SECONDS.size, prot=mmap.PROT_READ)
        super().__init__()

    def time(self) -> float:
        """Monotonic time, less the suspends."""
        return super().time() - float(_SECONDS.unpack_from(self._suspended)[0])
