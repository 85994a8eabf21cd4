"""Tasks: functions that can be called from one machine and answered on another."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from msgspec import Struct

from antiphon.core import manifest, ops
from antiphon.runtime.handlers import call_text
from antiphon.sdk.handles import JobHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antiphon.runtime.peer import Peer

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT_S = 3600


class CallOptions(Struct, frozen=True, kw_only=True):
    """How a task's jobs are scheduled; none of it is part of the job's id but `timeout_s`."""

    once: bool = False
    """The same arguments are the same job: run once, remembered ever after."""
    timeout_s: int = DEFAULT_TIMEOUT_S
    urgency: ops.Class = 1
    attempts: int | None = None
    lease_ms: int | None = None
    lease_ms_max: int | None = None
    start_by_ms: int | None = None
    retry_base_ms: int = 1_000
    retry_cap_ms: int = 60_000
    give_up_on: tuple[str, ...] = ()

    def schedule(self, kind: str, job: manifest.Manifest) -> ops.ScheduleBody:
        """The body of the op that calls this job."""
        return ops.ScheduleBody(
            kind=kind,
            manifest=job,
            urgency=self.urgency,
            retry=ops.Retry(
                attempts=self.attempts,
                base_ms=self.retry_base_ms,
                cap_ms=self.retry_cap_ms,
                give_up_on=self.give_up_on,
            ),
            lease_ms=self.lease_ms,
            lease_ms_max=self.lease_ms_max,
            start_by=self.start_by_ms,
        )


class Task(Generic[P, R]):
    """A registered function. Called directly it is just the function; `submit` sends it out."""

    def __init__(
        self,
        kind: str,
        function: Callable[P, Awaitable[R] | R],
        options: CallOptions,
        peer: Callable[[], Peer],
        call: Callable[[ops.ScheduleBody], Awaitable[JobHandle[Any]]],
    ) -> None:
        """Made by `Mesh.task`."""
        self.kind = kind
        self.function = function
        self.options = options
        self._peer = peer
        self._call = call
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run it here and now, in this process, with no mesh involved."""
        return self.function(*args, **kwargs)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Call the task on the mesh; returns once the call is committed."""
        peer = self._peer()
        job = manifest.author(
            {
                "command": [f"@{self.kind}"],
                "args": [call_text(args, kwargs)],
                "timeout": self.options.timeout_s,
            }
        )
        if not self.options.once:
            job = manifest.with_nonce(job, peer.entropy.token(16).hex())
        return await self._call(self.options.schedule(self.kind, job))
