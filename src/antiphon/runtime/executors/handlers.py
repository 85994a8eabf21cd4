"""Handlers: registered Python functions that a worker runs, by kind.

A handler takes the job's arguments and, if it asks for one, a `JobContext`. Coroutine functions
run in the worker's event loop. Plain functions run in a thread, so that a slow one does not stop
renewals. Both can run in a separate process instead.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, structs
from msgspec.structs import replace

from antiphon.core.cost.usage import Resources
from antiphon.core.manifest import Manifest
from antiphon.core.policy.rate_limit import Rate
from antiphon.core.proof.output import Output
from antiphon.core.record import subjects
from antiphon.errors import After, Malformed, Misconfigured
from antiphon.ports import WallClock
from antiphon.runtime.artifacts.store import MAX_VALUE_BYTES, Artifacts
from antiphon.runtime.executors.children import answers_to_await, continuable, facts_of, to_await
from antiphon.runtime.executors.executor import Assignment, Executor, Ran
from antiphon.runtime.executors.failure import given_up
from antiphon.runtime.executors.handler_call import (
    JobContext,
    StreamSoFar,
    ValueRoom,
    arguments_of,
    keep_arguments,
    keep_result,
    plain_arguments,
)
from antiphon.runtime.executors.handler_exits import InHandler, in_thread
from antiphon.runtime.executors.hooks import Hook
from antiphon.runtime.executors.printed_output import PrintingTo
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.runtime.executors.step import Asking, is_asking
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.values.signature import CallSignature

if TYPE_CHECKING:
    from antiphon.runtime.executors.printed_output import Stream
    from antiphon.runtime.executors.process_pool import Pool
    from antiphon.runtime.executors.run_services import ExecutorServices, PartSink
    from antiphon.runtime.inference.recorder import Recorder

Handler = Callable[..., Any]
RunIn = Literal["loop", "thread", "process"]


class HandlerOptions(Struct, frozen=True, kw_only=True):
    """How a worker runs a handler; not part of the job."""

    run_in: RunIn | None = None
    """None: coroutine functions in the event loop, others in a thread."""
    rate: Rate | None = None
    """How many may begin on this worker in a period of time."""
    on_disconnect: Literal["stop", "continue"] = "stop"
    """What to do when no renewal is acknowledged for two thirds of a lease. `continue` is for
    handlers that may run twice at once: the job keeps running, and its end is written later."""
    keep_output: bool = False
    """Whether what it prints is stored at the end of the job, as its output `output`."""
    env: tuple[str, ...] = ()
    """Environment variables that its process gets, besides the usual few."""


class Registered(Struct, frozen=True):
    """A function that was registered for a kind."""

    function: Handler
    signature: CallSignature
    how: HandlerOptions
    fallbacks: Mapping[str, Handler] = {}
    """Functions that give a coarser result, by name."""


class HandlerExecutor(Struct, frozen=True):
    """The executor of one kind on one worker."""

    handler: Registered
    is_async: bool
    pool: Pool | None
    """Its processes, if it runs in processes."""
    artifacts: Artifacts | None
    """Where large arguments and results are."""
    room: ValueRoom
    """For its worker's stored arguments."""
    wall: WallClock

    @property
    def is_plain(self) -> bool:
        """Whether a call needs nothing but its arguments and the event loop."""
        how = self.handler.how
        return (
            self.is_async
            and self.pool is None
            and how.on_disconnect == "stop"
            and not how.keep_output
            and not self.handler.signature.wants_context
        )

    @property
    def grace_s(self) -> float:
        """A function has no timer itself; its process pool does."""
        return 0 if self.pool is None else self.pool.grace_s

    @property
    def goes_on(self) -> bool:
        """Whether it keeps running while the engine does not answer."""
        return self.handler.how.on_disconnect == "continue"

    async def run(self, assignment: Assignment) -> Ran:
        """Call it; what it returns is the job's one output."""
        if assignment.manifest.handler != assignment.kind:
            raise Malformed(
                f"a job of kind {assignment.kind} names the handler @{assignment.manifest.handler}",
                reason="manifest",
            )
        assignment.run.store_in(self.artifacts, keeps_output=self.handler.how.keep_output)
        plain = plain_arguments(assignment)
        if plain is not None:
            return await self._run(assignment, plain)
        async with arguments_of(assignment, self.artifacts, self.room) as text:
            return await self._run(assignment, text)

    async def fall_back(self, name: str, assignment: Assignment) -> Ran | None:
        """The result of the fallback of this name, called with the job's arguments."""
        function = self.handler.fallbacks.get(name)
        if function is None:
            return None
        signature = CallSignature(function, name=f"{assignment.kind}:{name}")
        instead = replace(
            self,
            handler=replace(self.handler, function=function, signature=signature),
            is_async=inspect.iscoroutinefunction(function),
            pool=None,
        )
        async with arguments_of(assignment, self.artifacts, self.room) as text:
            return await instead._run(assignment, text)  # noqa: SLF001 - of its own class

    async def _run(self, assignment: Assignment, text: str | bytes) -> Ran:
        signature = self.handler.signature
        wants, context = signature.wants_context, None
        if self.pool is not None:
            given = text if isinstance(text, str) else text.decode()
            facts = await facts_of(assignment, self.artifacts) if wants else None
            return await self.pool.call(assignment, given, self._kept, facts)
        with given_up:
            args, kwargs = signature.decode(text)
        parts = assignment.run.parts() if signature.is_stream else None
        if wants:
            facts = await facts_of(assignment, self.artifacts)
            context = JobContext(
                **structs.asdict(facts), run=assignment.run, stream=await self._so_far(parts)
            )
            args, kwargs = signature.with_context(context, args, kwargs)
        if parts is not None:
            value = self._streamed(args, kwargs, parts)
        else:
            value = self._value(args, kwargs, assignment.run)
        if assignment.run.recorder is not None:
            value = _captured(value, assignment.run.recorder)
        called = _called(value, assignment.run.output)
        return await self._outcome(called, assignment, context)

    def begin(self, text: str, prints: Callable[[Stream, bytes], None]) -> Coroutine[Any, Any, Any]:
        """Call it without a run around it, if it is plain; `goes_on_with` is for the rest."""
        args, kwargs = self.handler.signature.decode(text)
        return _called(self.handler.function(*args, **kwargs), prints)

    def goes_on_with(self, call: asyncio.Future[Any]) -> Executor:
        """The executor of a job whose handler was called before."""
        return _Called(self, call)

    async def _outcome(
        self, call: Awaitable[Any], assignment: Assignment, context: JobContext | None
    ) -> Ran:
        """What became of a call."""
        try:
            value = await call
        except asyncio.CancelledError:
            if context is not None:
                context.stop.set()
            raise
        except After as after:
            parent = continuable(assignment.kind, context)
            keep = partial(keep_arguments, artifacts=self.artifacts)
            awaited = await to_await(after, parent, keep, self.wall.now_ms())
            return Ran(runner=python_runner(), after=awaited)
        except (Asking, BaseExceptionGroup) as asking:
            if context is None or not is_asking(asking):
                raise
            return Ran(runner=python_runner(), after=answers_to_await(context))
        with given_up:
            result = self.handler.signature.encode_result(value)
        return Ran(runner=python_runner(), outputs=(await self._kept(result),))

    async def _kept(self, result: bytes) -> Output:
        return await keep_result(result, self.artifacts)

    async def _so_far(self, parts: PartSink | None) -> StreamSoFar:
        if parts is None:
            return StreamSoFar()
        stored, text = await parts.begin()
        with given_up:
            last = None if text is None else self.handler.signature.decode_part(text)
        return StreamSoFar(stored=stored, last=last)

    async def _streamed(self, args: Sequence[Any], kwargs: dict[str, Any], parts: PartSink) -> int:
        """Send what an async generator yields; how many parts the job has then."""
        signature = self.handler.signature
        async with aclosing(self.handler.function(*args, **kwargs)) as values:
            try:
                async for value in values:
                    with given_up:
                        text = signature.encode_part(value).decode()
                    await parts.send(text)
            except (Exception, Asking):
                await parts.end()  # what was yielded before an error or a question is kept
                raise
        return await parts.end()

    async def _value(
        self, args: Sequence[Any], kwargs: dict[str, Any], run: ExecutorServices
    ) -> Any:
        if self.is_async:
            return await self.handler.function(*args, **kwargs)
        gauge = run.gauge

        def call() -> Any:
            with gauge.this_thread():
                return self.handler.function(*args, **kwargs)

        value = await in_thread(call)
        if not inspect.isawaitable(value):
            return value
        gauge.measured(Resources())  # the rest runs in the loop, where it cannot be measured
        return await _awaited(value)


