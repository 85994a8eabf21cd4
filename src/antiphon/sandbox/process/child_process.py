"""A child process: its output, its end, and the one reason for which it is stopped.

Its output is read as it comes and counted; past the limit it is thrown away rather than left in
the pipe, so that the process never blocks on us. The kernel reports its end (a pidfd), and waiting
for it cannot be interrupted: a caller that cancels a run gets control back when no process of it
is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

from antiphon.errors import Rejected, Unavailable
from antiphon.processes import procfs
from antiphon.sandbox.command import Limits, StopReason, Stream

OnOutput = Callable[[Stream, bytes], None]

CHUNK: Final = 64 * 1024
LAST_WORDS_S: Final = 1.0
"""How long a pipe may stay open after its process is gone: another process then has it."""
BLOCK_BYTES: Final = 512
"""What the kernel counts as a block, whatever the disk has."""
GONE_S: Final = 30.0
"""How long a killed process may take to end before that is an error."""


class Streams:
    """Both streams of a process, up to a limit for each."""

    def __init__(self, on_output: OnOutput, limit: int, stop: Callable[[StopReason], None]) -> None:
        self._on_output = on_output
        self._limit = limit
        self._stop = stop
        self._seen: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._reading: dict[int, Stream] = {}
        self.problem: Exception | None = None
        self.closed = asyncio.get_running_loop().create_future()

    def pipe(self, stream: Stream) -> int:
        """Begin to read a stream; the end to write to."""
        out, into = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(out, False)
        self._reading[out] = stream
        asyncio.get_running_loop().add_reader(out, self._read, out)
        return into

    def _read(self, out: int) -> None:
        stream = self._reading[out]
        try:
            data = os.read(out, CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close(out)
            return
        before = self._seen[stream]
        self._seen[stream] = before + len(data)
        if before < self._limit and self.problem is None:
            try:
                self._on_output(stream, data[: self._limit - before])
            except Exception as problem:  # noqa: BLE001 - the caller's, and given back to it
                self.problem = problem
                self._stop("killed")
        if self._seen[stream] > self._limit:
            self._stop("output")

    def _close(self, out: int) -> None:
        asyncio.get_running_loop().remove_reader(out)
        del self._reading[out]
        os.close(out)
        if not self._reading and not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """Read no further; safe twice."""
        for out in list(self._reading):
            self._close(out)


class Child:
    """One process that we started, and others that count as part of it."""

    def __init__(self, limits: Limits, on_output: OnOutput) -> None:
        loop = asyncio.get_running_loop()
        self.stopped: asyncio.Future[StopReason] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.output = Streams(on_output, limits.output_bytes, self.stop)
        self.limits = limits
        self.code = 0
        self.cpu_ms = 0
        self.max_rss_kb: int | None = None
        self.disk_io_bytes: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfds: list[int] = []
        self._own_rss_kb = 0
        self.end_the_rest: Callable[[], None] = lambda: None
        """Called when one of those that we follow is gone, and others are not."""

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        assert self._process is not None  # noqa: S101 - a bug in this package
        return self._process.pid

    def start(self, line: list[str], *, stdin: int, **how: Any) -> frozenset[str]:
        """Start it; the kernel's names for the files that it was given.

        In its own session, so that a terminal's signals to us do not reach it.
        """
        streams = [stdin, self.output.pipe("stdout"), self.output.pipe("stderr")]
        # A child's record starts with the size of the process that it was split from.
        self._own_rss_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            self._process = subprocess.Popen(  # noqa: S603 - running commands is what this is for
                line,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                start_new_session=True,
                **how,
            )
        except OSError as problem:
            raise Rejected(
                f"{line[0]} cannot be started: {problem.strerror}", reason="command"
            ) from problem
        finally:
            names = frozenset(map(procfs.file_name, streams))
            for number in streams[1:]:
                os.close(number)
        self.follow(self._process.pid)
        return names

    def follow(self, pid: int) -> None:
        """Count a process as part of this one: both must be gone."""
        pidfd = os.pidfd_open(pid)
        self._pidfds.append(pidfd)
        asyncio.get_running_loop().add_reader(pidfd, self._went, pidfd)

    def _went(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        self._pidfds.remove(pidfd)
        os.close(pidfd)
        if self._pidfds:
            self.end_the_rest()
            return
        if self.gone.done():
            return
        process = self._process
        assert process is not None  # noqa: S101 - as above
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = self.code = os.waitstatus_to_exitcode(status)
        self.cpu_ms = round((usage.ru_utime + usage.ru_stime) * 1000)
        self.disk_io_bytes = (usage.ru_inblock + usage.ru_oublock) * BLOCK_BYTES
        if usage.ru_maxrss > self._own_rss_kb:
            self.max_rss_kb = usage.ru_maxrss
        self.gone.set_result(None)

    def send(self, number: int) -> None:
        """A signal to the process that was started, unless it is gone."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def stop(self, reason: StopReason) -> None:
        """Ask for its end; the first reason is the one that counts."""
        if not self.stopped.done():
            self.stopped.set_result(reason)

    async def lives(self, terminate: Callable[[], None]) -> StopReason:
        """Until it has ended by itself, or is to be ended.

        At its time limit it gets TERM and a grace period. Past any other limit it already does
        harm, and is killed.
        """
        either: set[asyncio.Future[Any]] = {self.gone, self.stopped}
        await asyncio.wait(
            either, timeout=self.limits.timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if self.gone.done() and not self.stopped.done():
            return "exited"
        self.stop("timeout")
        reason = self.stopped.result()
        if reason == "timeout" and not self.gone.done():
            terminate()
            await asyncio.wait({self.gone}, timeout=self.limits.grace_s)
        return reason

    async def is_gone(self, kill: Callable[[], None]) -> None:
        """End what is left of it; return when nothing is, even if cancelled meanwhile."""
        if self._process is None:
            return
        interruption: asyncio.CancelledError | None = None
        deadline = asyncio.get_running_loop().time() + GONE_S
        while not self.gone.done():
            kill()
            try:
                await asyncio.wait({self.gone}, timeout=1.0)
            except asyncio.CancelledError as problem:
                interruption = problem
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(f"process {self.pid} was killed and has not ended")
        if interruption is not None:
            raise interruption

    async def last_words(self) -> None:
        """Its output, read to the end."""
        await asyncio.wait({self.output.closed}, timeout=LAST_WORDS_S)
        if self.output.problem is not None:
            raise self.output.problem

    def close(self) -> None:
        """Close pipes and pidfds; safe twice."""
        self.output.close()
        loop = asyncio.get_running_loop()
        while self._pidfds:
            pidfd = self._pidfds.pop()
            loop.remove_reader(pidfd)
            os.close(pidfd)


@contextlib.contextmanager
def readable(number: int) -> Iterator[asyncio.Future[None]]:
    """A future that is done when there is something to read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(number, tell)
    try:
        yield ready
    finally:
        loop.remove_reader(number)
