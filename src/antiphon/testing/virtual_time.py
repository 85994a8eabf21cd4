"""Virtual time: an event loop whose clock jumps, machines that freeze, seeded randomness.

`VirtualLoop` runs asyncio programs without waiting: when nothing is ready, its time is the next
timer's. It owns no socket, no thread and no real clock, and whatever would need one raises; so a
run is a function of the program and its seed. Order is exact: timers that are due together run in
the order in which they were set.

A `Host` is one simulated machine. Everything that is started on it, and everything that those
tasks start, carries it in its context. Freezing a host stops all of it at once, timers included,
as SIGSTOP does; thawing lets what became due meanwhile run in its order. Callbacks of the
packages named as `outside` (network and server) go on while a host is frozen.

What a machine believes about time is in `host_clock.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeVar

T = TypeVar("T")

TURNS_WITHOUT_TIME: Final = 1_000_000
"""Turns of the loop at one instant before it is called a livelock."""
CANCELLED_KEPT: Final = 256
"""Cancelled timers that may lie in the heap before it is swept."""

_HOST: contextvars.ContextVar[Host | None] = contextvars.ContextVar("host", default=None)


class Stalled(RuntimeError):
    """Nothing is ready and no timer is set: the program waits for something that never comes."""


class Host:
    """One machine: its tasks share a fate."""

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        """Running, with nothing on it."""
        self.name = name
        self.is_frozen = False
        self.is_dead = False
        self.held: list[_Handle] = []
        self._loop = loop
        self._tasks: list[_Task] = []
        self._sweep_at = 64

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine on this machine."""
        context = contextvars.copy_context()
        context.run(_HOST.set, self)
        return self._loop.create_task(work, context=context)

    def freeze(self) -> None:
        """Stop everything on this machine where it stands."""
        if not self.is_frozen:
            self.is_frozen = True
            self._loop.frozen += 1

    def thaw(self) -> None:
        """Go on; what became due meanwhile runs now, in its order."""
        if not self.is_frozen:
            return
        self.is_frozen = False
        self._loop.frozen -= 1
        held, self.held = self.held, []
        self._loop.resume(held)

    def kill(self) -> None:
        """End every task. Cut the machine off from the world first: their clean-up still runs."""
        self.is_dead = True
        self.thaw()
        for task in self._tasks:
            task.cancel()

    @property
    def alive(self) -> list[asyncio.Task[Any]]:
        """Tasks that have not ended."""
        return [task for task in self._tasks if not task.done()]

    def adopt(self, task: _Task) -> None:
        """A task was started here."""
        self._tasks.append(task)
        if len(self._tasks) > self._sweep_at:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._sweep_at = 2 * len(self._tasks) + 64


def current_host() -> Host | None:
    """The machine that the running code is on; None for the world itself."""
    return _HOST.get()


