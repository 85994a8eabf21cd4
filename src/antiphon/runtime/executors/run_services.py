"""What a running job may tell its worker and ask of it: progress, checkpoints, steps, time, help.

A handler reaches these through its `JobContext`, its executor through the `Assignment`. In a worker
they are `antiphon.runtime.worker.runs.job_run`; in a handler's own process they go over its socket;
and a task that is called directly, without a mesh, gets `WithoutWorker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from antiphon.core.cost.usage import Reported
from antiphon.core.policy.phrase_run import RunTime
from antiphon.core.tempo.phases import Phase
from antiphon.core.tempo.policy import DEFAULT_POLICY
from antiphon.core.tempo.score import Waited
from antiphon.errors import Misconfigured
from antiphon.ports import WallClock
from antiphon.runtime.executors.printed_output import Stream
from antiphon.runtime.executors.usage_gauge import UsageGauge
from antiphon.runtime.identity.host_clock import SystemClock

if TYPE_CHECKING:
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.inference.recorder import Recorder

T = TypeVar("T")


class Saved:
    """A checkpoint that is being stored: `await` it, or call `wait` in a thread or process.

    True: it is stored, or one that was given later is. False: it is not, and the job goes on.
    """

    def __init__(self, future: Future[bool]) -> None:
        """Made by `JobContext.checkpoint`."""
        self._future = future

    def __await__(self) -> Generator[Any, None, bool]:
        return asyncio.wrap_future(self._future).__await__()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it is stored; not in a coroutine, which would stop all others."""
        return self._future.result(timeout_s)


class StoredStep(Struct, frozen=True):
    """The result of a step as a run stored it (`step`)."""

    of: str
    """The digest of its arguments."""
    text: str
    """The result, as JSON."""


class Help(Protocol):
    """A request for help. The handler works on, and waits for the answer when it needs it."""

    @property
    def thread_id(self) -> str:
        """The thread on the bus."""

    @property
    def is_promised(self) -> bool:
        """Whether somebody has promised to help."""

    @property
    def confidence(self) -> float:
        """How certain the promised help is, from 0 to 1; 0 as long as nobody has promised."""

    @property
    def is_answered(self) -> bool:
        """Whether the answer is here."""

    def __await__(self) -> Generator[Any, None, str]:
        """The answer. Waits within the help budget; `WaitExhausted` when that is used up."""


class RunServices(Protocol):
    """What a handler may tell and ask."""

    def progress(self, done: float, note: str = "") -> None:
        """Send the progress, from 0 to 1; from any thread. It may be lost."""

    def reported(self, said: Reported, /) -> None:
        """What the handler says that it has used since it last said so; from any thread."""

    def checkpoint(self, data: bytes) -> Saved:
        """Store what the job has done so far; from any thread."""

    def save_with(self, saver: Callable[[], bytes]) -> None:
        """Ask this function for a checkpoint when the run is cut or given back."""

    def find_step(self, name: str) -> Future[StoredStep | None]:
        """The stored result of a step; from any thread."""

    def store_step(self, name: str, step: StoredStep) -> Future[None]:
        """Store the result of a step; from any thread."""

    def time(self) -> tuple[RunTime, int]:
        """The job's place in time, and the time that this is counted in, in milliseconds."""

    def next_phase(self) -> Phase:
        """Move on to the next phase of the score; the phase it is in then."""

    async def wait_for(self, awaited: Awaitable[T], what: Waited, name: str) -> T:
        """Wait, within the score's budget."""

    def help(self, about: str) -> Help:
        """Ask whoever works on this kind."""


class PartSink(Protocol):
    """Where the parts of a stream go; in the event loop."""

    async def begin(self) -> tuple[int, str | None]:
        """How many parts earlier runs have stored, and the text of the last one."""

    async def send(self, text: str) -> None:
        """Store a part, soon and together with others."""

    async def end(self) -> int:
        """Store what is left; how many parts the job has now."""


class ExecutorServices(RunServices, Protocol):
    """The same for the executor, which says more."""

    def parts(self) -> PartSink:
        """Where the parts of a stream go."""

    @property
    def gauge(self) -> UsageGauge:
        """Where it says what the run has used so far."""

    @property
    def recorder(self) -> Recorder | None:
        """Who is told of the handler's model calls; None: they are not audited."""

    def store_in(self, artifacts: Artifacts | None, *, keeps_output: bool = False) -> None:
        """Where checkpoints are stored, and what is printed if that is to be kept."""

    def output(self, stream: Stream, data: bytes) -> None:
        """What the job wrote; from any thread."""


class WithoutWorker:
    """For a task that is called directly: time by this machine's clock, and nothing is stored."""

    recorder = None

    def __init__(self, wall: WallClock | None = None) -> None:
        """Beats of the default tempo."""
        self._steps: dict[str, StoredStep] = {}
        self._wall = wall or SystemClock()
        self.gauge = UsageGauge()

    def store_in(self, artifacts: Artifacts | None, *, keeps_output: bool = False) -> None:
        """Nowhere."""

    def output(self, stream: Stream, data: bytes) -> None:
        """Nobody listens."""

    def progress(self, done: float, note: str = "") -> None:
        """Nobody listens."""

    def reported(self, said: Reported) -> None:
        """Added up."""
        self.gauge.reported(said)

    def checkpoint(self, data: bytes) -> Saved:
        """Not stored: nobody would continue from it."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError("a checkpoint is bytes")
        return Saved(_done(False))

    def save_with(self, saver: Callable[[], bytes]) -> None:
        """Never asked for."""

    def find_step(self, name: str) -> Future[StoredStep | None]:
        """What this call has remembered."""
        return _done(self._steps.get(name))

    def store_step(self, name: str, step: StoredStep) -> Future[None]:
        """Remembered as long as the call lasts."""
        self._steps[name] = step
        return _done(None)

    def parts(self) -> PartSink:
        """Nobody follows them."""
        return _Counted()

    def time(self) -> tuple[RunTime, int]:
        """The bar, by this machine's clock."""
        return RunTime(meter=DEFAULT_POLICY.meter, phases=DEFAULT_POLICY.beats), self._wall.now_ms()

    def next_phase(self) -> Phase:
        """There is no score to move on in."""
        time, now_ms = self.time()
        return time.phase(now_ms)

    async def wait_for(self, awaited: Awaitable[T], what: Waited, name: str) -> T:  # noqa: ARG002 - no budget
        """Wait for as long as it takes."""
        return await awaited

    def help(self, about: str) -> Help:
        """Nobody is there."""
        raise Misconfigured(
            f"nobody can be asked about {about[:80]!r}: the task was called directly",
            hint="submit it to a mesh",
        )


class _Counted:
    """A `PartSink` that only counts."""

    def __init__(self) -> None:
        self._count = 0

    async def begin(self) -> tuple[int, str | None]:
        return 0, None

    async def send(self, text: str) -> None:  # noqa: ARG002 - it is not stored
        self._count += 1

    async def end(self) -> int:
        return self._count


def _done(result: T) -> Future[T]:
    future = Future[T]()
    future.set_result(result)
    return future
