"""Tasks: functions that one machine submits as jobs and another runs."""

from __future__ import annotations

import functools
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from antiphon.core.record.subjects import is_kind
from antiphon.errors import Misconfigured
from antiphon.runtime.executors.handler_call import JobContext
from antiphon.runtime.values.signature import CONTEXT
from antiphon.sdk.call_options import Scheduling, merged

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Coroutine,
        Iterable,
        Mapping,
    )
    from typing import Self, Unpack

    from antiphon.runtime.values.signature import CallSignature
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.handle import JobHandle, StreamHandle
    from antiphon.sdk.many.bound_calls import Call, Caller, OfOne

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
F = TypeVar("F", bound="Callable[..., Any]")


def kind_of(function: Callable[..., Any]) -> str:
    """The kind of a task that names none: its function's name."""
    name = getattr(function, "__name__", type(function).__name__)
    if not is_kind(name):
        raise Misconfigured(
            f"{name!r} is not a valid kind, and the task names no other",
            hint='give it a kind: @mesh.task("report.render")',
        )
    return name


ELSEWHERE: Final = {
    **dict.fromkeys(("delay", "apply_async", "send", "remote", "enqueue", "kiq"), "submit"),
    **dict.fromkeys(("defer", "defer_async", "enqueue_job", "schedule", "spawn"), "submit"),
    **dict.fromkeys(("with_options", "send_with_options", "configure", "kicker"), "options"),
    **dict.fromkeys(("s", "si", "message", "starmap"), "bind"),
}
"""What other libraries call it (docs/learn/coming-from.md)."""
_WRITTEN: Final = {
    "submit": "{name}.submit(...)",
    "options": '{name}.options(priority="high").submit(...)',
    "bind": "{name}.bind(...)",
}


def no_attribute(task: object, name: str, kind: str, prefix: str = "") -> AttributeError:
    """The error for an attribute that a task does not have; `prefix` is how submitting begins."""
    ours = ELSEWHERE.get(name)
    words = f"the task {kind} has no attribute {name!r}"
    if ours is not None:
        called = getattr(task, "__name__", "task")
        line = _WRITTEN[ours].format(name=called)
        words += f": did you mean {ours}? {'' if ours == 'bind' else prefix}{line}"
    return AttributeError(words, name=name, obj=task)


class Task(Generic[P, R]):
    """A registered function. Called directly it is just the function; `submit` makes it a job."""

    def __init__(
        self,
        connection: Connection,
        kind: str,
        function: Callable[..., Any],
        signature: CallSignature,
        options: Mapping[str, Any],
    ) -> None:
        """Made by `Mesh.task`."""
        self.kind = kind
        self.function = function
        self.signature = signature
        self.connection = connection
        """The SDK's own; programs use their mesh."""
        self._options = options
        self.scheduling = Scheduling.of(options)
        functools.update_wrapper(self, function)

    if not TYPE_CHECKING:  # a checker would take every attribute for one of ours

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, self.__dict__.get("kind", ""), "await ")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it in this process, without the mesh; its context belongs to no job."""
        given: tuple[Any, ...] = args
        named: dict[str, Any] = kwargs
        if self.signature.wants_context and not _has_context(args, kwargs):
            context = JobContext(kind=self.kind, job_id="", fence="", attempt=1)
            given, named = self.signature.with_context(context, args, kwargs)
        result: R = self.function(*given, **named)
        return result

    def options(self, **options: Unpack[CallOptions]) -> Self:
        """The same task with other options: `render.options(priority="high").submit(...)`."""
        chosen = merged(self._options, options)
        return type(self)(self.connection, self.kind, self.function, self.signature, chosen)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit the task to the mesh; returns once the job is committed.

        `TypeError` if the function cannot be called so: then nothing was written.
        """
        return await _caller_of(self).submit(self.bind(*args, **kwargs))

    def fallback(self, name: str) -> Callable[[F], F]:
        """Register a function that gives a coarser result, where a score names this fallback.

        It is called with the job's arguments, and with its context if it takes `ctx`. Its result
        is the job's, and an output says that it is degraded: docs/do/scores.md.
        """

        def register(function: F) -> F:
            self.connection.declared.handlers.register_fallback(self.kind, name, function)
            return function

        return register

    def job(self, job_id: str) -> JobHandle[R]:
        """A handle on one of its jobs, by its id."""
        from antiphon.sdk.jobs.job_lookup import handle_on

        return handle_on(self.connection, self.kind, job_id, self.signature)

    def decode_result(self, text: str | bytes) -> R:
        """The value of a result's text; for `ctx.results(task)`."""
        value: R = self.signature.decode_result(text)
        return value

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call that is not submitted yet, for `Mesh.submit` and `Mesh.submit_many`."""
        from antiphon.sdk.many.bound_calls import Call

        text = self.signature.encode(args, kwargs)
        return Call(self.kind, text, self.scheduling, self.signature)

    async def submit_many(self: OfOne[A, R], items: Iterable[A]) -> list[JobHandle[R]]:
        """Submit one job for each item; their handles, in the same order: docs/do/tasks.md."""
        task = cast("Task[..., R]", self)
        return await _caller_of(task).submit_many(task.bind(item) for item in items)

    def map(
        self: OfOne[A, R], items: Iterable[A], *, limit: int | None = None
    ) -> AsyncGenerator[JobHandle[R]]:
        """Submit one job for each item, at most `limit` open at once; each job as it ends.

        In the order in which they end: `handle.index` says which item it is. Items are taken as
        there is room, so they may be without end.
        """
        task = cast("Task[..., R]", self)
        return _caller_of(task).map((task.bind(item) for item in items), limit=limit)


def _caller_of(task: Task[..., Any]) -> Caller:
    from antiphon.sdk.many.bound_calls import Caller

    return Caller(task.connection)


def _has_context(args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    return CONTEXT in kwargs or any(isinstance(one, JobContext) for one in args)


class AsyncTask(Task[P, R]):
    """A task of a coroutine function. Called directly it gives the coroutine."""

    def __call__(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Run it in this process, without the mesh."""
        running: Any = super().__call__(*args, **kwargs)
        return running  # type: ignore[no-any-return]


class StreamTask(Task[P, int], Generic[P, R]):
    """A task of an async generator: its jobs send parts. Called directly it gives the generator."""

    def __call__(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[R]:
        """Run it in this process, without the mesh."""
        running: Any = super().__call__(*args, **kwargs)
        return running  # type: ignore[no-any-return]

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> StreamHandle[R]:
        """Submit the task; `async for part in handle.stream()` follows what it yields."""
        return cast("StreamHandle[R]", await super().submit(*args, **kwargs))

    def job(self, job_id: str) -> StreamHandle[R]:
        """A handle on one of its jobs, by its id."""
        return cast("StreamHandle[R]", super().job(job_id))


class TaskDecorator(Protocol):
    """What `Mesh.task` returns: a decorator that keeps the function's types, without its `ctx`."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], AsyncIterator[R]], /
    ) -> StreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, AsyncIterator[R]], /) -> StreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
