"""A program's mesh inside one test: in memory, on a clock that jumps, with faults on demand.

`TestedMesh` is what the `mesh` fixture of `antiphon.testing.pytest_plugin` gives: see
docs/do/testing.md.
Everything runs in the test's own thread. Handlers that would run in a thread or a process run right
there, so a test sees what they print and can patch what they use.
"""

from __future__ import annotations

import asyncio
import sys
import time
import warnings
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.assembly import MemoryMesh
from antiphon.core.families.jobs.state import State
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.errors import Misconfigured, NobodyAnswers
from antiphon.runtime.executors.handler_call import call_of
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.durations import seconds
from antiphon.sdk.mesh import Mesh
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import Host, VirtualLoop

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import Failure
    from antiphon.runtime.executors.executor import Assignment, Ran
    from antiphon.runtime.executors.hooks import Next
    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.task import Task

P = ParamSpec("P")
T = TypeVar("T")

LEAP_S: Final = 20.0
"""How far time jumps at once while no handler runs; less than it takes to be called dead."""
WORKERS_MAX: Final = 100
"""Workers that one test may use up."""
LIMIT_S: Final = 4 * 3600.0
"""Virtual seconds that a test may wait beside its own sleep: three attempts of an hour fit in."""
UNDO_S: Final = 600.0
"""Virtual seconds for what is cut to clean up."""
JOBS_NAMED: Final = 3
_OPEN: Final = (State.WAITING, State.PENDING, State.CLAIMED, State.RUNNING)


class Call(Struct, frozen=True, kw_only=True):
    """A handler's call, as its worker saw it."""

    kind: str
    args: tuple[Any, ...]
    """As plain JSON."""
    kwargs: dict[str, Any]
    attempt: int
    job_id: str
    failure: Failure | None = None
    """What it failed with."""


_OF_TEST: ContextVar[bool] = ContextVar("of_test", default=False)
"""Whether a timer belongs to the test's own coroutine."""


class _TooLong(Exception):
    """The time that a test may wait is over."""


class _Loop(VirtualLoop):
    """Leaps through quiet hours, and runs what is meant for a thread at once, in this one."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        """Handlers that are running now: while there are some, every timer counts."""
        self._ends_s = 0.0
        self._longest_s = 0.0

    def run_for(self, limit_s: float, work: asyncio.Future[T]) -> T:
        """Run it to its end; `_TooLong` if that takes longer, beside the test's longest sleep."""
        self._ends_s, self._longest_s = self.time() + limit_s, 0.0
        result: T = self.run_until_complete(work)
        return result

    def _pass_time(self) -> None:
        before_s = self._now
        super()._pass_time()
        own = [when for when, _, one in self._timers if one.context.get(_OF_TEST, False)]
        # The longest and not the sum: a test that looks again every second has an end, too.
        self._longest_s = max([self._longest_s, *(when - before_s for when in own)])
        if self._now > self._ends_s + self._longest_s:
            raise _TooLong
        if self.running:
            return
        # A mesh looks after itself every second; nobody notices if it does so less often.
        self._now = max(self._now, min([self._now + LEAP_S, *own]))

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002 - asyncio's signature
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is whoever waits for it that gets it
            future.set_exception(error)
        return future


class _FaultsOnDemand:
    """`Faults` that let everything through until they are asked not to."""

    def __init__(self) -> None:
        self.to_lose = 0

    def request(self, what: str) -> Fate:
        if self.to_lose and what.startswith("append"):
            self.to_lose -= 1
            return Fate(answer_lost=True)
        return FINE

    def delivery(self) -> Fate:
        return FINE

    def notice(self) -> Fate:
        return FINE

    def bus(self) -> Fate:
        return FINE

    def reconnect(self) -> Fate:
        return FINE


