"""One event loop in one daemon thread for all blocking calls of this process.

The thread starts with the first call and is kept with the process's id. A forked child begins
without one: it drops what it inherited and closes none of it, because loop, selector and sockets
are the parent's too. The loop rests during a fork: a lock that it held then, such as that of the
program's log, would be held in the child for ever. No signal handler is installed. What is still
open when the program ends is closed then, in at most two seconds.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

from antiphon.errors import Forked, Misconfigured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

AT_EXIT_S: Final = 2.0
"""What a program that ends waits, all in all, for what it left open."""
REST_S: Final = 1.0
"""How long a fork waits for the loop to rest; a coroutine may hold it up for longer."""
_USERS_FRAME: Final = 4
"""From the warning up to the line that called a method of the façade."""


class ForkAware(Protocol):
    """Keeps something of this process that a forked child must not use."""

    def forget(self) -> None:
        """Begin anew, in a forked child, without closing anything."""


class LoopThread:
    """A running loop and its thread."""

    def __init__(self) -> None:
        """Return when the loop runs."""
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.contexts: list[OpenContext[Any]] = []
        """What is open on this loop, oldest first."""
        runs = threading.Event()
        self.loop.call_soon(runs.set)
        self.thread = threading.Thread(target=self._run, name="antiphon-loop", daemon=True)
        self.thread.start()
        runs.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def rest(self, over: threading.Event) -> None:
        """Return when nothing runs on it, or after a while; it goes on once the event is set."""
        rests = threading.Event()

        def wait() -> None:
            rests.set()
            over.wait()

        self.loop.call_soon_threadsafe(wait)
        rests.wait(REST_S)

    def end(self) -> None:
        """Close what is open, newest first, as far as the time allows, and stop."""
        closing = asyncio.run_coroutine_threadsafe(self._close_all(), self.loop)
        with suppress(Exception):
            closing.result(AT_EXIT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(AT_EXIT_S)

    async def _close_all(self) -> None:
        for context in reversed(self.contexts):
            await context.leave()


class _Process:
    """What this process has. A forked child replaces all of it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.loop_thread: LoopThread | None = None
        self.has_warned = False


class _Forks(threading.local):
    """Forks that this thread is making: more than one if a signal handler forks as well."""

    def __init__(self) -> None:
        self.ends: list[threading.Event] = []


_process = _Process()
_forks = _Forks()
_forgetful: WeakSet[Any] = WeakSet()
_left_behind: list[_Process] = []
"""The parent's: kept, because the end of an object could touch a socket or selector of theirs."""


def _begin_anew() -> None:
    global _process  # noqa: PLW0603 - the state of a process is a global of the process
    _left_behind.append(_process)
    _process = _Process()
    _forks.ends = []  # the parent's: their locks may be held for ever
    for one in list(_forgetful):
        one.forget()


def _before_fork() -> None:
    ours = _process.loop_thread
    if ours is None or ours.pid != os.getpid() or not ours.thread.is_alive():
        return
    if threading.current_thread() is not ours.thread:
        over = threading.Event()
        _forks.ends.append(over)  # before the wait, which a signal handler may end with an error
        ours.rest(over)


def _after_fork() -> None:
    for over in _forks.ends:
        over.set()
    _forks.ends = []


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_begin_anew)


def forget_after_fork(one: ForkAware) -> None:
    """Have `one.forget` called in every forked child."""
    _forgetful.add(one)


