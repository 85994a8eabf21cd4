"""Hooks: your own code around every run, for timing, tracing, setup and the like.

    class Traced:
        async def __call__(self, assignment, call_next):
            with tracer.start_as_current_span(assignment.kind):
                return await call_next(assignment)

    mesh.use(Traced())

The first hook is the outermost. An exception in a hook is the job's failure, as if the handler had
raised it. A hook runs in the worker's event loop, also around threads, processes and commands: the
exception of a coroutine or thread passes through it; the failure of a process or command is in the
result that `call_next` returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from antiphon.core.manifest import Manifest
    from antiphon.runtime.executors.executor import Assignment, Executor, Executors, Ran

Next = Callable[["Assignment"], Awaitable["Ran"]]


class Hook(Protocol):
    """Code that is wrapped around a run."""

    async def __call__(self, assignment: Assignment, call_next: Next, /) -> Ran:
        """Do something, `await call_next(assignment)`, do something more, and return the result.

        A hook is cancelled together with its job: it must end, and so must what it awaits.
        """


def hooked(executors: Executors, hooks: Sequence[Hook]) -> Executors:
    """The same executors, every run wrapped in these hooks."""
    return _Hooked(executors, tuple(hooks)) if hooks else executors


class _Hooked:
    def __init__(self, inner: Executors, hooks: tuple[Hook, ...]) -> None:
        self._inner = inner
        self._hooks = hooks

    @property
    def kinds(self) -> list[str]:
        return self._inner.kinds

    def find(self, kind: str, manifest: Manifest) -> Executor | None:
        found = self._inner.find(kind, manifest)
        return None if found is None else _HookedExecutor(found, self._hooks)


class _HookedExecutor(Struct, frozen=True):
    inner: Executor
    hooks: tuple[Hook, ...]

    @property
    def grace_s(self) -> float:
        return self.inner.grace_s

    @property
    def goes_on(self) -> bool:
        return self.inner.goes_on

    async def run(self, assignment: Assignment) -> Ran:
        run: Next = self.inner.run
        for hook in reversed(self.hooks):
            run = _around(hook, run)
        return await run(assignment)

    async def fall_back(self, name: str, assignment: Assignment) -> Ran | None:
        return await self.inner.fall_back(name, assignment)


def _around(hook: Hook, call_next: Next) -> Next:
    async def run(assignment: Assignment) -> Ran:
        return await hook(assignment, call_next)

    return run