class TestedMesh:
    """One test's mesh; its worker begins with the first `run` or `call`."""

    __test__ = False  # its name looks like a test's to pytest

    def __init__(self) -> None:
        """In memory, and without tasks yet."""
        self.program: Mesh = Mesh.open(engine="memory")
        """The mesh that the worker's tasks belong to."""
        self._loop = _Loop()  # type: ignore[abstract]
        self._faults = _FaultsOnDemand()
        self._calls: list[Call] = []
        self._stack = AsyncExitStack()
        self._undo: list[Callable[[], None]] = []
        self._memory: MemoryMesh | None = None
        self._worker: Host | None = None
        self._dead: list[Host] = []
        self._workers = 0
        self._is_to_kill = False
        self._is_ending = asyncio.Event()

    def use(self, program: Mesh) -> None:
        """Test the tasks of this mesh, wherever it would connect to; before anything runs."""
        self._check_not_begun("mesh.use(...)")
        self.program = program

    def task(self, *args: Any, **options: Any) -> Any:
        """Register a task for this test alone, as `Mesh.task` does; before anything runs."""
        self._check_not_begun("mesh.task(...)")
        return self.program.task(*args, **options)

    def _check_not_begun(self, line: str) -> None:
        if self._memory is not None:
            raise RuntimeError(f"say {line} before anything runs on the mesh")

    # --- running --------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T], *, limit: Duration = LIMIT_S) -> T:
        """Run a coroutine to its end, with a worker beside it. Sleeping takes no time.

        TimeoutError if it waits longer than `limit`, by the clock that jumps; its longest sleep
        comes on top of that. `Misconfigured` if it waits for a job that no task here can run.
        """
        try:
            self._ensure()
        except BaseException:
            work.close()
            raise
        context = copy_context()
        context.run(_OF_TEST.set, True)
        with warnings.catch_warnings():
            warnings.simplefilter("error", NobodyAnswers)
            try:
                return self._bounded(self._loop.create_task(work, context=context), seconds(limit))
            except NobodyAnswers as nobody:
                what, known = str(nobody).partition(";")[0], ", ".join(self.program.kinds)
                raise Misconfigured(
                    f"the test would wait for ever: {what} (the tested mesh has"
                    f" {known or 'no tasks'})",
                    hint="mesh.use(MODULE.mesh), with the module that has the task, or"
                    " mesh.task(...): before anything runs",
                ) from None

    def call(self, task: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Submit a task and wait for its result; `JobFailed` if it has none.

        `Misconfigured` if the task belongs to another mesh than the one that is tested.
        """
        if task.connection is not self.program.connection:
            line = f"mesh.use({_name_of(task.connection, task.function.__module__)})"
            raise Misconfigured(
                f"{task.kind} is a task of another mesh than the one that this test runs:"
                f" add the line {line} to the test or its fixture, before anything runs",
                hint=line,
            )
        delay_s = (task.scheduling.delay_ms or 0) / 1000
        if task.scheduling.at_ms is not None:
            delay_s = max(task.scheduling.at_ms / 1000 - time.time(), 0)

        async def submitted() -> T:
            return await (await task.submit(*args, **kwargs)).result()

        return self.run(submitted(), limit=LIMIT_S + delay_s)

    def _ensure(self) -> None:
        if self._memory is None:
            self._bounded(self._loop.create_task(self._begin()), LIMIT_S)

    def _bounded(self, work: asyncio.Task[T], limit_s: float) -> T:
        began_s = self._loop.time()
        try:
            return self._loop.run_for(limit_s, work)
        except _TooLong:
            waited_s, place = self._loop.time() - began_s, _place_of(work)
            work.cancel()
            with suppress(Exception, asyncio.CancelledError):
                self._loop.run_for(UNDO_S, work)
        raise TimeoutError(
            f"the test waited {waited_s / 3600:.1f} hours, by its own clock{place}"
            f"{self._open_jobs()}; for a longer wait: mesh.run(..., limit='48h')"
        )

    def _open_jobs(self) -> str:
        if self._memory is None:
            return ""
        replica = self.program.connection.memory_replica
        found = (
            [] if replica is None else replica.ask(ReplicaJobs).jobs(states=_OPEN, limit=JOBS_NAMED)
        )
        jobs = [f"{one.id[:8]} ({one.kind}) is {one.state.value}" for one in found]
        return f"; jobs that have not ended: {', '.join(jobs)}" if jobs else ""

    async def _begin(self) -> None:
        wall = HostClock(self._loop, epoch_ms=int(time.time() * 1000))
        self._memory = MemoryMesh(wall=wall, faults=self._faults)
        self._take_over(self.program)
        await self._stack.enter_async_context(self.program)
        if self.program.kinds:
            await self._hire()

    def _take_over(self, program: Mesh) -> None:
        """Have the program's mesh run in memory, and its handlers in this thread."""
        connection = program.connection
        handlers = connection.declared.handlers
        before = (connection.engine_name, connection.given_memory, dict(handlers._by_kind))  # noqa: SLF001 - tests may
        connection.engine_name, connection.given_memory = "memory", self._memory
        for kind, one in before[2].items():
            handlers._by_kind[kind] = replace(one, how=replace(one.how, run_in=None, env=()))  # noqa: SLF001 - as above
        handlers.hooks.append(self._noted)

        def undo() -> None:
            connection.engine_name, connection.given_memory, kinds = before
            handlers._by_kind.update(kinds)  # noqa: SLF001 - as above
            handlers.hooks.remove(self._noted)

        self._undo.append(undo)

    async def _hire(self) -> None:
        """Start a worker, as a machine of its own that can die."""
        self._workers += 1
        if self._workers > WORKERS_MAX:
            raise RuntimeError(f"this test has used up {WORKERS_MAX} workers")
        self._worker = Host(f"worker {self._workers}", self._loop)
        ready = self._loop.create_future()
        working = self._worker.start(self._work(ready))
        await asyncio.wait([ready, working], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await working  # its error is why there is no worker

    async def _work(self, ready: asyncio.Future[None]) -> None:
        async with self.program.worker():
            if not ready.done():
                ready.set_result(None)
            await self._is_ending.wait()

    async def _noted(self, assignment: Assignment, call_next: Next, /) -> Ran:
        """A hook: keeps what was called, and ends the worker if somebody asked for that."""
        args, kwargs = call_of(assignment.manifest) if assignment.manifest.args else ([], {})
        call = Call(
            kind=assignment.kind,
            args=tuple(args),
            kwargs=kwargs,
            attempt=assignment.attempt,
            job_id=assignment.job_id,
        )
        at = len(self._calls)
        self._calls.append(call)
        self._loop.running += 1
        try:
            ran = await call_next(assignment)
        except Exception as error:
            from antiphon.runtime.executors.failure import failure_of

            self._calls[at] = replace(call, failure=failure_of(error))
            raise
        finally:
            self._loop.running -= 1
        self._calls[at] = replace(call, failure=ran.failure)
        if self._is_to_kill:
            self._is_to_kill = False
            self._kill()
            await self._loop.create_future()  # until the dead worker's tasks are gone
        return ran

    def _kill(self) -> None:
        dead, memory = self._worker, self._memory
        if dead is None or memory is None:
            return
        memory.engines["worker"].crash()
        self._dead.append(dead)
        self._loop.call_soon(dead.kill)
        self._again = self._loop.create_task(self._hire(), context=Context())

    # --- faults ---------------------------------------------------------------------------------

    def kill_worker(self) -> None:
        """End the worker after its next call of a handler, before it can write the result.

        It gives nothing back, as with `kill -9`. Another worker begins; it gets the job when the
        lease is over, and the handler is called a second time.
        """
        self._is_to_kill = True

    def lose_next_write(self, count: int = 1) -> None:
        """Store the next writes to the log, and lose the engine's answers to them."""
        self._ensure()
        self._faults.to_lose += count

    # --- what was called ------------------------------------------------------------------------

    def calls(self, task: Task[..., Any] | str) -> list[Call]:
        """The calls of a task's handler so far, in their order; also those of dead workers."""
        kind = task if isinstance(task, str) else task.kind
        return [one for one in self._calls if one.kind == kind]

    def assert_called(self, task: Task[..., Any] | str, *args: Any, **kwargs: Any) -> None:
        """AssertionError unless its handler was called with these arguments, as plain JSON."""
        found = self.calls(task)
        if not any((one.args, one.kwargs) == (args, kwargs) for one in found):
            was = ", ".join(f"{one.args} {one.kwargs}" for one in found) or "it was not called"
            raise AssertionError(f"no call with {args} {kwargs}: {was}")

    def assert_not_called(self, task: Task[..., Any] | str) -> None:
        """AssertionError if its handler was called."""
        found = self.calls(task)
        if found:
            raise AssertionError(f"called {len(found)} times, first with {found[0].args}")

    # --- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """End everything; AssertionError if a task of the mesh ended in an unexpected error."""
        try:
            if self._memory is not None:
                self._bounded(self._loop.create_task(self._end()), LIMIT_S)
        finally:
            for undo in reversed(self._undo):
                undo()
            self._loop.close()
        if self._loop.problems:
            raise AssertionError(f"errors that nobody took: {self._loop.problems}")

    async def _end(self) -> None:
        self._is_ending.set()
        workers = self._dead if self._worker is None else [*self._dead, self._worker]
        alive = [task for one in workers for task in one.alive]
        await asyncio.gather(*alive, return_exceptions=True)
        await self._stack.aclose()


def _name_of(program: Connection, module: str) -> str:
    """How a test writes a program's mesh: `shop.mesh`."""
    names = vars(sys.modules[module]).items() if module in sys.modules else ()
    found = next((name for name, one in names if getattr(one, "connection", None) is program), "")
    return f"{module}.{found}" if found else "MODULE.mesh"


def _place_of(work: asyncio.Task[Any]) -> str:
    """The line of the test or its program that a task waits at."""
    found = ""
    coroutine: Any = work.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        name = "" if frame is None else frame.f_globals.get("__name__", "")
        if frame is not None and name.partition(".")[0] not in ("antiphon", "asyncio"):
            file = Path(frame.f_code.co_filename).name
            found = f", in {frame.f_code.co_qualname} at {file}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None)
    return found


__all__ = ["Call", "TestedMesh"]
