"""What a worker can run: registered Python functions, by kind.

A handler takes the job's arguments and, if it asks for one, a `JobContext`. Coroutine functions
run in the worker's loop; plain functions run in a thread, so that a slow one does not stop
renewals.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from antiphon.core import codec, subjects
from antiphon.core.ids import digest
from antiphon.core.manifest import Manifest
from antiphon.core.ops import Failure, Output
from antiphon.errors import Malformed, Misconfigured
from antiphon.runtime.executing import Assignment, Executor, Ran
from antiphon.runtime.proving import python_runner

RESULT: Final = "result"
MAX_RESULT_BYTES: Final = 64 * 1024
MAX_MESSAGE: Final = 2_000

Handler = Callable[..., Any]


class JobContext(Struct, frozen=True, kw_only=True):
    """What a handler may know about the job it runs."""

    kind: str
    job: str
    fence: str
    """Give this to any resource the handler writes to: it refuses whoever comes with a lower."""
    attempt: int
    """1 for the first tenure of this job."""


class Registered(Struct, frozen=True):
    """A handler and how it is called: the executor of its kind."""

    function: Handler
    wants_context: bool
    is_async: bool

    @property
    def grace_s(self) -> float:
        """A function keeps no time of its own."""
        return 0

    async def run(self, assignment: Assignment) -> Ran:
        """Call it; what it returns is the job's one output."""
        if assignment.manifest.handler != assignment.kind:
            raise Malformed(
                f"a job of kind {assignment.kind} names the handler @{assignment.manifest.handler}",
                reason="manifest",
            )
        context = JobContext(
            kind=assignment.kind,
            job=assignment.job,
            fence=assignment.fence,
            attempt=assignment.attempt,
        )
        output = await run_handler(self, assignment.manifest, context)
        return Ran(runner=python_runner(), outputs=(output,))


class Handlers:
    """A worker's repertoire."""

    def __init__(self) -> None:
        """Begin empty."""
        self._by_kind: dict[str, Registered] = {}

    @property
    def kinds(self) -> list[str]:
        """The kinds that this worker can run."""
        return sorted(self._by_kind)

    def register(self, kind: str, function: Handler) -> None:
        """Run `function` for jobs of exactly this kind."""
        subjects.check_kind(kind)
        if kind in self._by_kind:
            raise Misconfigured(f"two handlers are registered for {kind!r}")
        wants_context = any(
            parameter.name == "ctx" and parameter.kind is not parameter.POSITIONAL_ONLY
            for parameter in inspect.signature(function).parameters.values()
        )
        is_async = inspect.iscoroutinefunction(function)
        self._by_kind[kind] = Registered(function, wants_context, is_async)

    def find(self, kind: str, manifest: Manifest) -> Executor | None:
        """The handler of a kind; None for a command, which another worker may run."""
        return None if manifest.handler is None else self._by_kind.get(kind)


def call_text(args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """The one canonical-JSON argument that a call of a handler travels as."""
    return codec.canonical_json({"args": list(args), "kwargs": kwargs})


def call_of(manifest: Manifest) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments out of a manifest."""
    if len(manifest.args) != 1:
        raise Malformed("a handler takes exactly one JSON argument", reason="manifest")
    match codec.parse_json(manifest.args[0]):
        case {"args": list(args), "kwargs": dict(kwargs)}:
            return args, kwargs
        case _:
            raise Malformed(
                "a handler's argument is {'args': [...], 'kwargs': {...}}", reason="manifest"
            )


async def run_handler(handler: Registered, manifest: Manifest, context: JobContext) -> Output:
    """Call a handler and turn what it returns into an output."""
    args, kwargs = call_of(manifest)
    if handler.wants_context:
        kwargs["ctx"] = context
    value: Any
    if handler.is_async:
        value = await handler.function(*args, **kwargs)
    else:
        value = await asyncio.to_thread(handler.function, *args, **kwargs)
        if inspect.isawaitable(value):
            value = await _awaited(value)
    text = codec.canonical_json(value)
    raw = text.encode()
    if len(raw) > MAX_RESULT_BYTES:
        raise Malformed(
            f"the result has {len(raw)} bytes as JSON; at most {MAX_RESULT_BYTES} travel inline",
            reason="result_size",
            hint="return a reference to where the data lies",
        )
    return inline_output(RESULT, text, "application/json")


def inline_output(name: str, text: str, media_type: str) -> Output:
    """A small output that travels inside the completion, under both digests."""
    raw = text.encode()
    return Output(
        name=name,
        hash=digest(raw),
        size=len(raw),
        type=media_type,
        sha256=sha256(raw).hexdigest(),
        text=text,
    )


async def _awaited(value: Awaitable[object]) -> object:
    return await value


def failure_of(error: BaseException) -> Failure:
    """What the log keeps of an exception: its name and its message, no traceback."""
    message = str(error)
    encodable = message.encode("utf-8", "replace").decode()
    return Failure(name=type(error).__name__, message=encodable[:MAX_MESSAGE])