class _Handle(asyncio.TimerHandle):
    """A callback to come, at `due` if it has a heap to lie in. Leaner than asyncio's own."""

    __slots__ = ("args", "callback", "context", "due", "heap_of", "is_cancelled")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: contextvars.Context | None,
        due: float,
        heap_of: VirtualLoop | None = None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.due = due
        self.heap_of = heap_of
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not run it; time need not stop for it either."""
        if not self.is_cancelled:
            self.is_cancelled = True
            if self.heap_of is not None:
                self.heap_of.timer_cancelled()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """The virtual time at which it is due."""
        return self.due

    def __repr__(self) -> str:
        return f"<{self.callback!r} at {self.due}>"


class _Task(asyncio.Task[Any]):
    """A task whose hash does not depend on its address: sets of tasks keep one order."""

    def __init__(
        self,
        work: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        loop: VirtualLoop,
        number: int,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> None:
        self.number = number
        self.host = context.get(_HOST) if context is not None else _HOST.get()
        # Always named: the default name would come from a counter of the whole process.
        super().__init__(work, loop=loop, name=name or f"task {number}", context=context)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop on virtual time. What is not here needs IO or threads, and raises."""

    def __init__(self, *, outside: tuple[str, ...] = ()) -> None:
        """Begin at time 0; `outside` names packages whose callbacks no host's freeze stops."""
        self.problems: list[dict[str, Any]] = []
        """What asyncio would have logged: exceptions that nobody took."""
        self.frozen = 0
        """Hosts that are frozen now."""
        self._outside = outside
        self._now = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._cancelled = 0
        self._order = 0
        self._tasks = 0
        self._task_factory: Callable[..., asyncio.Task[Any]] | None = None
        self._closed = False

    # --- time and callbacks -----------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback in the next turn."""
        handle = _Handle(callback, args, context, self._now)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """The same: there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time."""
        handle = _Handle(callback, args, context, when, self)
        self._order += 1
        heappush(self._timers, (when, self._order, handle))
        return handle

    def resume(self, handles: list[_Handle]) -> None:
        """Put callbacks back that a frozen host held up."""
        self._ready.extend(handles)

    def timer_cancelled(self) -> None:
        """One more timer lies in the heap for nothing."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_KEPT and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].is_cancelled]
            heapify(self._timers)
            self._cancelled = 0

    # --- futures and tasks ------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """A task of this loop, on the host of its context."""
        return self.get_task_factory()(self, coro, name=name, context=context)

    def _new_task(self, _: object, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._tasks += 1
        task = _Task(coro, loop=self, number=self._tasks, **options)
        if task.host is not None:
            task.host.adopt(task)
        return task

    def get_task_factory(self) -> Callable[..., asyncio.Task[Any]]:
        """What makes the tasks; its own, unless another was set."""
        return self._task_factory or self._new_task

    def set_task_factory(self, factory: Any) -> None:
        """Have another make the tasks, which calls the one before it."""
        self._task_factory = factory

    # --- running ----------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Run until a coroutine or future is done; `Stalled` if it never can be."""
        task = asyncio.ensure_future(future, loop=self)
        before = asyncio._get_running_loop()  # noqa: SLF001 - what every event loop does
        asyncio._set_running_loop(self)  # noqa: SLF001 - as above
        quiet_turns, at = 0, self._now
        try:
            while not task.done():
                self._turn()
                if self._now > at:
                    quiet_turns, at = 0, self._now
                elif (quiet_turns := quiet_turns + 1) > TURNS_WITHOUT_TIME:
                    raise Stalled(f"a livelock at {self._now:.3f} s")
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001 - as above
        return task.result()

    def run_forever(self) -> None:
        """Refuse: a virtual run has an end."""
        raise NotImplementedError("virtual time has no for ever: use run_until_complete")

    def _turn(self) -> None:
        """Run everything that is ready; if nothing is, let time pass."""
        ready, timers = self._ready, self._timers
        if not ready:
            self._pass_time()
            timers = self._timers
        while timers and timers[0][0] <= self._now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            context = handle.context
            if self.frozen:
                host = context.get(_HOST)
                if host is not None and host.is_frozen and not self._is_outside(handle):
                    host.held.append(handle)
                    continue
            try:
                context.run(handle.callback, *handle.args)
            except Exception as problem:  # noqa: BLE001 - as asyncio: a callback's error is told
                self.call_exception_handler({"message": "a callback failed", "exception": problem})

    def _pass_time(self) -> None:
        while self._timers:
            when, _, handle = self._timers[0]
            if not handle.is_cancelled:
                self._now = max(self._now, when)
                return
            heappop(self._timers)
            self._cancelled -= 1
        raise Stalled(f"nothing is ready and no timer is set at {self._now:.3f} s")

    def _is_outside(self, handle: _Handle) -> bool:
        owner = getattr(handle.callback, "__self__", None)
        return owner is not None and type(owner).__module__.startswith(self._outside)

    # --- what asyncio asks of a loop --------------------------------------------------------

    def is_running(self) -> bool:
        """Whether code of this loop is running now."""
        return asyncio._get_running_loop() is self  # noqa: SLF001 - what every event loop does

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Forget everything that was to come."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def get_debug(self) -> bool:
        """Never: asyncio's debug mode reads real clocks."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what asyncio would have logged, unless a dead machine said it."""
        task = context.get("task") or context.get("future")
        if isinstance(task, _Task) and task.host is not None and task.host.is_dead:
            return
        self.problems.append(context)


def new_loop(*, outside: tuple[str, ...] = ()) -> VirtualLoop:
    """A virtual loop; the methods that it lacks on purpose look abstract to a type checker."""
    return VirtualLoop(outside=outside)  # type: ignore[abstract]
