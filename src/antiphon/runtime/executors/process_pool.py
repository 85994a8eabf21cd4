"""Handlers in separate processes: a crash or a leak affects only their own process.

A child is spawned, never forked, with a minimal environment and none of the worker's files or
keys. It runs one job at a time and is reused, for its own kind only. When a job is lost, cancelled
or timed out, its child is killed with everything that the child started: a thread cannot be
stopped, a process can.

This is not a security boundary against a hostile handler, which runs as the worker's own user:
that is what the sandbox is for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.cost.usage import Resources
from antiphon.core.proof import statement
from antiphon.errors import AntiphonError, Misconfigured, Overrun
from antiphon.processes.tree_usage import TreeUsage
from antiphon.runtime import tracing
from antiphon.runtime.artifacts.store import MAX_VALUE_BYTES
from antiphon.runtime.executors.executor import Ran
from antiphon.runtime.executors.failure import fault_of
from antiphon.runtime.executors.process_child import Call, ChildMessage, ToChild
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from typing import Any

    from antiphon.core.proof.output import Output
    from antiphon.runtime.executors.executor import Assignment
    from antiphon.runtime.executors.handler_call import JobFacts
    from antiphon.runtime.executors.run_services import ExecutorServices, RunServices, StoredStep

ISOLATION: Final = statement.Isolation(level="process")
MAX_IDLE: Final = 4
"""Idle children of one kind; more are ended after their job."""
JOBS_EACH: Final = 200
"""After this many jobs a child is replaced by a new one, so that leaks do not accumulate."""
MAX_LINE: Final = 2 * MAX_VALUE_BYTES + (1 << 20)
"""A result is JSON text inside of a JSON text: each of its quotation marks takes two bytes."""
ENDING_S: Final = 5.0
ROUNDS: Final = 16
"""How often the tree of a child is read again that is ended: it may have grown meanwhile."""
GRACE_S: Final = 10.0
"""More than it takes to notice that a job has timed out, and to end its process."""
PASSED_ON: Final = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
    }
)
"""What every child gets of the worker's environment, besides `LC_*` and `PYTHON*`."""
_OURS: Final = "ANTIPHON_"

log = LazyLogger(__name__)
_decode = msgspec.json.Decoder(ChildMessage).decode


class ProcessDied(AntiphonError):
    """A handler's process ended before the handler did."""


class Pool:
    """The children of one kind."""

    grace_s: Final = GRACE_S

    def __init__(self, function: Callable[..., Any], env: Iterable[str] = ()) -> None:
        """`env` names the other environment variables that the handler gets."""
        self._where = _where(function)
        self._env = tuple(env)
        for name in self._env:
            if name.startswith(_OURS):
                raise Misconfigured(
                    f"{name} is for the worker alone: handlers do not get it",
                    hint="name the variables that the handler itself needs",
                )
        self._idle: list[_Child] = []

    async def call(
        self,
        assignment: Assignment,
        arguments: str,
        keep: Callable[[bytes], Awaitable[Output]],
        context: JobFacts | None,
    ) -> Ran:
        """Run the handler once; a cancellation ends its process, and what that started.

        So does the job's timeout. `context` None: it takes none.
        """
        limit_s = assignment.manifest.timeout
        try:
            async with asyncio.timeout(limit_s or None):
                message = await self._answered(assignment, arguments, context)
        except TimeoutError:
            late = TimeoutError(f"took longer than {limit_s} s")
            message = ChildMessage(fault=fault_of(late))
        if message.is_overrun and message.fault is not None:
            raise Overrun(message.fault.failure.message)
        outputs = () if message.result is None else (await keep(message.result.encode()),)
        return _ran(message, outputs)

    async def _answered(
        self, assignment: Assignment, arguments: str, context: JobFacts | None
    ) -> ChildMessage:
        child = self._idle.pop() if self._idle else await _Child.start(self._environment())
        is_whole = False
        try:
            module, file, qualname = self._where
            time, now_ms = assignment.run.time()
            recorder = assignment.run.recorder
            call = Call(
                path=list(sys.path),
                module=module,
                file=file,
                qualname=qualname,
                kind=assignment.kind,
                arguments=arguments,
                context=context,
                time=time if context is not None else None,
                ahead_ms=now_ms - SystemClock().now_ms(),
                trace=tracing.current(),
                audited=None
                if recorder is None
                else (recorder.most - recorder.count, assignment.fence),
            )
            message = await child.answer(call, assignment)
            is_whole = True
        except ProcessDied as died:
            message = ChildMessage(fault=fault_of(died))
        finally:
            if is_whole and child.jobs < JOBS_EACH and len(self._idle) < MAX_IDLE:
                self._idle.append(child)
            else:
                await child.end()
        return message

    async def close(self) -> None:
        """End the idle children; the pool can be used again afterwards."""
        idle, self._idle = self._idle, []
        for child in idle:
            await child.end()

    def _environment(self) -> dict[str, str]:
        wanted = PASSED_ON.union(self._env)
        return {
            name: value
            for name, value in os.environ.items()
            if name in wanted or name.startswith(("LC_", "PYTHON"))
        }


