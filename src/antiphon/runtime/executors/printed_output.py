"""What a handler prints and logs is told to its run (`ExecutorServices.output`).

While a worker runs, `sys.stdout` and `sys.stderr` pass everything on to the streams that were
there before, and to the job in whose context it was written: a coroutine's, its tasks' or its
thread's (`contextvars`). A thread that a handler starts itself has no such context, unless it is
run with `contextvars.copy_context().run`. What does not go through these two objects, such as the
output of a program that a handler starts, is the worker's alone.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Literal

Stream = Literal["stdout", "stderr"]

OUTPUT: Final = "output"
"""The name of the output that has it."""


_current: ContextVar[Callable[[Stream, bytes], None] | None] = ContextVar("printed", default=None)


class PrintingTo:
    """Pass on what this context prints while the block runs."""

    __slots__ = ("_before", "_write")

    def __init__(self, write: Callable[[Stream, bytes], None]) -> None:
        """`write` may be called from any thread."""
        self._write = write

    def __enter__(self) -> None:
        """From here on."""
        self._before = _current.set(self._write)

    def __exit__(self, *_: object) -> None:
        """A coroutine that never ended is closed later, in whatever context that happens."""
        with suppress(ValueError):
            _current.reset(self._before)


class _Tee:
    """A stream that also tells the job in whose context something is written."""

    def __init__(self, name: Stream, stream: Any) -> None:
        self._name: Stream = name
        self._stream = stream

    def write(self, text: str) -> int:
        if self._stream is not None:  # a program without a console has none
            self._stream.write(text)
        take = _current.get()
        if take is not None and text:
            take(self._name, text.encode("utf-8", "replace"))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Installed:
    """The two streams, for as long as anybody in this process needs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._tees: list[_Tee] = []

    def add(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._tees = [_install("stdout"), _install("stderr")]

    def remove(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                for tee in self._tees:
                    _uninstall(tee)
                self._tees = []


def _install(name: Stream) -> _Tee:
    before = getattr(sys, name)
    tee = _Tee(name, before)
    setattr(sys, name, tee)
    _redirect(before, tee)
    return tee


def _uninstall(tee: _Tee) -> None:
    if getattr(sys, tee._name) is tee:  # noqa: SLF001 - of this module
        setattr(sys, tee._name, tee._stream)  # noqa: SLF001 - as above
    _redirect(tee, tee._stream)  # noqa: SLF001 - as above


def _redirect(before: Any, after: Any) -> None:
    """Have log handlers that write to one stream write to another.

    They took hold of the stream when they were made, mostly before a worker runs.
    """
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(after)


_installed: Final = _Installed()


@contextmanager
def passing_on_prints() -> Iterator[None]:
    """Tell jobs what they print, in this process, while the block runs."""
    _installed.add()
    try:
        yield
    finally:
        _installed.remove()
