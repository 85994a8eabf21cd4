"""Steps: parts of a handler whose results are stored, so that no later run computes them again.

    page = await ctx.step("fetch", fetch, url)

A step has a name, unique in its job. Its result is stored before it is returned, in a record of
the job's own lane. When the job is run again, wherever that is, the step returns what was stored.
Arguments and result are encoded by the function's annotations, as those of a task are. The
arguments are kept as a digest: the same name with other arguments is an error, not a second step.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from antiphon.core.families.jobs.ops import MAX_ARTIFACT_NAME
from antiphon.core.record.ids import digest
from antiphon.errors import GiveUp, Misconfigured, StaleFence
from antiphon.runtime.executors.failure import given_up
from antiphon.runtime.executors.run_services import RunServices, StoredStep
from antiphon.runtime.values.signature import CallSignature

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

T = TypeVar("T")

_ADVICE: Final = 'give each step a name of its own, such as f"fetch {url}"'


class StepCaller(Protocol):
    """The handler that takes steps: what a step needs of its `JobContext`."""

    @property
    def run(self) -> RunServices:
        """Where the results are."""

    @property
    def stop(self) -> threading.Event:
        """Set when the job is no longer this worker's."""

    @property
    def open_steps(self) -> set[str]:
        """The names of those that are being computed."""


class Step(Generic[T]):
    """A step of a job: `await` it, or call `wait` in a handler that is a plain function."""

    _is_begun = False

    def __init__(
        self,
        caller: StepCaller,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Made by `JobContext.step`; nothing is computed yet."""
        if not 0 < len(name) <= MAX_ARTIFACT_NAME:
            raise GiveUp(f"a step's name is a text of 1 to {MAX_ARTIFACT_NAME} characters")
        self.name = name
        self._caller = caller
        self._function = function
        self._args = args
        self._kwargs = kwargs
        with given_up:
            # A task is its function here: it runs in this job, and becomes no job of its own.
            plain = getattr(function, "function", function)
            self._signature = _signature_of(plain, f"the step {name!r}")
            self._of = digest(self._signature.encode(args, kwargs))

    def __await__(self) -> Generator[Any, None, T]:
        self._is_begun = True
        return self._value().__await__()

    def wait(self) -> T:
        """The same in a thread or a process, blocking; not in a coroutine, which has to `await`."""
        self._is_begun = True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise Misconfigured(
                f"the step {self.name!r} would block the event loop",
                hint=f'in a coroutine: await ctx.step("{self.name}", ...)',
            )
        with self._open():
            stored = self._caller.run.find_step(self.name).result()
            if stored is not None:
                return self._read(stored)
            value = self._function(*self._args, **self._kwargs)
            if inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise GiveUp(
                    f"the step {self.name!r} calls a coroutine function, and the handler is a plain"
                    " function: make the handler 'async def' and await the step"
                )
            self._caller.run.store_step(self.name, self._written(value)).result()
            return value  # type: ignore[no-any-return]

    async def _value(self) -> T:
        with self._open():
            stored = await asyncio.wrap_future(self._caller.run.find_step(self.name))
            if stored is not None:
                return self._read(stored)
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(*self._args, **self._kwargs)
            else:
                # In a thread: what blocks must not stop the other jobs of this worker.
                value = await asyncio.to_thread(self._function, *self._args, **self._kwargs)
                if inspect.isawaitable(value):
                    value = await value
            step = self._written(value)
            await asyncio.wrap_future(self._caller.run.store_step(self.name, step))
            return value  # type: ignore[no-any-return]

    @contextmanager
    def _open(self) -> Iterator[None]:
        caller = self._caller
        if caller.stop.is_set():
            raise StaleFence(f"the step {self.name!r} was not begun: the job is no longer ours")
        if self.name in caller.open_steps:
            raise GiveUp(f"the step {self.name!r} is running already: {_ADVICE}")
        caller.open_steps.add(self.name)
        try:
            yield
        finally:
            caller.open_steps.discard(self.name)

    def _read(self, stored: StoredStep) -> T:
        if stored.of != self._of:
            raise GiveUp(
                f"the step {self.name!r} was stored with other arguments than it has now: {_ADVICE}"
            )
        with given_up:
            return self._signature.decode_result(stored.text)  # type: ignore[no-any-return]

    def _written(self, value: Any) -> StoredStep:
        with given_up:
            return StoredStep(of=self._of, text=self._signature.encode_result(value).decode())

    def __del__(self) -> None:
        if not self._is_begun and getattr(self, "_signature", None) is not None:
            warnings.warn(
                f"the step {self.name!r} was never awaited: it did not run",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )


def _signature_of(function: Callable[..., Any], name: str) -> CallSignature:
    try:
        return CallSignature(function, name=name)
    except ValueError:  # a builtin that does not say how it is called
        return CallSignature(_anyhow, name=name)


def _anyhow(*args: Any, **kwargs: Any) -> Any:
    """How a function is called that does not say so: with plain JSON."""
