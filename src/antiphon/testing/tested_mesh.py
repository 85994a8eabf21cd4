"""A program's mesh inside one test: in memory, on a clock that jumps, with faults on demand.

`TestedMesh` is what the `mesh` fixture of `antiphon.testing.pytest_plugin` gives (docs/testing.md).
Everything runs in the test's own thread. Handlers that would run in a thread or a process run right
there, so a test sees what they print and can patch what they use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.assembly import MemoryMesh
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.runtime.executors.handler_call import call_of
from antiphon.sdk.mesh import Mesh
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import Host, VirtualLoop

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import Failure
    from antiphon.runtime.executors.executor import Assignment, Ran
    from antiphon.runtime.executors.hooks import Next
    from antiphon.sdk.task import Task

P = ParamSpec("P")
T = TypeVar("T")

LEAP_S: Final = 20.0
"""How far time jumps at once while no handler runs; less than it takes to be called dead."""
WORKERS_MAX: Final = 100
"""Workers that one test may use up."""


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


class _Loop(VirtualLoop):
    """Leaps through quiet hours, and runs what is meant for a thread at once, in this one."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        """Handlers that are running now: while there are some, every timer counts."""

    def _pass_time(self) -> None:
        super()._pass_time()
        if self.running:
            return
        # A mesh looks after itself every second; nobody notices if it does so less often.
        own = [when for when, _, one in self._timers if one.context.get(_OF_TEST, False)]
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
        self._workers = 0
        self._is_to_kill = False
        self._is_ending = asyncio.Event()

    def use(self, program: Mesh) -> None:
        """Test the tasks of this mesh, wherever it would connect to; before anything runs."""
        if self._memory is not None:
            raise RuntimeError("say mesh.use(...) before anything runs on the mesh")
        self.program = program

    def task(self, *args: Any, **options: Any) -> Any:
        """Register a task for this test alone, as `Mesh.task` does."""
        return self.program.task(*args, **options)

    # --- running --------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, with a worker beside it. Sleeping takes no time."""
        self._ensure()
        context = copy_context()
        context.run(_OF_TEST.set, True)
        result: T = self._loop.run_until_complete(self._loop.create_task(work, context=context))
        return result

    def call(self, task: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Submit a task and wait for its result; `JobFailed` if it has none."""

        async def submitted() -> T:
            return await (await task.submit(*args, **kwargs)).result()

        return self.run(submitted())

    def _ensure(self) -> None:
        if self._memory is None:
            self._loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        wall = HostClock(self._loop, epoch_ms=int(time.time() * 1000))
        self._memory = MemoryMesh(wall=wall, faults=self._faults)
        self._take_over(self.program)
        await self._stack.enter_async_context(self.program)
        await self._hire()

    def _take_over(self, program: Mesh) -> None:
        """Have the program's mesh run in memory, and its handlers in this thread."""
        handlers = program._handlers  # noqa: SLF001 - tests may
        before = (program._engine, program._given_memory, dict(handlers._by_kind))  # noqa: SLF001 - as above
        program._engine, program._given_memory = "memory", self._memory  # noqa: SLF001 - as above
        for kind, one in before[2].items():
            handlers._by_kind[kind] = replace(one, pool=None)  # noqa: SLF001 - as above
        handlers.hooks.append(self._noted)

        def undo() -> None:
            program._engine, program._given_memory, kinds = before  # noqa: SLF001 - as above
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
        self._worker.start(self._work(ready))
        await ready

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
                self._loop.run_until_complete(self._end())
        finally:
            for undo in reversed(self._undo):
                undo()
            self._loop.close()
        if self._loop.problems:
            raise AssertionError(f"errors that nobody took: {self._loop.problems}")

    async def _end(self) -> None:
        self._is_ending.set()
        if self._worker is not None:
            await asyncio.gather(*self._worker.alive, return_exceptions=True)
        await self._stack.aclose()


__all__ = ["Call", "TestedMesh"]
