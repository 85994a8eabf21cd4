"""A task's `sys.exit` becomes its job's failure: it does not end the worker.

`SystemExit` and `KeyboardInterrupt` end an event loop as soon as a task of it raises them. So
`InHandler` turns them into `HandlerExit`, and while a worker runs, `watching_tasks` does so for
every task that a handler starts (`asyncio.gather`, `wait_for`). Those that a signal to this
process raised, such as Ctrl-C, go on as they are. What a handler gives to the loop as a bare
callback (`loop.call_later(1, sys.exit)`) is not watched.
"""

from __future__ import annotations

import asyncio
import dis
import signal
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from types import CodeType

T = TypeVar("T")

EXITS: Final = (SystemExit, KeyboardInterrupt)

_in_handler: ContextVar[bool] = ContextVar("in_handler", default=False)


class HandlerExit(Exception):
    """Stands for the `SystemExit` or `KeyboardInterrupt` that caused it."""


class InHandler:
    """Around the code of a handler, or of a hook."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        """The tasks that are started from here on are the handler's."""
        self._before = _in_handler.set(True)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """A coroutine that never ended is closed later, in whatever context that happens."""
        with suppress(ValueError):
            _in_handler.reset(self._before)
        _check(error)


def _check(error: BaseException | None) -> None:
    if isinstance(error, EXITS) and not _is_by_signal(error):
        raise HandlerExit(f"{type(error).__name__}: {error}") from error


def is_of_worker(error: BaseException) -> bool:
    """Whether what came out of `InHandler` is about the worker: it is told to stop."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, (*EXITS, GeneratorExit))


async def in_thread(call: Callable[[], T]) -> T:
    """What a function returns in a thread.

    A future cannot carry a `StopIteration`: its caller would wait for ever.
    """

    def called() -> T:
        try:
            return call()
        except StopIteration as stopped:
            raise RuntimeError("the function raised StopIteration") from stopped

    return await asyncio.to_thread(called)


# --- signals --------------------------------------------------------------------------------------


def _is_by_signal(error: BaseException) -> bool:
    """Whether a signal to this process raised it, and not the handler itself."""
    if threading.current_thread() is not threading.main_thread():
        return False  # Python handles signals in the main thread alone
    calls = list(walk_tb(error.__traceback__))
    handling = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    if any(frame.f_code in handling for frame, _ in calls):
        return True
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not calls:
        return False
    # That handler leaves no call of its own: the error begins in the midst of another instruction.
    return isinstance(error, KeyboardInterrupt) and not _is_at_raise(error)


def _code_of(handler: Any) -> CodeType | None:
    while hasattr(handler, "func"):  # functools.partial, as asyncio.run has it
        handler = handler.func
    return getattr(handler, "__code__", None)


def _is_at_raise(error: BaseException) -> bool:
    raised = error.__traceback__
    while raised is not None and raised.tb_next is not None:
        raised = raised.tb_next
    if raised is None:
        return True
    return dis.opname[raised.tb_frame.f_code.co_code[raised.tb_lasti]] == "RAISE_VARARGS"


# --- tasks that handlers start --------------------------------------------------------------------


class _Watched(Coroutine[Any, Any, T]):
    """The coroutine of a task that a handler started."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        try:
            return self._coroutine.send(value)
        except EXITS as error:
            _check(error)
            raise

    def throw(self, *given: Any) -> Any:
        try:
            return self._coroutine.throw(*given)
        except EXITS as error:
            _check(error)
            raise

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # what debuggers ask: its frame, what it awaits


class _Tasks:
    """Makes the tasks of an event loop, as its task factory."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.users = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if _in_handler.get() and asyncio.iscoroutine(coroutine):
            coroutine = _Watched(coroutine)
        if self.before is not None:
            return self.before(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)


@contextmanager
def watching_tasks() -> Iterator[None]:
    """Watch the tasks that handlers start in this event loop, while the block runs."""
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    tasks = before if isinstance(before, _Tasks) else _Tasks(before)
    loop.set_task_factory(tasks)
    tasks.users += 1
    try:
        yield
    finally:
        tasks.users -= 1
        if not tasks.users and loop.get_task_factory() is tasks:
            loop.set_task_factory(tasks.before)
