"""Runs one command in a sandbox, from its first check to its last output.

    check ─▶ sandbox made, gate closed ─▶ limits set, all verified ─▶ go ─▶ end ─▶ outputs

Nothing of the command runs before `go`. Whatever happens after the start, a cancellation
included, the whole tree of processes is gone before `run` gives control back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from antiphon.core.proof.statement import Isolation
from antiphon.errors import Misconfigured, Unavailable
from antiphon.processes import procfs
from antiphon.sandbox.command import WORK, Command, Ended, Limits, StopReason, Stream, check
from antiphon.sandbox.isolation import bubblewrap, cgroups, job_uids, rlimits, seccomp
from antiphon.sandbox.isolation.isolation_check import Room
from antiphon.sandbox.open_files import OpenFiles
from antiphon.sandbox.process import plain_process, run_end
from antiphon.sandbox.process.child_process import Child, OnOutput, readable
from antiphon.sandbox.process.usage_watch import OnUsage, Watch
from antiphon.sandbox.support import SandboxSupport, probe

SETUP_S: Final = 20.0
"""For a sandbox to start: it takes milliseconds, unless the machine is in trouble."""
_SETUP_WORDS: Final = 4096
_CREDENTIALS: Final = struct.Struct("3i")


async def run(
    command: Command,
    *,
    work: Path,
    on_output: OnOutput,
    abilities: SandboxSupport | None = None,
    unsafe: bool = False,
    on_usage: OnUsage | None = None,
) -> Ended:
    """Run a command in a sandbox; `Misconfigured` where this machine cannot.

    `work` is a directory for this run alone: outputs are in its `outputs`. `abilities` is what
    `probe` returned; without it `probe` runs again. With `unsafe` the command runs as a plain
    process instead, and the recorded isolation says so. `on_usage` is told several times a second
    what the run has used so far.
    """
    check(command)
    if unsafe:
        return await plain_process.run(command, work=work, on_output=on_output, on_usage=on_usage)
    able = await asyncio.to_thread(probe) if abilities is None else abilities
    tools = able.required()
    with ExitStack() as stack:
        uid = os.getuid() if tools.setpriv is None else stack.enter_context(job_uids.borrowed())
        group = _group(able, command.limits, stack)
        sandboxed = SandboxedRun(command, tools, uid, group, on_output)
        try:
            await sandboxed.start()
            return await sandboxed.finish(work, on_usage)
        finally:
            try:
                await sandboxed.child.is_gone(sandboxed.kill)
            finally:
                sandboxed.close()


def _group(able: SandboxSupport, limits: Limits, stack: ExitStack) -> cgroups.Group | None:
    if able.cgroup is None:
        return None
    try:
        group = stack.enter_context(cgroups.group(able.cgroup))
        group.limit(memory_bytes=limits.all_bytes, processes=rlimits.all_processes(limits))
    except OSError as problem:
        raise Unavailable(f"the job's cgroup cannot be made: {problem.strerror}") from problem
    return group


class SandboxedRun:
    """One command in its sandbox."""

    def __init__(
        self,
        command: Command,
        tools: bubblewrap.Tools,
        uid: int,
        group: cgroups.Group | None,
        on_output: OnOutput,
    ) -> None:
        self.command = command
        self._tools = tools
        self._uid = uid
        self._group = group
        self._on_output = on_output
        self.child = Child(command.limits, self._hear)
        self._room: Room | None = None
        self._room_pidfd = -1
        self._isolation = Isolation(level="none")
        self._setup_words = b""
        self._is_going = False
        self._gate, self._their_gate = socket.socketpair()

    def _hear(self, stream: Stream, data: bytes) -> None:
        """Before the gate opens only bubblewrap itself can have written something."""
        if self._is_going:
            self._on_output(stream, data)
        else:
            self._setup_words = (self._setup_words + data)[:_SETUP_WORDS]

    async def start(self) -> None:
        """Make the sandbox, set its limits, verify it."""
        filter_ = seccomp.program(memory_is_counted=self._group is not None)
        # The kernel then reports the writer's pid, as we see it.
        self._gate.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._gate.setblocking(False)
        with OpenFiles() as files:
            line = bubblewrap.words(self._tools, self.command, self._uid, files.holding, filter_)
            if self._group is not None:
                line = [*self._group.entering(self._tools.sh), *line]
            streams = self.child.start(
                line,
                stdin=self._their_gate.fileno(),
                pass_fds=files.numbers,
                env={},
                cwd="/",
                umask=0o022,
            )
        self._their_gate.close()
        gate = await self._gate_keeper()
        try:
            room = self._room = Room(gate, self.command, self._group)
            self._room_pidfd = os.pidfd_open(room.first)
            self.child.follow(room.first)
            self.child.end_the_rest = self.kill
            room.enter()
        except OSError as problem:
            raise Misconfigured(
                f"the sandbox's limits cannot be set: {problem}", hint="antiphon doctor"
            ) from problem
        self._isolation = room.isolation(self._tools, self._uid, streams)

    async def _gate_keeper(self) -> int:
        with readable(self._gate.fileno()) as word:
            await asyncio.wait(
                {word, self.child.gone}, timeout=SETUP_S, return_when=asyncio.FIRST_COMPLETED
            )
        with contextlib.suppress(BlockingIOError, ConnectionError):
            said, extra, _, _ = self._gate.recvmsg(64, socket.CMSG_SPACE(_CREDENTIALS.size))
            if said == bubblewrap.READY and extra:
                pid, _, _ = _CREDENTIALS.unpack(extra[0][2])
                return int(pid)
        if self.child.gone.done():
            await self.child.last_words()
        words = self._setup_words.decode(errors="replace").strip()
        raise Misconfigured(
            f"the sandbox did not start: {words or 'no error output'}",
            hint="run 'antiphon doctor': it reports what this machine can do",
        )

    async def finish(self, work: Path, on_usage: OnUsage | None) -> Ended:
        """Open the gate, wait for the end, keep the outputs."""
        room = self._room
        assert room is not None  # noqa: S101 - `start` ran before
        watch = Watch(self.child, room, on_usage)
        self._is_going = True
        try:
            self._gate.send(bubblewrap.GO)
        except OSError as problem:
            raise Unavailable("the sandbox ended before its command began") from problem
        watch.start()
        try:
            reason = await self.child.lives(self.terminate)
        finally:
            watch.stop()
        await self.child.is_gone(self.kill)
        await self.child.last_words()
        code, cpu_ms = self.child.code, self._told_cpu_ms()
        used = watch.used(told_cpu_ms=cpu_ms, waited_io=self.child.disk_io_bytes)
        if reason == "exited" and code != 0:
            was_full = watch.was_full or not room.has_room()
            reason = self._reason(code, cpu_ms, was_full=was_full)
        collection = await run_end.keep_outputs(
            self.command, room.folders[WORK], work / "outputs", is_apart=True
        )
        return Ended(
            exit=run_end.exit_of(code) if code >= 0 else None,
            reason=reason,
            used=used,
            isolation=self._isolation,
            outputs=tuple(collection.taken),
            left_out=tuple(collection.left_out),
        )

    def _reason(self, code: int, cpu_ms: int, *, was_full: bool) -> StopReason:
        """The limit behind a failure that looks like the command's own."""
        if code < 0:
            return "killed"
        if self._group is not None and self._group.out_of_memory():
            return "memory"
        limit_s = self.command.limits.cpu_s
        if limit_s is not None and cpu_ms >= limit_s * 1000:
            return "cpu"
        return "disk" if was_full else "exited"

    def _told_cpu_ms(self) -> int:
        """The gate's last message: its children's processor time, from a shell's `times`."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            return run_end.cpu_ms(self._gate.recv(256).decode(errors="replace"))
        return 0

    def terminate(self) -> None:
        """Ask every process of the command to end; the gate stays until they have."""
        room = self._room
        if room is None:
            return
        asked: dict[int, int] = {}
        try:
            for pid in procfs.descendants(room.first):
                with contextlib.suppress(OSError):
                    asked[pid] = os.pidfd_open(pid)
            # Still there: then the handle is of that process, not of a later one with its pid.
            for pid in procfs.descendants(room.first):
                if pid in asked and pid != room.pid:
                    with contextlib.suppress(OSError):
                        signal.pidfd_send_signal(asked[pid], signal.SIGTERM)
        finally:
            for pidfd in asked.values():
                os.close(pidfd)

    def kill(self) -> None:
        """Kill the sandbox's process 1: the kernel then ends every other in it."""
        if self._room_pidfd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._room_pidfd, signal.SIGKILL)
            return
        # Not up yet: nothing of the command has run. A process that starts right now finds
        # the gate's socket closed, and ends.
        self.child.send(signal.SIGSTOP)
        for pid in procfs.descendants(self.child.pid):
            with contextlib.suppress(OSError):
                self.child.follow(pid)
                os.kill(pid, signal.SIGKILL)
        self.child.send(signal.SIGKILL)

    def close(self) -> None:
        """Release what is still held; safe twice."""
        self._gate.close()
        self._their_gate.close()
        self.child.close()
        if self._room is not None:
            self._room.leave()
        if self._room_pidfd >= 0:
            os.close(self._room_pidfd)
            self._room_pidfd = -1
