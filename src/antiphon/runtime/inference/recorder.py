"""To whom the model calls of the present context are told.

The recorder of an audited run goes with its tasks (`contextvars`), and with the threads that it
starts: `carry_into_threads` sees to those, which Python would start with an empty context.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Protocol

from antiphon.core.inference.exchange import Exchange
from antiphon.errors import GiveUp

_current: ContextVar[Recorder | None] = ContextVar("inference", default=None)


class Unfinished(Protocol):
    """A call whose answer has not been read to its end."""

    def cut(self) -> None:
        """Tell what there is of it."""


class Recorder:
    """Counts the calls of one run, and tells each when it has ended; from any thread."""

    def __init__(
        self,
        tell: Callable[[Exchange], None],
        *,
        stamp: Callable[[], str],
        now_s: Callable[[], float],
        most: int,
    ) -> None:
        """`stamp` gives the HLC as text; `most` calls can be stored."""
        self._tell = tell
        self.stamp = stamp
        self.now_s = now_s
        self.most = most
        self.count = 0
        self.is_closed = False
        self._open: dict[Unfinished, None] = {}
        self._changing = threading.Lock()

    def begin(self, call: Unfinished) -> None:
        """A call begins; `GiveUp` if the job has made as many as can be stored."""
        with self._changing:
            if self.count >= self.most:
                raise GiveUp(
                    "the job's model calls are audited, and it has made as many as can be stored;"
                    " split it into several jobs"
                )
            self.count += 1
            self._open[call] = None

    def end(self, call: Unfinished, exchange: Exchange) -> None:
        """A call has ended."""
        with self._changing:
            if call not in self._open:
                return
            del self._open[call]
        self._tell(exchange)

    def add(self, exchange: Exchange) -> None:
        """A call that was made and ended elsewhere."""
        with self._changing:
            self.count += 1
        self._tell(exchange)

    def close(self) -> None:
        """The run is over: tell what there is of calls that have not ended, and of no more.

        A thread that outlives its run goes on calling, and that is no part of the job.
        """
        with self._changing:
            self.is_closed = True
            left = list(self._open)
        for call in left:
            call.cut()


def current() -> Recorder | None:
    """The recorder of this context; None: nothing is audited here."""
    return _current.get()


class RecordedBy:
    """Tell a recorder what this context calls while the block runs."""

    __slots__ = ("_before", "_recorder")

    def __init__(self, recorder: Recorder | None) -> None:
        """Nothing is recorded yet; None: it is told nobody."""
        self._recorder = recorder

    def __enter__(self) -> None:
        """From here on."""
        self._before = _current.set(self._recorder)

    def __exit__(self, *_: object) -> None:
        """A coroutine that never ended is closed later, in whatever context that happens."""
        with suppress(ValueError):
            _current.reset(self._before)


def carry_into_threads() -> None:
    """Have threads that a context with a recorder starts be told of by it, too."""
    really_start, really_submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start(thread: threading.Thread) -> None:
        recorder = _current.get()
        if recorder is not None:
            thread.run = _within(recorder, thread.run)  # type: ignore[method-assign]
        really_start(thread)

    def submit(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **kw: Any) -> Any:
        recorder = _current.get()
        # The pool's own threads outlive the run: they must not be started within it.
        with RecordedBy(None):
            return really_submit(
                pool, work if recorder is None else _within(recorder, work), *args, **kw
            )

    threads: Any = threading.Thread
    pools: Any = ThreadPoolExecutor
    threads.start, pools.submit = start, submit


def _within(recorder: Recorder, work: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(*args: Any, **kwargs: Any) -> Any:
        with RecordedBy(recorder):
            return work(*args, **kwargs)

    return recorded
