"""The child process of `process_pool`: runs one handler call after the other.

Started as `python -m antiphon.runtime.executors.process_child FD` in its own session. The socket
FD delivers calls, one JSON line each, and takes progress, checkpoints, steps and one result per
call. What needs an answer has a number (`ToChild`, `ChildMessage`). The
process ends when the socket is closed, so that it never outlives its worker.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import inspect
import os
import queue
import resource
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import structs

from antiphon.core.cost.usage import Reported
from antiphon.core.inference.exchange import Exchange
from antiphon.core.policy.attempt_end import Fault
from antiphon.core.policy.phrase_run import RunTime
from antiphon.core.tempo.phases import Phase
from antiphon.core.tempo.score import Waited
from antiphon.errors import After, GiveUp, Misconfigured, Overrun, Unavailable
from antiphon.runtime.executors.children import (
    Awaited,
    answers_to_await,
    continuable,
    to_await,
)
from antiphon.runtime.executors.failure import fault_of, given_up
from antiphon.runtime.executors.handler_call import JobContext, JobFacts
from antiphon.runtime.executors.printed_output import PrintingTo, Stream, passing_on_prints
from antiphon.runtime.executors.run_services import Help, Saved, StoredStep, WithoutWorker
from antiphon.runtime.executors.step import Asking, is_asking
from antiphon.runtime.executors.usage_gauge import BLOCK_BYTES
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.tracing import continued
from antiphon.runtime.values.signature import CallSignature

T = TypeVar("T")

MAIN: Final = "__antiphon_main__"
"""The module name of the worker's script here, so that it does not start a worker again."""
MAX_PIECE: Final = 64 * 1024
"""Bytes of output in one message."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


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
    context: JobFacts | None
    time: RunTime | None = None
    """Its place in time, and how far that clock is ahead of this machine's."""
    ahead_ms: int = 0
    trace: str | None = None
    """The worker's span of this run, as a `traceparent`."""
    audited: tuple[int, str] | None = None
    """How many model calls it may make, and the fence; None: they are not audited."""


