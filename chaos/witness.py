"""The witness: what really ran, written down outside Antiphon.

One file, opened for appending by every process; a line is one `write`, so lines of many processes
never mix and a killed process leaves whole lines. Handlers note when they begin and end and under
which fence. The run's conductor notes whom it killed, since the dead cannot. Nothing here knows
the log: what was *accepted* is counted elsewhere (`reckoning.py`), and the two are compared.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

What = Literal["ready", "begin", "end", "dropped", "dead"]
"""`dropped`: the handler was cancelled. `dead`: the process was killed, or found gone."""


class Mark(Struct, frozen=True, gc=False):
    """One line: what happened, when, and in which process."""

    at_ns: int
    """By `CLOCK_BOOTTIME`: one clock for all processes of a machine."""
    pid: int
    what: What
    job: str = ""
    fence: str = ""


_decode = msgspec.json.Decoder(Mark).decode


def boot_ns() -> int:
    """Nanoseconds since the machine started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Witness:
    """The writing side: one per process."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: What, *, job: str = "", fence: str = "", pid: int = 0) -> None:
        """Append one line."""
        mark = Mark(boot_ns(), pid or os.getpid(), what, job, fence)
        os.write(self._handle, msgspec.json.encode(mark) + b"\n")

    @contextmanager
    def running(self, job: str, fence: str) -> Iterator[None]:
        """Note the beginning and how it ends."""
        self.note("begin", job=job, fence=fence)
        try:
            yield
        except BaseException:
            self.note("dropped", job=job, fence=fence)
            raise
        self.note("end", job=job, fence=fence)

    def close(self) -> None:
        os.close(self._handle)


class Reader:
    """Reads the file as it grows; whole lines only."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self._file = path.open("rb")
        self._rest = b""

    def new(self) -> list[Mark]:
        """What was written since the last time."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [_decode(line) for line in lines]

    def close(self) -> None:
        self._file.close()


class Execution(Struct):
    """One run of a handler, from its beginning to its end or its process's."""

    job: str
    fence: str
    pid: int
    begun_ns: int
    ended_ns: int = 0
    """0 while it runs."""
    is_whole: bool = False
    """Whether the handler came to its end."""


class Tally:
    """What the marks add up to; fed in the order in which they were written."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self.executions: list[Execution] = []
        self.ready: set[int] = set()
        """Processes that came up and were not found dead."""
        self._open: dict[tuple[int, str, str], Execution] = {}
        self.add(marks)

    def add(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            key = (mark.pid, mark.job, mark.fence)
            if mark.what == "ready":
                self.ready.add(mark.pid)
            elif mark.what == "dead":
                self.ready.discard(mark.pid)
                for open_key in [one for one in self._open if one[0] == mark.pid]:
                    self._open.pop(open_key).ended_ns = mark.at_ns
            elif mark.what == "begin":
                begun = Execution(mark.job, mark.fence, mark.pid, mark.at_ns)
                self._open[key] = begun
                self.executions.append(begun)
            elif (ended := self._open.pop(key, None)) is not None:
                ended.ended_ns = mark.at_ns
                ended.is_whole = mark.what == "end"

    @property
    def busy(self) -> set[int]:
        """Processes in which a handler runs now."""
        return {pid for pid, _, _ in self._open}

    @property
    def jobs(self) -> set[str]:
        """Jobs that ran at all."""
        return {one.job for one in self.executions}

    def overlapped(self) -> set[str]:
        """Jobs of which two executions were open at once; a stopped process counts as open."""
        by_job: dict[str, list[Execution]] = defaultdict(list)
        for one in self.executions:
            by_job[one.job].append(one)
        found = set()
        for job, runs in by_job.items():
            last_end_ns = 0
            for run in sorted(runs, key=lambda one: one.begun_ns):
                if run.begun_ns < last_end_ns:
                    found.add(job)
                last_end_ns = max(last_end_ns, run.ended_ns or 2**63)
        return found

    def twice_under_one_fence(self) -> set[str]:
        """Jobs that were begun twice under one fence: a fence must tell two runs apart."""
        seen: set[tuple[str, str]] = set()
        found = set()
        for one in self.executions:
            if (one.job, one.fence) in seen:
                found.add(one.job)
            seen.add((one.job, one.fence))
        return found

    def whole(self) -> set[tuple[str, str]]:
        """(job, fence) of the executions that came to their end."""
        return {(one.job, one.fence) for one in self.executions if one.is_whole}