class _Child:
    """One process and the socket to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.jobs = 0
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, environment: dict[str, str]) -> _Child:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "antiphon.runtime.executors.process_child",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    stdin=asyncio.subprocess.DEVNULL,
                    env=environment,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
        except BaseException:
            ours.close()  # a child without its socket ends by itself
            raise
        return cls(process, reader, writer)

    async def answer(self, call: Call, assignment: Assignment) -> ChildMessage:
        tree = TreeUsage(self._process.pid, assignment.run.gauge.measured)
        tree.start()
        try:
            message = await self._answer(call, assignment)
        finally:
            tree.stop()
        assignment.run.gauge.measured(
            Resources(
                cpu_ms=message.cpu_ms,
                max_rss_kb=message.max_rss_kb,
                mem_kbs=tree.used().mem_kbs,
                disk_io_bytes=message.disk_io_bytes,
            )
        )
        return message

    async def _answer(self, call: Call, assignment: Assignment) -> ChildMessage:
        self.jobs += 1
        await self._tell(ToChild(call=call))
        try:
            return await self._heard(assignment)
        finally:
            for task in list(self._answering):
                task.cancel()

    async def _heard(self, assignment: Assignment) -> ChildMessage:
        """The result, after whatever the child asked for meanwhile."""
        while True:
            try:
                line = await self._reader.readline()
            except (ConnectionError, ValueError):
                line = b""
            if not line.endswith(b"\n"):
                raise ProcessDied(await self._epitaph())
            message = _decode(line)
            if message.progress is not None:
                assignment.run.progress(*message.progress)
            elif message.output is not None:
                assignment.run.output(*message.output)
            elif message.reported is not None:
                with suppress(ValueError):  # too many classes, which its next call says
                    assignment.run.gauge.reported(message.reported)
            elif message.is_to_be_stored:
                self._stored_by(assignment.run, message)
            elif message.next_phase:
                with suppress(Overrun):  # the timer cuts it
                    assignment.run.next_phase()
            else:
                return message

    def _stored_by(self, run: ExecutorServices, message: ChildMessage) -> None:
        """Begin to store what the child sent, or to look for it."""
        if message.captured is not None:
            if run.recorder is not None:
                run.recorder.add(message.captured)
        elif message.checkpoint is not None:
            self._meanwhile(self._save(run, *message.checkpoint))
        elif message.find_step is not None:
            self._meanwhile(self._find_step(run, *message.find_step))
        elif message.store_step is not None:
            self._meanwhile(self._store_step(run, *message.store_step))

    async def _save(self, run: RunServices, number: int, data: bytes) -> None:
        """Store a checkpoint, and tell the child whether it is stored."""
        try:
            is_saved = await run.checkpoint(data)
        except AntiphonError as problem:
            log.warning("checkpoint_not_stored", problem=problem.message)
            is_saved = False
        await self._tell(ToChild(saved=(number, is_saved)))

    async def _find_step(self, run: RunServices, number: int, name: str) -> None:
        """Tell the child what was stored of a step."""
        try:
            found = await asyncio.wrap_future(run.find_step(name))
        except (AntiphonError, OSError) as problem:
            await self._refuse(number, problem)
        else:
            await self._tell(ToChild(found=(number, found)))

    async def _store_step(self, run: RunServices, number: int, name: str, step: StoredStep) -> None:
        """Store a step, and tell the child so."""
        try:
            await asyncio.wrap_future(run.store_step(name, step))
        except (AntiphonError, OSError) as problem:
            await self._refuse(number, problem)
        else:
            await self._tell(ToChild(stored=number))

    async def _refuse(self, number: int, problem: Exception) -> None:
        await self._tell(ToChild(refused=(number, type(problem).__name__, str(problem))))

    def _meanwhile(self, answering: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(answering)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _tell(self, told: ToChild) -> None:
        with suppress(ConnectionError):
            self._writer.write(msgspec.json.encode(told) + b"\n")
            await self._writer.drain()

    async def _epitaph(self) -> str:
        try:
            async with asyncio.timeout(ENDING_S):
                code = await self._process.wait()
        except TimeoutError:
            return "the handler's process closed its socket"
        if code < 0:
            with suppress(ValueError):
                return f"the handler's process was killed by {signal.Signals(-code).name}"
        return f"the handler's process exited with code {code}"

    async def end(self) -> None:
        """End it, and everything below it. A cancellation meanwhile takes effect afterwards."""
        self._writer.close()
        if self._process.returncode is None:
            end_tree(self._process.pid)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await self._process.wait()


def _where(function: Callable[..., Any]) -> tuple[str, str | None, str]:
    """How another process imports a function: module, or file of the script, and name in it."""
    module, qualname = function.__module__, function.__qualname__
    if "<" in qualname:
        raise Misconfigured(
            f"{qualname} cannot run in a separate process: it cannot be imported by name",
            hint="define it at the top level of a module",
        )
    if module != "__main__":
        return module, None, qualname
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        raise Misconfigured(
            f"{qualname} cannot run in a separate process: it was defined interactively",
            hint="put handlers that run in processes into a file",
        )
    return module, os.path.abspath(file), qualname  # noqa: PTH100 - no file is read here


def _ran(message: ChildMessage, outputs: tuple[Output, ...]) -> Ran:
    fault = message.fault
    if fault is None and message.result is None and not message.after:
        fault = fault_of(ProcessDied("the handler's process sent no result"))
    return Ran(
        runner=python_runner(),
        outputs=outputs,
        fault=fault,
        after=message.after,
        isolation=ISOLATION,
    )


# --- ending a tree -----------------------------------------------------------------------------


def end_tree(root: int) -> None:
    """Kill `root`, a child of ours that leads its own group, and everything below it.

    A process group is not enough: a process that starts its own session leaves it. So the tree is
    read from `/proc`, stopped from the top so that it cannot grow meanwhile, and killed. A root
    that is a subreaper (`process_child` is one) also keeps orphans in its tree.
    """
    _send(root, signal.SIGSTOP)
    for _ in range(ROUNDS):
        below = descendants(root)
        if not below:
            break
        for pid in below:
            _send(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(root, signal.SIGKILL)
    _send(root, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Every living process below `root`; none where there is no `/proc` to read."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text(errors="replace")
        except OSError:
            continue
        # The name in parentheses may contain anything; after the last one there are only numbers.
        state, parent = text.rpartition(")")[2].split()[:2]
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    found, front = list[int](), [root]
    while front:
        front = [child for pid in front for child in children.get(pid, ())]
        found += front
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
