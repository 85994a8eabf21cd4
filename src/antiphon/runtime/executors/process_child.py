"""The child process of `process_pool`: runs one handler call after the other.

Started as `python -m antiphon.runtime.executors.process_child FD` in its own session. The socket
FD delivers calls, one JSON line each, and takes progress and one result per call. The process ends
when the socket is closed, so that it never outlives its worker.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import inspect
import os
import resource
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from antiphon.core.cost.usage import Reported
from antiphon.core.families.jobs.ops import Failure
from antiphon.errors import After, Misconfigured
from antiphon.runtime.executors.children import Awaited, check_continuable, to_await_inline
from antiphon.runtime.executors.executor import Stream
from antiphon.runtime.executors.failure import failed_with, given_up
from antiphon.runtime.executors.handler_call import Child, JobContext
from antiphon.runtime.executors.usage_gauge import BLOCK_BYTES
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.values.signature import CallSignature

MAIN: Final = "__antiphon_main__"
"""The module name of the worker's script here, so that it does not start a worker again."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a `JobContext`."""

    kind: str
    job_id: str
    fence: str
    attempt: int
    children: tuple[Child, ...] = ()
    continuations: int = 0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a handler."""

    path: list[str]
    """The module search path."""
    module: str
    file: str | None
    """The worker's own script, which has no module name to import."""
    qualname: str
    kind: str
    arguments: str
    context: Context | None


class ChildMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sent back: progress, any number of times, and then a result or a failure."""

    progress: tuple[float, str] | None = None
    result: str | None = None
    failure: Failure | None = None
    lineage: tuple[str, ...] = ()
    is_final: bool = False
    retry_after_ms: int | None = None
    after: tuple[Awaited, ...] = ()
    reported: Reported | None = None
    """What the handler said that it used; any number of times, as progress."""
    cpu_ms: int = 0
    max_rss_kb: int = 0
    disk_io_bytes: int = 0


class _Line:
    """The socket, writable from any thread. It is also a `LiveOutput`."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._saying = threading.Lock()

    def say(self, message: ChildMessage) -> None:
        with self._saying:
            self._line.sendall(msgspec.json.encode(message) + b"\n")

    def output(self, stream: Stream, data: bytes) -> None:
        """Not sent: a handler's output goes to its process's own streams."""

    def progress(self, done: float, note: str = "") -> None:
        self.say(ChildMessage(progress=(done, note)))

    def reported(self, said: Reported) -> None:
        self.say(ChildMessage(reported=said))


def find(call: Call) -> Any:
    """The function that a call names."""
    sys.path[:] = call.path
    if call.file is not None:
        found: Any = _script(Path(call.file))
    else:
        found = importlib.import_module(call.module)
    for name in call.qualname.split("."):
        found = getattr(found, name)
    # Our decorator leaves a task there, which knows its function.
    return getattr(found, "function", found)


def _script(file: Path) -> Any:
    known = sys.modules.get(MAIN)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(MAIN, file)
    if spec is None or spec.loader is None:
        raise Misconfigured(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = module
    spec.loader.exec_module(module)
    return module


def answer(call: Call, line: _Line) -> ChildMessage:
    """Run one call to its end."""
    before_s, io_before = _used()
    try:
        function = find(call)
        with given_up():
            signature = CallSignature(function, name=call.kind)
            args, kwargs = signature.decode(call.arguments)
        if call.context is not None:
            context = JobContext(**structs.asdict(call.context), live=line, usage=line)
            args, kwargs = signature.with_context(context, args, kwargs)
        try:
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
        except After as after:
            message = ChildMessage(after=_to_await(after, call))
        else:
            with given_up():
                message = ChildMessage(result=signature.encode_result(value).decode())
    except BaseException as error:  # noqa: BLE001 - even SystemExit is the job's failure, not ours
        ran = failed_with(error)
        message = ChildMessage(
            failure=ran.failure,
            lineage=ran.lineage,
            is_final=ran.is_final,
            retry_after_ms=ran.retry_after_ms,
        )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    after_s, io_after = _used()
    return structs.replace(
        message,
        cpu_ms=round((after_s - before_s) * 1000),
        max_rss_kb=usage.ru_maxrss,
        disk_io_bytes=io_after - io_before,
    )


def _to_await(after: After, call: Call) -> tuple[Awaited, ...]:
    context = call.context
    check_continuable(call.kind, wants_context=context is not None)
    if context is None:
        raise TypeError("checked above")
    now_ms = SystemClock().now_ms()
    return to_await_inline(after, context.kind, context.job_id, context.continuations, now_ms)


async def _awaited(value: Any) -> Any:
    return await value


def _used() -> tuple[float, int]:
    """Processor seconds, and bytes to and from disks; those below that are gone included."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    blocks = own.ru_inblock + own.ru_oublock + below.ru_inblock + below.ru_oublock
    cpu_s = own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
    return cpu_s, blocks * BLOCK_BYTES


def _stay_within_reach() -> None:
    """End with the worker, and keep every process below this one in its tree."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def main() -> None:
    """Answer calls until the worker closes the socket."""
    _stay_within_reach()
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    sys.argv[:] = [MAIN]
    told = _Line(line)
    decode = msgspec.json.Decoder(Call).decode
    with line.makefile("rb") as calls:
        for text in calls:
            told.say(answer(decode(text), told))


if __name__ == "__main__":
    main()
