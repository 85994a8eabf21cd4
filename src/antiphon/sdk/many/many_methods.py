"""Binding and submitting many jobs: what `Mesh` offers beside single calls (docs/tasks.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.runtime.values.signature import plain_call
from antiphon.sdk.call_options import Scheduling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.policy.circuit_breaker import CircuitBreaker
    from antiphon.runtime.caller.submission import Submitted
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.many.bound_calls import Call, Caller

R = TypeVar("R")


class ManyMethods:
    """A part of `Mesh`."""

    _breaker: CircuitBreaker | None

    @property
    def session(self) -> Session:
        """The session that reads and writes the log."""
        raise NotImplementedError

    async def _call_body(self, call: Call[Any]) -> ScheduleBody:
        raise NotImplementedError

    def _handle(
        self, submitted: Submitted, signature: CallSignature | None = None
    ) -> JobHandle[Any]:
        raise NotImplementedError

    def bind(
        self, kind: str, /, *args: object, options: CallOptions | None = None, **kwargs: object
    ) -> Call[Any]:
        """A call that is not submitted yet, of a task by its kind."""
        from antiphon.sdk.many.bound_calls import Call

        return Call(kind, plain_call(args, kwargs), Scheduling.of(options or {}))

    async def submit_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """Submit jobs that `bind` made, of any tasks; their handles, in the same order."""
        return await self.caller().submit(calls)

    def caller(self) -> Caller:
        """What submits many."""
        from antiphon.sdk.many.bound_calls import Caller

        def body_of(call: Call[Any]) -> Awaitable[ScheduleBody]:
            return self._call_body(call)

        return Caller(self.session, self._breaker, body_of, self._handle)
