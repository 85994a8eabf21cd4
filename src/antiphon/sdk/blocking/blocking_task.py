"""Tasks whose `submit` waits instead of being awaited."""

from __future__ import annotations

import functools
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from antiphon.sdk.task import no_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from typing import Self, Unpack

    from antiphon.runtime.executors.handler_call import JobContext
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.sdk.blocking.blocking_handle import BlockingHandle
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.many.bound_calls import Call
    from antiphon.sdk.task import Task

A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[..., Any]")


class Submitter(Protocol):
    """What a task needs of its mesh."""

    def submit(self, call: Call[R], /) -> BlockingHandle[R]:
        """Submit a call."""

    def job(
        self, kind: str, job_id: str, signature: CallSignature | None = None
    ) -> BlockingHandle[Any]:
        """A handle on a job, by its kind and id."""

    def submit_many(self, calls: Iterable[Call[R]]) -> list[BlockingHandle[R]]:
        """Submit calls of any tasks."""

    def map_calls(
        self, calls: Iterable[Call[R]], *, limit: int | None
    ) -> Iterator[BlockingHandle[R]]:
        """Submit calls as there is room; each job as it ends."""


class OfOne(Protocol[A_contra, R_co]):
    """A task that takes one argument: what `map` and `submit_many` can be used on."""

    def submit(self, item: A_contra, /) -> BlockingHandle[R_co]:
        """Submit it with this argument."""


class BlockingTask(Generic[P, R]):
    """A registered function. Called directly it is just the function; `submit` makes it a job."""

    def __init__(self, mesh: Submitter, task: Task[P, R]) -> None:
        """Made by `BlockingMesh.task` and `BlockingMesh.wrap`."""
        self.mesh = mesh
        self._task = task
        self.kind = task.kind
        self.function = task.function
        self.signature = task.signature
        self.scheduling = task.scheduling
        functools.update_wrapper(self, task.function)

    if not TYPE_CHECKING:  # a checker would take every attribute for one of ours

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, self.__dict__.get("kind", ""))

    @property
    def unblocked(self) -> Task[P, R]:
        """The task of the async mesh."""
        return self._task

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it in this process, without the mesh; its context belongs to no job."""
        return self._task(*args, **kwargs)

    def options(self, **options: Unpack[CallOptions]) -> Self:
        """The same task with other options: `render.options(priority="high").submit(...)`."""
        return type(self)(self.mesh, self._task.options(**options))

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle[R]:
        """Submit the task to the mesh; returns once the job is committed.

        `TypeError` if the function cannot be called so: then nothing was written.
        """
        return self.mesh.submit(self.bind(*args, **kwargs))

    def fallback(self, name: str) -> Callable[[F], F]:
        """Register a function that gives a coarser result: `Task.fallback`."""
        return self._task.fallback(name)

    def job(self, job_id: str) -> BlockingHandle[R]:
        """A handle on one of its jobs, by its id."""
        return self.mesh.job(self.kind, job_id, self.signature)

    def decode_result(self, text: str | bytes) -> R:
        """The value of a result's text; for `ctx.results(task)`."""
        return self._task.decode_result(text)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call that is not submitted yet, for `BlockingMesh.submit` and `submit_many`."""
        return self._task.bind(*args, **kwargs)

    def submit_many(self: OfOne[A, R], items: Iterable[A]) -> list[BlockingHandle[R]]:
        """Submit one job for each item; their handles, in the same order: docs/do/tasks.md."""
        task = cast("BlockingTask[..., R]", self)
        return task.mesh.submit_many(task.bind(item) for item in items)

    def map(
        self: OfOne[A, R], items: Iterable[A], *, limit: int | None = None
    ) -> Iterator[BlockingHandle[R]]:
        """Submit one job for each item, at most `limit` open at once; each job as it ends."""
        task = cast("BlockingTask[..., R]", self)
        return task.mesh.map_calls((task.bind(item) for item in items), limit=limit)


class BlockingAsyncTask(BlockingTask[P, R]):
    """A task of a coroutine function. Called directly it gives the coroutine."""

    def __call__(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Run it in this process, without the mesh."""
        running: Any = super().__call__(*args, **kwargs)
        return running  # type: ignore[no-any-return]


class BlockingTaskDecorator(Protocol):
    """What `BlockingMesh.task` returns: a decorator that keeps the types, without `ctx`."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> BlockingAsyncTask[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> BlockingAsyncTask[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], R], /
    ) -> BlockingTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> BlockingTask[P, R]: ...