class _Called(Struct, frozen=True):
    """The executor of a job whose handler was called before."""

    executor: HandlerExecutor
    call: asyncio.Future[Any]

    @property
    def grace_s(self) -> float:
        return self.executor.grace_s

    @property
    def goes_on(self) -> bool:
        return self.executor.goes_on

    async def run(self, assignment: Assignment) -> Ran:
        assignment.run.store_in(self.executor.artifacts)
        return await self.executor._outcome(self.call, assignment, None)  # noqa: SLF001 - its own

    async def fall_back(self, name: str, assignment: Assignment) -> Ran | None:
        return await self.executor.fall_back(name, assignment)


class Handlers:
    """A registry of handlers, by kind. Each worker makes its own executors of it."""

    def __init__(self) -> None:
        """Begin empty."""
        self._by_kind: dict[str, Registered] = {}
        self.hooks: list[Hook] = []
        """Wrapped around every run, the first outermost."""

    @property
    def kinds(self) -> list[str]:
        """The kinds that have a handler."""
        return sorted(self._by_kind)

    @property
    def rates(self) -> dict[str, Rate]:
        """The rates of those kinds that have one."""
        rates = {kind: one.how.rate for kind, one in self._by_kind.items()}
        return {kind: rate for kind, rate in rates.items() if rate is not None}

    def register(
        self, kind: str, function: Handler, how: HandlerOptions | None = None
    ) -> CallSignature:
        """Run `function` for jobs of exactly this kind; how it is called.

        `TypeError` if one of its annotations cannot be carried.
        """
        subjects.check_kind(kind)
        how = how or HandlerOptions()
        if kind in self._by_kind:
            raise Misconfigured(f"two handlers are registered for {kind!r}")
        signature = CallSignature(function, name=kind)
        _check_place(kind, how, function)
        registered = Registered(function, signature, how)
        _pool_of(registered)  # what cannot run there is refused now
        self._by_kind[kind] = registered
        return signature

    def register_fallback(self, kind: str, name: str, function: Handler) -> None:
        """Have `function` give a coarser result, where a score names this fallback."""
        found = self._by_kind[kind]
        if name in found.fallbacks:
            raise Misconfigured(f"two fallbacks of {kind} are called {name!r}")
        CallSignature(function, name=f"{kind}:{name}")
        self._by_kind[kind] = replace(found, fallbacks={**found.fallbacks, name: function})

    def executors(
        self, artifacts: Artifacts | None = None, *, wall: WallClock | None = None
    ) -> HandlerExecutors:
        """What one worker runs them with: its own store, its own clock, its own processes."""
        return HandlerExecutors(self._by_kind, artifacts, wall or SystemClock())