class ToChild(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the child is told: a call, and what became of what it asked for by a number."""

    call: Call | None = None
    saved: tuple[int, bool] | None = None
    """Whether a checkpoint was stored."""
    found: tuple[int, StoredStep | None] | None = None
    """What was stored of a step: the answer to `find_step`."""
    stored: int | None = None
    """The step is stored: the answer to `store_step`."""
    refused: tuple[int, str, str] | None = None
    """A step could not be read or stored: the name of the error, and its message."""


class ChildMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sent back: progress and the like, any number of times, then a result or a failure."""

    progress: tuple[float, str] | None = None
    checkpoint: tuple[int, bytes] | None = None
    """Its number in the call, and the bytes."""
    find_step: tuple[int, str] | None = None
    """A number for the answer, and the name of a step."""
    store_step: tuple[int, str, StoredStep] | None = None
    """The same, with what is to be stored."""
    next_phase: bool = False
    result: str | None = None
    fault: Fault | None = None
    is_overrun: bool = False
    after: tuple[Awaited, ...] = ()
    output: tuple[Stream, bytes] | None = None
    """What the handler printed; any number of times, as progress."""
    captured: Exchange | None = None
    """A model call of the handler, where these are audited; any number of times."""
    reported: Reported | None = None
    """What the handler said that it used; any number of times, as progress."""
    cpu_ms: int = 0
    max_rss_kb: int = 0
    disk_io_bytes: int = 0

    @property
    def is_to_be_stored(self) -> bool:
        """Whether it is about something that the worker stores."""
        parts = (self.checkpoint, self.find_step, self.store_step, self.captured)
        return any(one is not None for one in parts)


class _Line:
    """The socket, writable from any thread."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._saying = threading.Lock()
        self._asking = threading.Lock()
        self._printing = threading.Lock()
        self._printed: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self.asked: dict[int, Future[Any]] = {}
        """What waits for an answer of the worker, by number."""
        self._number = 0

    def hear(self) -> None:
        """Take what comes, in a thread, until the worker closes the socket."""
        decode = msgspec.json.Decoder(ToChild).decode
        with self._line.makefile("rb") as lines:
            for text in lines:
                told = decode(text)
                if told.call is not None:
                    self.calls.put(told.call)
                self._answered(told)
        self.calls.put(None)

    def _answered(self, told: ToChild) -> None:
        if told.refused is not None:
            number, name, message = told.refused
            error = GiveUp(message) if name == GiveUp.__name__ else Unavailable(message)
            self._settle(number, lambda future: future.set_exception(error))
        elif told.stored is not None:
            self._settle(told.stored, lambda future: future.set_result(None))
        elif (answer := told.saved or told.found) is not None:
            number, value = answer
            self._settle(number, lambda future: future.set_result(value))

    def _settle(self, number: int, settle: Callable[[Future[Any]], None]) -> None:
        future = self.asked.pop(number, None)
        if future is not None:
            with suppress(InvalidStateError):  # nobody waits for it any more
                settle(future)

    def ask(self, asking: Callable[[int], ChildMessage]) -> Future[Any]:
        """Send what has a number, and wait for the answer that has it, too."""
        future = Future[Any]()
        with self._asking:
            self._number += 1
            number = self._number
            self.asked[number] = future
        self.say(asking(number))
        return future

    def say(self, message: ChildMessage) -> None:
        with self._saying:
            self._line.sendall(msgspec.json.encode(message) + b"\n")

    def output(self, stream: Stream, data: bytes) -> None:
        """Also goes to this process's own streams."""
        with self._printing:
            held = self._printed[stream]
            held += data
            if not held.endswith((b"\n", b"\r")) and len(held) < MAX_PIECE:
                return  # a line is written in several pieces
            whole = bytes(held)
            held.clear()
        self._tell(stream, whole)

    def flush_output(self) -> None:
        """Send what does not end with a line break."""
        for stream, held in self._printed.items():
            with self._printing:
                whole = bytes(held)
                held.clear()
            self._tell(stream, whole)

    def _tell(self, stream: Stream, data: bytes) -> None:
        for at in range(0, len(data), MAX_PIECE):
            self.say(ChildMessage(output=(stream, data[at : at + MAX_PIECE])))


class _Services:
    """What a call may ask of its worker, over the socket."""

    def __init__(self, call: Call, line: _Line) -> None:
        self._line = line
        self._time = call.time
        self._ahead_ms = call.ahead_ms
        self._wall = SystemClock()

    def progress(self, done: float, note: str = "") -> None:
        self._line.say(ChildMessage(progress=(done, note)))

    def reported(self, said: Reported) -> None:
        self._line.say(ChildMessage(reported=said))

    def checkpoint(self, data: bytes) -> Saved:
        content = bytes(data)
        return Saved(self._line.ask(lambda number: ChildMessage(checkpoint=(number, content))))

    def find_step(self, name: str) -> Future[StoredStep | None]:
        return self._line.ask(lambda number: ChildMessage(find_step=(number, name)))

    def store_step(self, name: str, step: StoredStep) -> Future[None]:
        return self._line.ask(lambda number: ChildMessage(store_step=(number, name, step)))

    def save_with(self, saver: Callable[[], bytes]) -> None:  # noqa: ARG002 - it could not be called
        raise _only_in_loop("ctx.save_with")

    def time(self) -> tuple[RunTime, int]:
        if self._time is None:
            return WithoutWorker(self._wall).time()
        return self._time, self._wall.now_ms() + self._ahead_ms

    def next_phase(self) -> Phase:
        time, now_ms = self.time()
        if time.phrase is None:
            return time.phase(now_ms)
        phrase = time.phrase.moved_on(now_ms)
        self._time = structs.replace(time, phrase=phrase)
        if phrase.is_over(now_ms):
            raise Overrun(f"it used up {phrase.overran}")
        self._line.say(ChildMessage(next_phase=True))
        return phrase.phase_at(now_ms)

    async def wait_for(self, awaited: Awaitable[T], what: Waited, name: str) -> T:  # noqa: ARG002
        raise _only_in_loop("ctx.wait_for")

    def help(self, about: str) -> Help:  # noqa: ARG002 - as above
        raise _only_in_loop("ctx.help")


def _only_in_loop(what: str) -> Misconfigured:
    return Misconfigured(
        f"{what} is not for handlers that run in a process",
        hint='leave out run_in="process": a coroutine in the worker\'s event loop has it',
    )


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
        with given_up:
            signature = CallSignature(function, name=call.kind)
            args, kwargs = signature.decode(call.arguments)
        context = None
        if call.context is not None:
            context = JobContext(**structs.asdict(call.context), run=_Services(call, line))
            args, kwargs = signature.with_context(context, args, kwargs)
        try:
            with PrintingTo(line.output), continued(call.trace), _captured(call, line):
                value = function(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = asyncio.run(_awaited(value))
        except After as after:
            parent, now_ms = continuable(call.kind, context), SystemClock().now_ms()
            message = ChildMessage(after=asyncio.run(to_await(after, parent, None, now_ms)))
        except (Asking, BaseExceptionGroup) as asking:
            if context is None or not is_asking(asking):
                raise
            message = ChildMessage(after=answers_to_await(context))
        else:
            with given_up:
                message = ChildMessage(result=signature.encode_result(value).decode())
    except BaseException as error:  # noqa: BLE001 - even SystemExit is the job's failure, not ours
        message = ChildMessage(fault=fault_of(error), is_overrun=isinstance(error, Overrun))
    line.flush_output()
    line.asked.clear()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    after_s, io_after = _used()
    return structs.replace(
        message,
        cpu_ms=round((after_s - before_s) * 1000),
        max_rss_kb=usage.ru_maxrss,
        disk_io_bytes=io_after - io_before,
    )


@contextmanager
def _captured(call: Call, line: _Line) -> Iterator[None]:
    """Tell the worker about the model calls of the block, if they are audited."""
    if call.audited is None:
        yield
        return
    from antiphon.core.clock.hlc import pack
    from antiphon.runtime.inference.recorder import Recorder
    from antiphon.runtime.inference.transports import captured_by

    clock, (most, fence) = SystemClock(), call.audited
    recorder = Recorder(
        lambda exchange: line.say(ChildMessage(captured=exchange)),
        stamp=lambda: max(pack((clock.now_ms() + call.ahead_ms, 0)), fence),
        now_s=clock.boot_s,
        most=most,
    )
    try:
        with captured_by(recorder):
            yield
    finally:
        recorder.close()


async def _awaited(value: Any) -> Any:
    return await value


def _used() -> tuple[float, int]:
    """Processor seconds, and bytes to and from disks; those below that are gone included."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    blocks = own.ru_inblock + own.ru_oublock + below.ru_inblock + below.ru_oublock
    cpu_s = own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
    return cpu_s, blocks * BLOCK_BYTES


def _stay_within_reach(worker: int) -> None:
    """End with the worker, and keep every process below this one in its tree."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != worker:
        os._exit(1)  # it died before we asked for that signal


def main() -> None:
    """Answer calls until the worker closes the socket."""
    _stay_within_reach(int(sys.argv[2]))
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    sys.argv[:] = [MAIN]
    told = _Line(line)
    threading.Thread(target=told.hear, name="antiphon-socket", daemon=True).start()
    with passing_on_prints():
        while (call := told.calls.get()) is not None:
            told.say(answer(call, told))


if __name__ == "__main__":
    main()