def current() -> LoopThread:
    """This process's loop thread, started if there is none."""
    if _process.pid != os.getpid():  # a server that forks without telling Python
        _begin_anew()
    process = _process
    with process.lock:
        if process.loop_thread is None:
            process.loop_thread = LoopThread()
        return process.loop_thread


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop thread and return its result, or raise its error.

    It runs in a copy of the caller's context. If the wait is interrupted (Ctrl-C), the coroutine is
    cancelled. Inside another running loop, as in a notebook, it works and blocks that loop.
    """
    try:
        ours = current()
        _check_caller(ours)
    except BaseException:
        coroutine.close()
        raise
    call = _Call(coroutine)
    try:
        # asyncio takes the copy of the context here, in the caller's thread.
        return asyncio.run_coroutine_threadsafe(call.run(), ours.loop).result()
    finally:
        if not call.is_done:
            ours.loop.call_soon_threadsafe(call.give_up)


class _Call(Generic[T]):
    """A coroutine that can be given up even if the interrupt came while it was being handed over.

    (The future that asyncio returns for it is then lost.)
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[Any] | None = None
        self._is_given_up = False
        self.is_done = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        try:
            if self._is_given_up:
                self._coroutine.close()
                raise asyncio.CancelledError
            return await self._coroutine
        finally:
            self.is_done = True

    def give_up(self) -> None:
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()


def _check_caller(ours: LoopThread) -> None:
    if threading.current_thread() is ours.thread:
        raise Misconfigured(
            "a blocking call inside the event loop that would have to answer it",
            hint="write the handler as a plain 'def', or use the async Mesh in it",
        )
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    # With gevent all threads are one, and the loop that is seen here may be our own.
    if running is not ours.loop and not _process.has_warned:
        _process.has_warned = True
        warnings.warn(
            "a blocking call inside a running event loop: nothing else in that loop runs until it"
            " returns. In async code use Mesh and await",
            RuntimeWarning,
            stacklevel=_USERS_FRAME,
        )


class OpenContext(Generic[T]):
    """An async context manager that one task of the loop thread enters, keeps open and leaves.

    Enter and leave must happen in one task: that is where a task group reports its failures.
    """

    value: T

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        """Nothing happens before `open`."""
        self._pid = os.getpid()
        self._manager = manager
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_open = False

    def check(self, what: str, hint: str) -> None:
        """`Forked` in a child, `Misconfigured` once it is closed; the words say what of it."""
        if self._pid != os.getpid():
            raise Forked(f"{what} was made before this process forked", hint=hint)
        if not self.is_open:
            raise Misconfigured(f"{what} belongs to a mesh that is closed", hint=hint)

    def open(self) -> None:
        """Enter it; raises what entering raises. An interrupted one is left again."""
        try:
            run(self._enter())
            self.is_open = True
        except BaseException:
            current().loop.call_soon_threadsafe(self._give_up)
            raise

    def close(self) -> None:
        """Leave it; raises what leaving raises. Safe twice, and does nothing in a forked child."""
        self.is_open = False
        if self._pid == os.getpid():
            run(self.leave())

    async def _enter(self) -> None:
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep(entered))
        await entered

    async def _keep(self, entered: asyncio.Future[None]) -> None:
        open_here = current().contexts
        try:
            async with self._manager as self.value:
                if entered.done():  # nobody waits any more
                    return
                open_here.append(self)
                entered.set_result(None)
                await self._leaving.wait()
        except BaseException as problem:
            if entered.done():
                raise
            entered.set_exception(problem)
        finally:
            self.is_open = False
            if self in open_here:
                open_here.remove(self)

    def _give_up(self) -> None:
        if self._leaving.is_set() or self._task is None:
            return
        self._leaving.set()
        if not hasattr(self, "value"):
            self._task.cancel()

    async def leave(self) -> None:
        """The same as `close`, on the loop; an interrupted wait does not interrupt the leaving."""
        self._leaving.set()
        if self._task is not None:
            await asyncio.shield(self._task)


@contextmanager
def entered(manager: AbstractAsyncContextManager[T]) -> Iterator[OpenContext[T]]:
    """An async context manager around a plain `with` block."""
    opened = OpenContext(manager)
    opened.open()
    try:
        yield opened
    finally:
        opened.close()


def iterate(source: AsyncIterator[T]) -> Iterator[T]:
    """An async iterator as a plain one: each step waits for the next item."""
    end: Any = object()

    async def next_item() -> T:
        return await anext(source, end)

    while (item := run(next_item())) is not end:
        yield item


def _at_exit() -> None:
    ours = _process.loop_thread
    if ours is not None and ours.pid == os.getpid():
        ours.end()


atexit.register(_at_exit)