class HandlerExecutors:
    """The handlers that one worker runs, as its `Executors`. Close it with the worker."""

    def __init__(
        self, handlers: Mapping[str, Registered], artifacts: Artifacts | None, wall: WallClock
    ) -> None:
        """Those that are registered by now."""
        room = ValueRoom(MAX_VALUE_BYTES if artifacts is None else artifacts.value_bytes)
        self._by_kind = {
            kind: HandlerExecutor(
                one,
                inspect.iscoroutinefunction(one.function),
                _pool_of(one),
                _store_of(one, artifacts),
                room,
                wall,
            )
            for kind, one in handlers.items()
        }

    @property
    def kinds(self) -> list[str]:
        """The kinds that this worker can run."""
        return sorted(self._by_kind)

    def find(self, kind: str, manifest: Manifest) -> Executor | None:
        """The handler of a kind; None for a command, which another worker may run."""
        return None if manifest.handler is None else self._by_kind.get(kind)

    async def close(self) -> None:
        """End the idle processes."""
        for one in self._by_kind.values():
            if one.pool is not None:
                await one.pool.close()


def _store_of(handler: Registered, artifacts: Artifacts | None) -> Artifacts | None:
    """A run that ends without the engine has nothing that could wait."""
    if artifacts is None or handler.how.on_disconnect == "continue":
        return artifacts
    return artifacts.at_once


def _pool_of(handler: Registered) -> Pool | None:
    if handler.how.run_in != "process":
        return None
    from antiphon.runtime.executors.process_pool import Pool

    return Pool(handler.function, handler.how.env)


def _check_place(kind: str, how: HandlerOptions, function: Handler) -> None:
    is_stream = inspect.isasyncgenfunction(function)
    is_async = is_stream or inspect.iscoroutinefunction(function)
    places = {None, "loop" if is_async else "thread", None if is_stream else "process"}
    if how.run_in not in places:
        raise Misconfigured(
            f"the handler of {kind} cannot run in a {how.run_in}",
            hint="coroutine functions run in the event loop, others in a thread, both in a process;"
            " async generators run in the event loop",
        )
    if how.on_disconnect not in {"stop", "continue"}:
        raise Misconfigured(
            f"the handler of {kind} cannot {how.on_disconnect} on a disconnect",
            hint='on_disconnect is "stop" or, for handlers that may run twice, "continue"',
        )
    if how.env and how.run_in != "process":
        raise Misconfigured(
            f"the handler of {kind} sees the worker's whole environment",
            hint='env= is for run_in="process"',
        )


async def _awaited(value: Awaitable[object]) -> object:
    return await value


async def _captured(value: Awaitable[Any], recorder: Recorder) -> Any:
    from antiphon.runtime.inference.transports import captured_by

    with captured_by(recorder):
        return await value


async def _called(value: Awaitable[Any], prints: Callable[[Stream, bytes], None]) -> Any:
    with InHandler(), PrintingTo(prints):
        return await value
