"""Tasks: functions that one machine submits as jobs and another runs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import manifest as manifests
from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.priority import PRIORITIES, Priority
from antiphon.core.policy.rate_limit import parse_rate
from antiphon.core.policy.selection import MAX_REQUIRED, check_labels
from antiphon.core.record.subjects import check_kind, is_kind
from antiphon.errors import Misconfigured
from antiphon.runtime.executors.handlers import HandlerOptions, call_text
from antiphon.sdk.defaults import RETRY_BASE_S, RETRY_CAP_S, TIMEOUT_S
from antiphon.sdk.handle import JobHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from antiphon.core.manifest import Manifest
    from antiphon.ports import Entropy

P = ParamSpec("P")
R = TypeVar("R")


class Retry(Struct, frozen=True, kw_only=True):
    """How a task's jobs are retried (docs/tasks.md)."""

    attempts: int | None = None
    """Attempts before a job counts as failed. None: the mesh's rule."""
    base_s: float = RETRY_BASE_S
    """Seconds before the second attempt; doubled before each further one, and jittered."""
    cap_s: float = RETRY_CAP_S
    """The longest such pause."""
    give_up_on: tuple[type[BaseException] | str, ...] = ()
    """Errors that are not worth another attempt, by class or by name, with their subclasses."""

    def __post_init__(self) -> None:
        self.body()

    def body(self) -> ops.Retry:
        """As it is in the op that submits a job; `Misconfigured` if it is out of bounds."""
        names = [given if isinstance(given, str) else given.__name__ for given in self.give_up_on]
        said = {
            "attempts": self.attempts,
            "base_ms": round(self.base_s * 1000),
            "cap_ms": round(self.cap_s * 1000),
            "give_up_on": names,
        }
        try:
            return msgspec.convert(said, ops.Retry)
        except msgspec.ValidationError as problem:
            raise Misconfigured(
                f"these retry options are not valid: {problem}",
                hint="use 1 to 1000 attempts, pauses of up to an hour, at most 64 names",
            ) from problem


class CallOptions(Struct, frozen=True, kw_only=True):
    """How a task's jobs are scheduled; only `timeout_s` is part of the job's id."""

    once: bool = False
    """The same arguments are the same job: it runs once, and its result is kept."""
    timeout_s: int = TIMEOUT_S
    priority: Priority = "normal"
    """Which waiting job is handed out first."""
    attempts: int | None = None
    """Short for `retry=Retry(attempts=…)`; overrides it."""
    lease_ms: int | None = None
    lease_ms_max: int | None = None
    start_by_ms: int | None = None
    retry: Retry = Retry()
    requires: tuple[str, ...] = ()
    """Labels that a worker must have: `"gpu=a100"`, or `"gpu"` for any (docs/selection.md)."""

    def __post_init__(self) -> None:
        if self.priority not in PRIORITIES:
            raise Misconfigured(
                f"{self.priority!r} is not a priority", hint=f"use one of {', '.join(PRIORITIES)}"
            )

    def call(
        self, kind: str, args: Sequence[object], kwargs: Mapping[str, object], entropy: Entropy
    ) -> ops.ScheduleBody:
        """The body of the op that submits a handler call: a new job each time, unless `once`."""
        job = manifests.author(
            {
                "command": [f"@{check_kind(kind)}"],
                "args": [call_text(tuple(args), dict(kwargs))],
                "timeout": self.timeout_s,
            }
        )
        if not self.once:
            job = manifests.with_nonce(job, fresh_nonce(entropy))
        return self.schedule(kind, job)

    def schedule(self, kind: str, job: Manifest) -> ops.ScheduleBody:
        """The body of the op that submits this job."""
        retry = self.retry
        if self.attempts is not None:
            retry = replace(retry, attempts=self.attempts)
        return ops.ScheduleBody(
            kind=check_kind(kind),
            manifest=job,
            priority=self.priority,
            retry=retry.body(),
            lease_ms=self.lease_ms,
            lease_ms_max=self.lease_ms_max,
            start_by=self.start_by_ms,
            requires=self._checked_requires(),
        )

    def _checked_requires(self) -> tuple[str, ...]:
        try:
            return check_labels(self.requires, most=MAX_REQUIRED)
        except ValueError as wrong:
            raise Misconfigured(str(wrong), hint="labels look like 'eu' or 'gpu=a100'") from wrong


def fresh_nonce(entropy: Entropy) -> str:
    """Makes a manifest a new job, although its content is the same."""
    return entropy.token(16).hex()


def split_options(options: dict[str, Any]) -> tuple[CallOptions, HandlerOptions]:
    """The options of `Mesh.task`: how its jobs are submitted, and how they are run."""
    ours = {name: options[name] for name in HandlerOptions.__struct_fields__ if name in options}
    calls = {name: given for name, given in options.items() if name not in ours}
    if isinstance(ours.get("rate"), str):
        ours["rate"] = parse_rate(ours["rate"])
    try:
        return CallOptions(**calls), HandlerOptions(**ours)
    except TypeError as wrong:
        known = sorted({*CallOptions.__struct_fields__, *HandlerOptions.__struct_fields__})
        raise Misconfigured(
            f"unknown task option: {wrong}", hint=f"options are {', '.join(known)}"
        ) from wrong


def kind_of(function: Callable[..., Any]) -> str:
    """The kind of a task that names none: its function's name."""
    name = getattr(function, "__name__", type(function).__name__)
    if not is_kind(name):
        raise Misconfigured(
            f"{name!r} is not a valid kind, and the task names no other",
            hint='give it a kind: @mesh.task("report.render")',
        )
    return name


class Registration(Protocol):
    """What `Mesh.task` returns: a decorator that keeps the function's types."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Task(Generic[P, R]):
    """A registered function. Called directly it is just the function; `submit` makes it a job."""

    def __init__(
        self,
        kind: str,
        function: Callable[P, Awaitable[R] | R],
        options: CallOptions,
        call: Callable[..., Awaitable[JobHandle[Any]]],
    ) -> None:
        """Made by `Mesh.task`, whose `Mesh.call` it gets."""
        self.kind = kind
        self.function = function
        self.options = options
        self._call = call
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run it in this process, without the mesh."""
        return self.function(*args, **kwargs)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit the task to the mesh; returns once the job is committed."""
        return await self._call(self.kind, args, kwargs, options=self.options)
