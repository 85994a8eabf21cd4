"""The execution journal: what really ran, written down outside Antiphon.

One file that every process appends to. Each line is a single `write`, so lines of many processes
never mix and a killed process leaves whole lines. Handlers note when they begin and end, and under
which fence. The chaos command notes which processes it killed, since they cannot. Nothing here
reads the log: what was *accepted* is counted in `final_check.py`, and the two are compared.
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

What = Literal["ready", "begin", "step", "end", "aborted", "dead"]
"""`step`: one of a job's steps is computed. `aborted`: the handler raised or was cancelled. `dead`:
the process was killed, or is gone."""


class JournalEvent(Struct, frozen=True, gc=False):
    """One line: what happened, when, and in which process."""

    at_ns: int
    """By `CLOCK_BOOTTIME`: one clock for all processes of a machine."""
    pid: int
    what: What
    job_id: str = ""
    fence: str = ""
    step: int = 0


_decode = msgspec.json.Decoder(JournalEvent).decode


def boot_ns() -> int:
    """Nanoseconds since the machine started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class JournalWriter:
    """Appends lines; each process has one."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(
        self, what: What, *, job_id: str = "", fence: str = "", pid: int = 0, step: int = 0
    ) -> None:
        """Append one line."""
        event = JournalEvent(boot_ns(), pid or os.getpid(), what, job_id, fence, step)
        os.write(self._handle, msgspec.json.encode(event) + b"\n")

    @contextmanager
    def running(self, job_id: str, fence: str) -> Iterator[None]:
        """Note that an execution begins, and how it ends."""
        self.note("begin", job_id=job_id, fence=fence)
        try:
            yield
        except BaseException:
            self.note("aborted", job_id=job_id, fence=fence)
            raise
        self.note("end", job_id=job_id, fence=fence)

    def close(self) -> None:
        os.close(self._handle)


class JournalReader:
    """Reads the file while it grows; whole lines only."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self._file = path.open("rb")
        self._rest = b""

    def read_new(self) -> list[JournalEvent]:
        """Events written since the last call."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [_decode(line) for line in lines]

    def close(self) -> None:
        self._file.close()


class Execution(Struct):
    """One run of a handler; it ends with the handler or with its process."""

    job_id: str
    fence: str
    pid: int
    begun_ns: int
    ended_ns: int = 0
    """0 while it runs."""
    is_finished: bool = False
    """Whether the handler returned."""


class ExecutionTally:
    """What the events add up to; they are added in the order in which they were written."""

    def __init__(self, events: Iterable[JournalEvent] = ()) -> None:
        self.executions: list[Execution] = []
        self.ready: set[int] = set()
        """Processes that reported ready and are not dead."""
        self.computed: dict[tuple[str, int], list[str]] = {}
        """Under which fences each step of a job was computed."""
        self._open: dict[tuple[int, str, str], Execution] = {}
        self.add(events)

    def add(self, events: Iterable[JournalEvent]) -> None:
        for event in events:
            key = (event.pid, event.job_id, event.fence)
            if event.what == "ready":
                self.ready.add(event.pid)
            elif event.what == "dead":
                self.ready.discard(event.pid)
                for open_key in [one for one in self._open if one[0] == event.pid]:
                    self._open.pop(open_key).ended_ns = event.at_ns
            elif event.what == "begin":
                begun = Execution(event.job_id, event.fence, event.pid, event.at_ns)
                self._open[key] = begun
                self.executions.append(begun)
            elif event.what == "step":
                self.computed.setdefault((event.job_id, event.step), []).append(event.fence)
            elif (ended := self._open.pop(key, None)) is not None:
                ended.ended_ns = event.at_ns
                ended.is_finished = event.what == "end"

    @property
    def busy(self) -> set[int]:
        """Processes in which a handler is running."""
        return {pid for pid, _, _ in self._open}

    def overlapped(self) -> set[str]:
        """Jobs of which two executions were open at once; a stopped process counts as open."""
        by_job: dict[str, list[Execution]] = defaultdict(list)
        for one in self.executions:
            by_job[one.job_id].append(one)
        found = set()
        for job, runs in by_job.items():
            last_end_ns = 0
            for run in sorted(runs, key=lambda one: one.begun_ns):
                if run.begun_ns < last_end_ns:
                    found.add(job)
                last_end_ns = max(last_end_ns, run.ended_ns or 2**63)
        return found

    def jobs_with_reused_fence(self) -> set[str]:
        """Jobs that ran twice under one fence: a fence must be used by one run only."""
        seen: set[tuple[str, str]] = set()
        found = set()
        for one in self.executions:
            if (one.job_id, one.fence) in seen:
                found.add(one.job_id)
            seen.add((one.job_id, one.fence))
        return found

    def finished(self) -> set[tuple[str, str]]:
        """(job, fence) of every execution whose handler returned."""
        return {(one.job_id, one.fence) for one in self.executions if one.is_finished}
